"""Suspends threads of a Java process for a while, as on a machine without processor time or in a blocking call.

Speaks the Java Debug Wire Protocol with the JDK's own agent. Packets: length (4 bytes, with these 11), id (4), flags
(1), then command set and command (1 each) or, in replies, the error code (2), then data.
"""

import itertools
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from deploy.local.process import free_port

HOST, TIMEOUT_S = "127.0.0.1", 20.0
HANDSHAKE = b"JDWP-Handshake"
REPLY = 0x80
ALL_THREADS = 1, 4
THREAD_NAME, SUSPEND, RESUME = (11, 1), (11, 2), (11, 3)
THREAD_ID_BYTES = 8
NO_THREAD = 10
"""The error code for a thread that has ended."""


@contextmanager
def debugging() -> Iterator[int]:
    """Java processes that are started meanwhile listen for a debugger. Yields the port: start one process only."""
    port, name = free_port(HOST), "JAVA_TOOL_OPTIONS"
    before = os.environ.get(name)
    os.environ[name] = f"-agentlib:jdwp=transport=dt_socket,server=y,suspend=n,address={HOST}:{port}"
    try:
        yield port
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


class JvmThreads:
    """A debugger of the process that listens at `port`. Disconnecting resumes all threads."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), TIMEOUT_S)
        self._ids = itertools.count(1)

    def __enter__(self) -> Self:
        self._socket.sendall(HANDSHAKE)
        assert self._read(len(HANDSHAKE)) == HANDSHAKE
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    @contextmanager
    def suspended(self, prefix: str) -> Iterator[None]:
        """The threads whose names begin with `prefix` do not run meanwhile. There must be one."""
        threads = [thread for thread in self._threads() if self._name(thread).startswith(prefix)]
        assert threads
        for thread in threads:
            self._ask(SUSPEND, thread)
        try:
            yield
        finally:
            for thread in threads:
                self._ask(RESUME, thread)

    def _threads(self) -> list[bytes]:
        found = self._ask(ALL_THREADS)[4:]
        return [found[start : start + THREAD_ID_BYTES] for start in range(0, len(found), THREAD_ID_BYTES)]

    def _name(self, thread: bytes) -> str:
        return self._ask(THREAD_NAME, thread)[4:].decode()

    def _ask(self, command: tuple[int, int], data: bytes = b"") -> bytes:
        number = next(self._ids)
        self._socket.sendall(struct.pack(">iiBBB", 11 + len(data), number, 0, *command) + data)
        while True:
            size, answered, flags, error = struct.unpack(">iiBH", self._read(11))
            answer = self._read(size - 11)
            if flags & REPLY and answered == number:
                assert error in {0, NO_THREAD}, f"JDWP error {error}"
                return answer

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            piece = self._socket.recv(size - len(found))
            assert piece, "the process has closed the connection"
            found += piece
        return found
