"""`tests.soak` finds the connections of clients among all that a gateway has."""

import os
import socket
import subprocess
import sys
from dataclasses import dataclass

from tests.soak.measure import client_sockets

CLIENT = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); print(flush=True); input()"


@dataclass
class Process:
    pid: int
    bootstrap: str


def test_a_client_counts_until_its_socket_is_closed_and_another_gateway_never() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        gateway = Process(os.getpid(), f"127.0.0.1:{port}")
        client = subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        with client:
            assert client.stdout is not None
            client.stdout.readline()
            accepted, _ = listener.accept()
            with accepted:
                assert client_sockets(gateway, []) == 1
                assert client_sockets(gateway, [Process(client.pid, "127.0.0.1:1")]) == 0
                client.communicate(b"\n")
                assert client_sockets(gateway, []) == 1  # half-closed
            assert client_sockets(gateway, []) == 0
