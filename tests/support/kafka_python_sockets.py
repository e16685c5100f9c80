"""Closes the sockets that kafka-python 3.0.12 forgets.

A client that closes while it is still connecting, or whose TLS handshake fails, leaves that socket to the garbage
collector. Its warning would then fail whichever test runs at that time.
"""

from __future__ import annotations

import socket
from typing import Any

from kafka.net.inet import KafkaNetSocket
from kafka.net.transport import KafkaSSLTransport

_connect, _handshake = KafkaNetSocket.sock_connect, KafkaSSLTransport.handshake


class _SelfClosing(socket.socket):
    """Closes itself when it is garbage: in a cycle, Python may finalize it before the coroutine that would close it."""

    def __del__(self) -> None:
        self.close()


def _new_socket(_factory: KafkaNetSocket, *arguments: Any) -> socket.socket:
    return _SelfClosing(*arguments)


async def _connected(factory: KafkaNetSocket, net: Any, sock: Any, *arguments: Any, **options: Any) -> Any:
    try:
        return await _connect(factory, net, sock, *arguments, **options)
    except BaseException:
        sock.close()
        raise


async def _shaken(transport: KafkaSSLTransport) -> None:
    try:
        await _handshake(transport)
    except BaseException:
        transport.abort()
        raise


def close_forgotten_sockets() -> None:
    """For all kafka-python clients of this process."""
    KafkaNetSocket.socket, KafkaNetSocket.sock_connect = _new_socket, _connected
    KafkaSSLTransport.handshake = _shaken
