"""The client's end of a connection: plain bytes, or TLS; behind a PROXY header, or without one."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import ssl
from dataclasses import dataclass
from random import Random

PIECE_BYTES = [1, 7, 200, 5_000, 20_000]
POINTER_TO_SSL = 24
"""Where CPython's `_ssl._SSLSocket` has it: behind its header and one pointer."""
HOST = "gateway.test"


@dataclass
class Contexts:
    """Of TLS, at both ends."""

    accepts: ssl.SSLContext
    connects: ssl.SSLContext
    session: ssl.SSLSession | None = None
    """Of an earlier connection. The next one resumes it."""


class PlainEnd:
    """A socket that does not block."""

    def __init__(self, end: socket.socket, header: bytes = b"") -> None:
        self._socket = end
        self._out = bytearray(header)

    @property
    def unsent(self) -> bool:
        return bool(self._out)

    def send(self, data: bytes, most: int) -> int:
        """Returns how much of the data was taken. Raises OSError when the connection is lost."""
        taken = 0 if len(self._out) > 100_000 else len(data)
        self._out += data[:taken]
        self._flush(most)
        return taken

    def _flush(self, most: int) -> None:
        while self._out and most > 0:
            try:
                sent = self._socket.send(self._out[: min(most, 100_000)])
            except BlockingIOError:
                return
            most -= sent
            del self._out[:sent]

    def receive(self) -> bytes:
        """Empty at the end. Raises BlockingIOError."""
        try:
            return self._socket.recv(1 << 20)
        except BlockingIOError:
            raise
        except OSError:
            return b""

    def finish_sending(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def odd(self, random: Random) -> None:
        """What the protocol below allows, and no request is."""

    def close(self) -> None:
        self._socket.close()


class TlsEnd(PlainEnd):
    """Records are as small as can be, handshakes and ends come in pieces, and keys are renewed in between."""

    def __init__(self, end: socket.socket, contexts: Contexts, random: Random, header: bytes = b"") -> None:
        super().__init__(end, header)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._contexts = contexts
        self.tls = contexts.connects.wrap_bio(
            self._incoming, self._outgoing, server_hostname=HOST, session=contexts.session
        )
        self._random = random
        self._is_done = False
        self._says_end = random.random() < 0.6
        self._lost = False

    def _handshake(self) -> bool:
        if self._is_done:
            return True
        self._pull()
        try:
            self.tls.do_handshake()
            self._is_done = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            self._lost = True
        self._out += self._outgoing.read()
        return self._is_done

    def _pull(self) -> bool:
        """Whether anything was received."""
        try:
            data = self._socket.recv(self._random.choice([100, 1 << 16]))
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._incoming.write_eof()
            self._lost = True
            return False
        self._incoming.write(data)
        return True

    @property
    def unsent(self) -> bool:
        return not self._is_done or bool(self._out)

    def send(self, data: bytes, most: int) -> int:
        taken = 0
        if self._handshake() and len(self._out) < 100_000:
            while taken < len(data) and len(self._out) < 100_000:
                piece = data[taken : taken + self._random.choice(PIECE_BYTES)]
                try:
                    self.tls.write(piece)
                except ssl.SSLError:
                    raise OSError from None
                taken += len(piece)
                self._out += self._outgoing.read()
        if self._lost and not self._is_done:
            raise OSError
        self._flush(most)
        return taken

    def receive(self) -> bytes:
        if self._lost and not self._is_done:
            return b""
        if not self._handshake():
            with contextlib.suppress(OSError):
                self._flush(1 << 30)
            raise BlockingIOError
        while True:
            try:
                data = self.tls.read(1 << 16)
                self._contexts.session = self.tls.session
                return data
            except ssl.SSLWantReadError:
                if not self._pull() and not self._lost:
                    raise BlockingIOError from None
            except ssl.SSLError:
                return b""

    def finish_sending(self) -> None:
        if self._says_end and self._is_done:
            with contextlib.suppress(ssl.SSLError):
                self.tls.unwrap()
            self._out += self._outgoing.read()
            with contextlib.suppress(OSError):
                self._flush(1 << 30)
            if self._random.random() < 0.5:
                return
        super().finish_sending()

    def odd(self, random: Random) -> None:
        if not self._is_done or self.tls.version() != "TLSv1.3":
            return
        pointer = ctypes.c_void_p.from_address(id(self.tls._sslobj) + POINTER_TO_SSL)  # type: ignore[attr-defined]
        update = ctypes.CDLL("libssl.so.3").SSL_key_update
        update.argtypes = [ctypes.c_void_p, ctypes.c_int]
        for _ in range(random.choice([1, 1, 30])):
            update(pointer, random.choice([0, 1]))
            with contextlib.suppress(ssl.SSLError):
                self.tls.write(b"")
            self._out += self._outgoing.read()
