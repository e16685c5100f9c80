"""Connections to other gateways, over which this one forwards requests of its clients, in Kafka's protocol.

Each client has its own connection to each leader that it needs, so the leader treats it like the client's: with the
client's address and principal (a PROXY header comes first), in the client's order, and only while the client is
connected. Three things differ from a client's connection: answers come as soon as they are ready, not in the order of
the requests; requests are not forwarded again; and they are not checked again, except that a consumer group asks for
the topics that the client may describe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property
from typing import cast

import structlog

from coordinator.fleet.messages import Address, Member
from gateway.background import run_once
from gateway.fleet.listener import FleetListener
from gateway.fleet.view import ClusterFleet
from gateway.forwarding.peer_security import PeerSecurity
from gateway.forwarding.silence import enable_keepalive, is_silent, limit_unacknowledged_time
from gateway.transport.carried import Carried
from protocol.framing import FrameReceiver
from protocol.kafka.buffers import Buffer
from protocol.proxy.header import Endpoint, encode_gateway_header, encode_proxy_header

CONNECT_S = 2.0
SILENCE_MS = 5_000
"""A peer whose machine acknowledges nothing for this time is lost. The fleet's log shows whether its process works."""
SILENCE_CHECK_S = 1.0
READ_BUFFER_BYTES = 256 * 1024
SENT_CHECK_S = 0.05
"""How often a link is asked whether it has sent a request."""
WRITE_HIGH_BYTES = 4 * 1024 * 1024
MAX_ANSWER_BYTES = 2**31 - 1
AT_ONCE_BYTES = 64 * 1024 * 1024
"""An answer of up to this size is read into one buffer: the length that another gateway sends can be trusted."""
CORRELATION_ID_BYTES = 4

log = structlog.get_logger()

Encode = Callable[[int], list[Buffer]]
"""Encodes a request's frame with a correlation id."""
OnAnswer = Callable[[bytearray | None], None]
"""Gets the answer's frame without its length, or None if the peer is lost."""


class PeerLink(Carried):
    """One client's connection to one leader, or this gateway's own. A lost link stays lost."""

    def __init__(
        self,
        member: Member,
        client_address: str | None,
        read_buffer: memoryview,
        on_lost: Callable[[PeerLink], None],
        fallback: Address | None = None,
        security: PeerSecurity | None = None,
        cluster: str | None = None,
        principal: str | None = None,
    ) -> None:
        """Without a client, the link is for requests of this gateway itself.

        `fallback` is the address to connect to if the member has no [fleet.forwarding]. `cluster` is a cluster other
        than the fleet's own. `principal` is the client's, if rights depend on it.
        """
        self.member = member
        self.unanswered = False
        """The link has carried a request that has no answer, whose loss would not be noticed otherwise."""
        self.failure: str | None = None
        """Why the link was lost."""
        self._client_address = client_address
        self._fallback = fallback
        self._cluster = cluster
        self._principal = principal
        self._receiver = FrameReceiver(read_buffer, MAX_ANSWER_BYTES, AT_ONCE_BYTES)
        self._on_lost = on_lost
        self._security = security
        self._waiting: dict[int, OnAnswer] = {}
        self._last_id = 0
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[Buffer] = []
        self._may_send = asyncio.Event()
        self._lost = False
        self._silence_check: asyncio.TimerHandle | None = None
        """While something is sent or awaited."""
        self._opening = run_once("link to a gateway", self._open())

    # Sending

    @property
    def writable(self) -> bool:
        """The link is connected and has room for more."""
        return self._may_send.is_set() and not self._lost

    async def ready(self) -> bool:
        """Wait until the link is writable; False if it is lost."""
        await self._may_send.wait()
        return not self._lost

    def send(self, encode: Encode, on_answer: OnAnswer) -> None:
        if self._write(encode):
            self._waiting[self._last_id] = on_answer
        else:
            on_answer(None)

    def send_unanswered(self, encode: Encode) -> bool:
        """Send a request that has no answer; False if it cannot be sent."""
        self.unanswered = True
        return self._write(encode)

    async def flushed(self) -> None:
        """Return when nothing waits to be sent."""
        while not self._lost and self._transport is not None:
            if not self._outgoing and not self._transport.get_write_buffer_size():
                return
            await asyncio.sleep(0 if self._outgoing else SENT_CHECK_S)

    def _write(self, encode: Encode) -> bool:
        if self._lost or self._transport is None:
            return False
        self._last_id = (self._last_id + 1) % 2**31
        if not self._outgoing:  # requests that were read together are sent together
            self._loop.call_soon(self._flush)
        self._outgoing += encode(self._last_id)
        if self._silence_check is None:
            self._silence_check = self._loop.call_later(SILENCE_CHECK_S, self._check_silence)
        return True

    def _flush(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        if outgoing and self._transport is not None:
            self._transport.writelines(outgoing)

    def _check_silence(self) -> None:
        self._silence_check = None
        if self._lost or self._transport is None:
            return
        if is_silent(self._transport.get_extra_info("socket"), SILENCE_MS):
            self._end(f"it has acknowledged nothing for {SILENCE_MS / 1000:.0f} s")
        elif self._waiting or self._transport.get_write_buffer_size():
            self._silence_check = self._loop.call_later(SILENCE_CHECK_S, self._check_silence)

    def pause_writing(self) -> None:
        if not self._lost:  # after a loss, nothing would set it again
            self._may_send.clear()

    def resume_writing(self) -> None:
        self._may_send.set()

    # Opening and closing

    async def _open(self) -> None:
        try:
            address = self.member.forwarding or self._fallback
            if address is None:
                raise ConnectionError("it has no [fleet.forwarding]")
            if self._security is not None:
                await self._security.renew()
            async with asyncio.timeout(CONNECT_S):
                await self._loop.create_connection(self._socket_protocol, address.host, address.port)
        except (OSError, TimeoutError) as error:
            self._end(str(error) or type(error).__name__)
        except Exception as defect:  # a defect: nothing may wait for the link then
            self._end(repr(defect))
            raise

    def _socket_protocol(self) -> asyncio.BufferedProtocol:
        return self if self._security is None else self._security.secured(self, self._end, CONNECT_S)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop has its own transport class
        if self._lost:
            transport.abort()
            return
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        enable_keepalive(transport.get_extra_info("socket"))
        if self.member.forwarding is not None:
            transport.write(self._header(self._source(transport)))
        self._may_send.set()

    def _header(self, source: Endpoint) -> bytes:
        is_own = self._client_address is None
        if self._cluster is None and self._principal is None and not is_own:
            return encode_proxy_header(source)
        return encode_gateway_header(source, self._cluster, self._principal, is_own=is_own)

    def _source(self, transport: asyncio.Transport) -> Endpoint:
        if self._client_address is None:
            return Endpoint(*transport.get_extra_info("sockname")[:2])
        host, _, port = self._client_address.rpartition(":")
        return Endpoint(host, int(port or 0))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("closed by the other side" if exc is None else str(exc) or type(exc).__name__)

    def close(self, failure: str | None = None) -> None:
        self._opening.cancel()
        self._end(failure)

    def _end(self, failure: str | None = None) -> None:
        if self._lost:
            return
        self._lost = True
        self.failure = failure
        self._may_send.set()
        self._flush()
        self._receiver.clear()
        if self._silence_check is not None:
            self._silence_check.cancel()
        if self._transport is not None:
            limit_unacknowledged_time(self._transport.get_extra_info("socket"), SILENCE_MS)
            self._transport.close()
        waiting, self._waiting = self._waiting, {}
        for on_answer in waiting.values():
            on_answer(None)
        self._on_lost(self)

    # Answers

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        for frame in self._receiver.buffer_updated(nbytes):
            if self._lost:
                return
            on_answer = self._waiting.pop(int.from_bytes(frame[:CORRELATION_ID_BYTES], "big"), None)
            if on_answer is None:
                self._end("an answer that nobody has asked for")
                return
            on_answer(frame)


class Peers(FleetListener):
    """Opens the links of all clients of a cluster, and closes the links to gateways that are no longer members."""

    def __init__(
        self,
        fleet: ClusterFleet,
        open_listener: str | None = None,
        security: PeerSecurity | None = None,
        cluster: str | None = None,
    ) -> None:
        """`open_listener` is a listener without login; a gateway without [fleet.forwarding] gets requests there.

        With `security` the gateways use TLS between them. `cluster` is a cluster other than the fleet's own; such
        clusters are served where all gateways have [fleet.forwarding].
        """
        self._fleet = fleet
        self._open_listener = open_listener if cluster is None else None
        self._security = security
        self._cluster = cluster
        self._links: set[PeerLink] = set()
        self._failing: set[Member] = set()
        """Members whose failure was logged already; clients retry all the time."""
        fleet.subscribe(self)

    @cached_property
    def _read_buffer(self) -> memoryview:
        """Created on first use: in many clusters, no other gateway is asked."""
        return memoryview(bytearray(READ_BUFFER_BYTES))

    def open(
        self,
        member: Member,
        client_address: str | None,
        on_lost: Callable[[PeerLink], None],
        principal: str | None = None,
    ) -> PeerLink:
        def forget(link: PeerLink) -> None:
            self._links.discard(link)
            self._log_failure(link)
            on_lost(link)

        may_fall_back = client_address is None and self._security is None
        fallback = member.addresses.get(self._open_listener or "") if may_fall_back else None
        link = PeerLink(
            member, client_address, self._read_buffer, forget, fallback, self._security, self._cluster, principal
        )
        self._links.add(link)
        return link

    def _log_failure(self, link: PeerLink) -> None:
        """Log a failed member once: it is dead and soon evicted, or unreachable, which an operator has to know."""
        if link.failure is not None and link.member not in self._failing and self._fleet.is_member(link.member):
            self._failing.add(link.member)
            log.warning("connection to another gateway failed", node_id=link.member.node_id, error=link.failure)

    def is_member(self, member: Member) -> bool:
        """The gateway is alive, as far as is known, and still the same process."""
        return self._fleet.is_member(member)

    def leaders_changed(self) -> None:
        self._failing = {member for member in self._failing if self._fleet.is_member(member)}
        for link in tuple(self._links):
            if not self._fleet.is_member(link.member):
                link.close()
