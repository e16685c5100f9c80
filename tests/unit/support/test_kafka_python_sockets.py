import gc
import socket
import ssl
import warnings
from typing import Any

import pytest
from kafka.net.inet import KafkaNetSocket
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport


@pytest.fixture
def net() -> Any:
    selector = NetworkSelector()
    yield selector
    selector.close()


@pytest.fixture
def silent_port() -> Any:
    """Its connections are never accepted, and no byte is answered."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_connection_that_nobody_waits_for_is_closed(net: Any, silent_port: int) -> None:
    with socket.socket() as sock:
        sock.setblocking(False)
        connecting = KafkaNetSocket().sock_connect(net, sock, ("127.0.0.1", silent_port))
        connecting.send(None)
        connecting.close()
        assert sock.fileno() == -1


def test_a_connection_that_fails_is_closed(net: Any) -> None:
    with socket.socket() as sock:
        connecting = KafkaNetSocket().sock_connect(net, sock, ("127.0.0.1", 0))
        with pytest.raises(Exception, match=r"ECONNREFUSED|EADDRNOTAVAIL"):
            connecting.send(None)
        assert sock.fileno() == -1


def test_a_handshake_that_nobody_waits_for_is_closed(net: Any, silent_port: int) -> None:
    with socket.create_connection(("127.0.0.1", silent_port)) as sock:
        sock.setblocking(False)
        transport = KafkaSSLTransport(net, sock, host="localhost", ssl_context=ssl.create_default_context())
        shaking = transport.handshake()
        shaking.send(None)
        wrapped = transport._sock
        shaking.close()
        assert wrapped.fileno() == -1


def test_a_socket_in_a_garbage_cycle_is_closed_without_a_warning() -> None:
    forgotten = KafkaNetSocket().socket(socket.AF_INET)
    forgotten.bind(("127.0.0.1", 0))
    forgotten.listen()
    address = forgotten.getsockname()
    cycle: list[Any] = [forgotten]
    cycle.append(cycle)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        del forgotten, cycle
        gc.collect()
    assert not [each for each in found if issubclass(each.category, ResourceWarning)]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
