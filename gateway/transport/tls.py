"""TLS of one connection, between its socket and the connection that it carries.

asyncio's own TLS is not used. It cannot read a PROXY header first. It also hides how much data a client has not
received: data counts as sent as soon as it is encrypted. Here the socket's transport shows this, as it does without
TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable, Iterable
from typing import Any, cast

from gateway.transport.carried import UNDECRYPTED_BYTES, Carried, Watcher
from gateway.transport.certificates import AcceptedTls
from gateway.transport.proxy import AwaitedProxyHeader
from protocol.kafka.buffers import Buffer
from protocol.proxy.header import MalformedProxyHeaderError

READ_BUFFER_BYTES = 256 * 1024
RECORD_BYTES = 17 * 1024
"""The size of the largest record: with fewer bytes, it is possible that nothing can be decrypted."""
MAX_SILENT_BYTES = 2 * RECORD_BYTES
"""Of records without data that follow each other, such as those for new keys (TLS 1.3)."""
STEP_S = 0.005
"""The time after which decryption goes on in the next turn of the event loop."""
ENCRYPT_BYTES = 256 * 1024
"""The number of bytes encrypted in one step, because these bytes are in memory twice."""


class TlsConnection(asyncio.BufferedProtocol, asyncio.Transport):
    """The protocol of the socket's transport, and the transport of the connection that is carried."""

    def __init__(
        self,
        context: ssl.SSLContext,
        read_buffer: memoryview,
        carry: Callable[[TlsConnection], Carried | None],
        watcher: Watcher,
        *,
        timeout_s: float,
        proxy_header: AwaitedProxyHeader | None = None,
        opens: bool = False,
    ) -> None:
        """`carry` creates the connection after the handshake, or returns None if the other side must not be accepted.

        `opens`: this gateway opens the connection, and begins the handshake.
        """
        super().__init__()
        self.address = "unknown"
        self._watcher = watcher
        self._opens = opens
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=not opens)
        self._read_buffer = read_buffer
        self._carry = carry
        self._proxy_header = proxy_header
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.call_later(timeout_s, self._refuse, "no TLS handshake in time")
        self._host: str | None = None
        """The host that is counted by the watcher, until the handshake is done."""
        self._raw: asyncio.Transport | None = None
        self._carried: Carried | None = None
        self._is_refused = False
        self._waits_for_turn = False
        self._received, self._ahead = memoryview(b""), b""
        """Data that is not decrypted yet, and a byte before it that is."""
        self._silent_bytes = 0
        """The size of the latest records without data."""
        self._step_ends_s: float | None = None
        """Set when the step takes its first data."""
        self._reading = True
        self._takes_answers = True
        self._ended = False
        """The client sends no more data."""

    # The socket's protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)  # uvloop has its own class
        peer = transport.get_extra_info("peername")
        host, port = peer[:2] if peer else ("", 0)
        self.address = f"{host}:{port}"
        if self._proxy_header is None:
            self._arrive(host)
            if self._opens:
                self._advance()
        elif (refusal := self._proxy_header.refusal(peer)) is not None:
            self._refuse(refusal)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Read no more than the carried connection accepts: data that stays in this class is not counted anywhere."""
        if self._carried is None:
            return self._read_buffer[:RECORD_BYTES]
        taken = cast(memoryview, self._carried.get_buffer(sizehint))
        return self._read_buffer[: max(len(taken), RECORD_BYTES)]

    def buffer_updated(self, nbytes: int) -> None:
        if self.is_closing() or self._ended:  # after the end of TLS, any data may come
            return
        data = self._read_buffer[:nbytes]
        if self._proxy_header is not None:
            data = self._after_proxy_header(self._proxy_header, data)
        if self._carried is None:
            self._incoming.write(data)
            self._advance()
            return
        self._received = data if not self._received else memoryview(b"".join((self._received, data)))
        self._go_on(self._carried)
        if self._received:  # others will read into the same buffer
            self._received = memoryview(bytes(self._received))

    def eof_received(self) -> bool:
        self._incoming.write(self._received)
        self._incoming.write_eof()
        self._received = memoryview(b"")
        return self._end_of_stream()

    def pause_writing(self) -> None:
        # TLS itself answers some of a client's data, for example new keys.
        self._takes_answers = False
        if self._raw is not None:
            self._raw.pause_reading()
        if self._carried is not None:
            self._carried.pause_writing()

    def resume_writing(self) -> None:
        self._takes_answers = True
        if self._raw is not None and self._reading:
            self._raw.resume_reading()
        if self._carried is not None:
            self._carried.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._raw = None
        self._leave()
        if self._carried is not None:
            self._carried.connection_lost(exc)
            self._carried = None
        elif self._opens and not self._is_refused:
            self._watcher.refused("closed in TLS handshake", self.address)

    # PROXY header and handshake

    def _after_proxy_header(self, awaited: AwaitedProxyHeader, data: memoryview) -> memoryview:
        """The part of the data that follows the PROXY header."""
        try:
            found = awaited.take(data)
        except MalformedProxyHeaderError as error:
            self._refuse("no PROXY header", error=str(error))
            return memoryview(b"")
        if found is None:
            return memoryview(b"")
        self._proxy_header = None
        if found.header.source is not None:
            self.address = f"{found.header.source.host}:{found.header.source.port}"
            self._arrive(found.header.source.host)
        return memoryview(found.rest if self._reading else b"")

    def _arrive(self, host: str) -> None:
        if not self._watcher.arrived(host):
            self._refuse("too many connections without login")
            return
        self._host = host
        throttle_time_s = self._watcher.throttle_time_s(host)
        if throttle_time_s:
            self._deadline.cancel()
            self._deadline = self._loop.call_later(throttle_time_s, self._refuse, "connection rate exceeded")
            self._loop.call_soon(self.pause_reading)  # reading begins after this call
            self._reading = False

    def _leave(self) -> None:
        self._deadline.cancel()
        if self._host is not None:
            self._watcher.left(self._host)
            self._host = None

    def _go_on(self, carried: Carried) -> None:
        if carried.has_to_log_in:
            self._advance()
        else:
            self._decrypt()

    def _advance(self) -> None:
        """All clients that have not logged in share one slice of a turn."""
        if not self._waits_for_turn:
            self._waits_for_turn = True
            self._watcher.take_turn(self._take_turn)
            if self._waits_for_turn and self._raw is not None:
                self._raw.pause_reading()

    def _take_turn(self) -> None:
        self._waits_for_turn = False
        if self._raw is None or self.is_closing():
            return
        if self._reading and self._takes_answers:
            self._raw.resume_reading()
        if self._carried is not None or self._shake_hands():
            self._decrypt()

    def _shake_hands(self) -> bool:
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            self._flush()  # sends the reason to the client
            self._refuse("TLS handshake failed", error=error.reason)
            return False
        self._flush()
        self._leave()
        self._carried = self._carry(self)
        if self._carried is None:
            self._refuse("client certificate not accepted")
            return False
        self._carried.connection_made(self)
        return True

    def _refuse(self, reason: str, **facts: Any) -> None:
        if not self.is_closing():
            self._is_refused = True
            self._watcher.refused(reason, self.address, **facts)
            self.close()

    @property
    def certificate(self) -> bytes | None:
        """The other side's verified certificate, in DER."""
        return self._ssl.getpeercert(binary_form=True)

    @property
    def server_name(self) -> str | None:
        """The host name that the client requested (SNI)."""
        return self._ssl.server_name if isinstance(self._ssl, AcceptedTls) else None

    # Reading

    def _decrypt(self) -> None:
        self._step_ends_s = None
        while self._reading and self._carried is not None and not self.is_closing():
            buffer = cast(memoryview, self._carried.get_buffer(-1))
            size = self._read(buffer)
            if size:
                self._carried.buffer_updated(size)
            if size < len(buffer):
                break
        self._flush()  # TLS 1.3 may have its own answers to send
        if self._received and self._reading and self._raw is not None:  # the step took too long
            self._raw.pause_reading()
            self._loop.call_soon(self._resume)

    def _read(self, buffer: memoryview) -> int:
        """Decrypt into the buffer; returns the number of bytes."""
        filled = 0
        if self._ahead:
            buffer[0], filled, self._ahead = self._ahead[0], 1, b""
        try:
            while filled < len(buffer):
                try:
                    size = self._ssl.read(len(buffer) - filled, cast(Any, buffer[filled:]))
                except ssl.SSLWantReadError:
                    if not self._take_next():
                        break
                    continue
                if not size:
                    raise ssl.SSLZeroReturnError
                filled += cast(int, size)
                self._silent_bytes = 0
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            self._loop.call_soon(self._client_has_ended)  # after the data that the client has sent
        except ssl.SSLError as error:
            self._loop.call_soon(self._broken, error)
        return filled

    def _undecrypted_bytes(self) -> int:
        """Of whole records: if the connection is not read at present, half of one may be all that still comes."""
        if not (self._ahead or self._ssl.pending() or self.is_closing()):
            byte, self._step_ends_s = bytearray(1), None
            self._ahead = bytes(byte[: self._read(memoryview(byte))])
        return len(self._ahead) + self._ssl.pending() + len(self._received)

    def _take_next(self) -> bool:
        """Take the next record, or more small ones. A record without data may take as much time as one with data."""
        now_s = time.perf_counter()
        if self._step_ends_s is None:
            self._step_ends_s = now_s + STEP_S
        if not self._received or now_s > self._step_ends_s:
            return False
        if self._silent_bytes > MAX_SILENT_BYTES:
            self._received = memoryview(b"")
            self._loop.call_soon(self._refuse, "TLS without data")
            return False
        self._silent_bytes += self._incoming.write(self._received[:RECORD_BYTES])
        self._received = self._received[RECORD_BYTES:]
        return True

    def _client_has_ended(self) -> None:
        if not self._end_of_stream():
            self.close()

    def _broken(self, error: ssl.SSLError) -> None:
        """The client's bytes are not valid TLS."""
        self._refuse("TLS failed", error=error.reason)

    def _end_of_stream(self) -> bool:
        """Returns True if the client's requests still have to be answered."""
        if self._carried is None or self.is_closing():
            return False
        if not self._ended:
            self._ended = True
            return bool(self._carried.eof_received())
        return True

    def pause_reading(self) -> None:
        self._reading = False
        if self._raw is not None:
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._reading = True
        self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        """Data that was already received comes first."""
        if self._raw is None or not self._reading or self.is_closing():
            return
        if self._carried is not None:
            self._go_on(self._carried)
        may_read = self._reading and self._takes_answers and not (self._received or self._waits_for_turn)
        if may_read and not self.is_closing():
            self._raw.resume_reading()

    def is_reading(self) -> bool:
        return self._reading

    # Writing

    def write(self, data: Buffer) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        if self.is_closing():
            return
        try:
            for data in list_of_data:
                self._encrypt(memoryview(data).cast("B"))
        except ssl.SSLError as error:  # the data that the client sent after its request was not TLS
            self._broken(error)
        else:
            self._flush()

    def _encrypt(self, view: memoryview) -> None:
        while view:
            written = self._ssl.write(view[:ENCRYPT_BYTES])
            view = view[written:]
            if self._outgoing.pending >= ENCRYPT_BYTES:
                self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending and self._raw is not None:
            self._raw.write(self._outgoing.read())

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._raw is not None:
            self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return 0 if self._raw is None else self._raw.get_write_buffer_size() + self._outgoing.pending

    # The end

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == UNDECRYPTED_BYTES:
            return self._undecrypted_bytes()
        if name == "peername":
            host, _, port = self.address.rpartition(":")
            return host, int(port)
        return default if self._raw is None else self._raw.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._raw is None or self._raw.is_closing()

    def close(self) -> None:
        """Close after the written data has been sent."""
        if self._raw is None or self._raw.is_closing():
            return
        if self._carried is not None:
            with contextlib.suppress(ssl.SSLError):
                self._ssl.unwrap()  # sends the end of TLS to the client, and does not wait for its answer
            self._flush()
        self._raw.close()

    def abort(self) -> None:
        if self._raw is not None:
            self._raw.abort()
