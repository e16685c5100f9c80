"""One client's TCP connection: bytes to frames, answers to bytes, back-pressure both ways."""

from __future__ import annotations

import asyncio
import time
from ipaddress import ip_address
from typing import Any, Protocol, cast

import structlog

from gateway.config import Networks
from gateway.network.pipeline import Host, Pipeline
from gateway.requests.context import Client, Listener
from protocol.framing import FrameReceiver
from protocol.kafka.buffers import Buffer
from protocol.proxy.header import MAX_HEADER_BYTES, MalformedProxyHeaderError, parse_proxy_header

READ_BUFFER_BYTES = 256 * 1024
SHORT_READ_BYTES = 4_096
"""While memory is short: even a connection that is about to be paused may read once."""
WRITE_HIGH_BYTES = 256 * 1024

log = structlog.get_logger()


class Owner(Host, Protocol):
    """The server, as its connections know it."""

    read_buffer: memoryview

    def opened(self, connection: KafkaConnection) -> bool: ...

    def closed(self, connection: KafkaConnection) -> None: ...

    def unread_changed(self, connection: KafkaConnection, size_bytes: int) -> None: ...


def _is_within(host: str, networks: Networks) -> bool:
    address = ip_address(host.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    return any(address in network for network in networks)


def _nothing_to_end(reason: str) -> None:
    """The connection is gone already."""


class KafkaConnection(asyncio.BufferedProtocol):
    """Reads frames for its pipeline, and writes what that answers."""

    def __init__(
        self, owner: Owner, listener: Listener, *, proxies: Networks | None = None, answers_in_order: bool = True
    ) -> None:
        """With `proxies`, a PROXY header comes first, and only peers in these networks may send one."""
        self._owner = owner
        self.listener = listener
        self._proxies = proxies
        self._awaits_proxy_header = proxies is not None
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._client = Client("", close=self.end)
        self._receiver = FrameReceiver(owner.read_buffer, owner.limits.max_request_bytes)
        context = owner.dispatcher.context(self._client, listener)
        self._pipeline = Pipeline(owner, context, self, answers_in_order=answers_in_order)
        self._proxy_header = b""
        self._write_paused = False
        self._reading = True
        self._ended_by_client = False
        self.last_activity = self._loop.time()

    # Reading

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop has a class of its own
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._client.address = f"{peer[0]}:{peer[1]}" if peer else "unknown"
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        if not self._owner.opened(self):
            self.end("too many connections")
        elif self._proxies is not None and not (peer and _is_within(peer[0], self._proxies)):
            self.end("not a trusted proxy")
        elif self._owner.requests.exhausted:
            self._loop.call_soon(self.regulate_reading)  # reading begins behind this call

    def get_buffer(self, sizehint: int) -> memoryview:
        buffer = self._receiver.get_buffer()
        return buffer[:SHORT_READ_BYTES] if self._owner.requests.exhausted else buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self.last_activity = self._loop.time()
        self._client.arrived_s = time.monotonic()
        self._owner.metrics.bytes_in.inc(nbytes)
        self._pipeline.received(nbytes)
        if self._awaits_proxy_header:
            self._take_proxy_header(self._proxy_header + self._owner.read_buffer[:nbytes])
        else:
            # What is no frame ends the connection in its turn, behind good requests.
            self._pipeline.take(self._receiver.buffer_updated(nbytes))
        self._pipeline.run()

    def _take_proxy_header(self, data: bytes) -> None:
        """Once it is whole; frames may follow at once."""
        try:
            header = parse_proxy_header(data[:MAX_HEADER_BYTES])
        except MalformedProxyHeaderError as error:
            self.end("no PROXY header", error=str(error))
            return
        if header is None:
            self._proxy_header = data
            return
        self._awaits_proxy_header = False
        self._proxy_header = b""
        self._pipeline.released(header.size_bytes)
        if header.source is not None:
            self._client.address = f"{header.source.host}:{header.source.port}"
        self._pipeline.take(self._receiver.cut(memoryview(data)[header.size_bytes :]))

    def regulate_reading(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        want = not self._pipeline.has_backlog and self._pipeline.ending is None
        if want:
            want = self._owner.requests.may_read(self)
        else:
            self._owner.requests.forget(self)  # others may read while it works
        if want == self._reading:
            return
        self._reading = want
        if want:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # Writing

    @property
    def accepts_answers(self) -> bool:
        return self._transport is not None and not self._write_paused

    def write(self, buffers: list[Buffer]) -> None:
        if self._transport is None:
            return
        self._owner.metrics.bytes_out.inc(sum(map(len, buffers)))
        if len(buffers) == 1:
            self._transport.write(buffers[0])
        elif buffers:
            self._transport.writelines(buffers)
        if self._write_paused:  # the answers to what was already being handled
            self._count_unread()
        if self._ended_by_client and self.idle and self._pipeline.ending is None:
            self.end("end of stream")

    def progressed(self) -> None:
        self.regulate_reading()

    def pause_writing(self) -> None:
        # A client that does not read gets no further request answered, so that what it pins stays bounded.
        self._write_paused = True
        self._count_unread()
        self.regulate_reading()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._owner.unread_changed(self, 0)
        self._pipeline.run()

    def _count_unread(self) -> None:
        if self._transport is not None:
            self._owner.unread_changed(self, self._transport.get_write_buffer_size())

    # Closing

    @property
    def idle(self) -> bool:
        """Nothing of this client is being worked on."""
        return self._pipeline.idle

    @property
    def mid_frame(self) -> bool:
        """A part of a request has come, or of the PROXY header before the first one."""
        return bool(self._proxy_header) or self._receiver.mid_frame

    def close(self, reason: str, **facts: Any) -> None:
        if self._transport is not None and self._transport.is_closing():
            self._transport.abort()  # the client does not even take its last answers
        else:
            self.end(reason, **facts)

    def abort(self, reason: str) -> None:
        """Give up what the client has not taken."""
        self.end(reason)
        if self._transport is not None:
            self._transport.abort()

    def end(self, reason: str, **facts: Any) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._owner.metrics.connections_closed.labels(reason).inc()
        log.info("connection closed", reason=reason, address=self._client.address, **facts)
        self._pipeline.drop_backlog()
        self._owner.requests.forget(self)
        self._transport.close()

    def eof_received(self) -> bool:
        """A client that has sent all may still want its answers. True keeps our side open until they are written."""
        if self.idle:
            return False
        self._ended_by_client = True
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._owner.unread_changed(self, 0)
        self._receiver.clear()
        self._owner.requests.forget(self)
        self._pipeline.close()
        self._owner.closed(self)
        self._client.close = _nothing_to_end  # it would hold this connection until garbage is looked for
