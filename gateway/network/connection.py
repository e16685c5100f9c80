"""One client's TCP connection: bytes to frames, answers to bytes, back-pressure both ways."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Protocol, cast

import structlog

from gateway.config.gateway_config import FORWARDING_LISTENER
from gateway.config.listeners import Networks
from gateway.login.audit import LoginAudit
from gateway.login.certificate_names import CertificateNames
from gateway.login.session import MAX_FRAME_BYTES, Logins, LoginSession
from gateway.network.arrival import TOO_OFTEN, Arrival
from gateway.network.arrivals import Arrivals
from gateway.network.host import Host
from gateway.network.pipeline import Pipeline
from gateway.network.progress import Progress, is_behind, waits_for_client
from gateway.network.request_budget import RECEIVE_S
from gateway.network.socket_state import has_ended
from gateway.observability.logs import LINES_PER_S, SparseLog
from gateway.requests.cluster import Cluster
from gateway.requests.context import ANONYMOUS, GATEWAY, Client, Listener, Principal
from gateway.transport.carried import Carried
from gateway.transport.proxy import AwaitedProxyHeader
from protocol.framing import MAX_FRAMES, FrameReceiver
from protocol.kafka.buffers import Buffer
from protocol.proxy.header import MalformedProxyHeaderError, ProxyHeader

READ_BUFFER_BYTES = 256 * 1024
SHORT_READ_BYTES = 4_096
"""The size of a read before the login, while what is read has to wait, and while memory is short: then even a
connection that is about to be paused may read once."""
WRITE_HIGH_BYTES = 256 * 1024

log = SparseLog(structlog.get_logger(), lines=LINES_PER_S)


class Owner(Host, Protocol):
    """The server, as its connections know it."""

    read_buffer: memoryview
    arrivals: Arrivals
    audit: LoginAudit

    def opened(self, connection: KafkaConnection) -> bool: ...

    def closed(self, connection: KafkaConnection) -> None: ...

    def unread_changed(self, connection: KafkaConnection, size_bytes: int) -> None: ...


class KafkaConnection(Carried):
    """Reads frames for its pipeline, and writes the pipeline's answers."""

    def __init__(
        self,
        owner: Owner,
        listener: Listener,
        *,
        proxies: Networks | None = None,
        tls_at_proxy: CertificateNames | None = None,
        logins: Logins | None = None,
        answers_in_order: bool = True,
        is_new: bool = True,
    ) -> None:
        """With `proxies`, a PROXY header comes first, and only peers in these networks may send one.

        With `tls_at_proxy`, the header must say that the client uses TLS. With `logins`, the client must log in.
        With `is_new`, the connection counts for the quota of its address; a TLS connection was counted before.
        """
        self._owner = owner
        self.listener = listener
        self._proxy_header = None if proxies is None else AwaitedProxyHeader(proxies)
        self._tls_at_proxy = tls_at_proxy
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._client = Client("", close=self.end, incarnation=owner.dispatcher.own.cluster.fleet.incarnation)
        self._is_peer = listener.name == FORWARDING_LISTENER
        context = owner.dispatcher.context(self._client, listener, GATEWAY if self._is_peer else ANONYMOUS)
        login = None if logins is None else LoginSession(logins, owner.dispatcher, context)
        self.has_to_log_in = login is not None
        max_frame_bytes = owner.limits.max_request_bytes
        self._receiver = FrameReceiver(
            owner.read_buffer,
            min(MAX_FRAME_BYTES, max_frame_bytes) if self.has_to_log_in else max_frame_bytes,
            max_frames=MAX_FRAMES,
        )
        self._pipeline = Pipeline(owner, context, self, answers_in_order=answers_in_order, login=login)
        self._is_new = is_new and not self._is_peer
        self._arrival: Arrival | None = Arrival(owner.arrivals, self, self.end)
        """None when the client is let in."""
        self.accepts_answers = False
        """The connection is open, and its client reads."""
        self._write_paused = False
        self.is_reading = True
        self._cuts_soon = False
        """`_cut_more` will be called."""
        self._max_request_bytes = max_frame_bytes
        self._ended_by_client = False
        self._is_finishing = False
        """What the client sends is dropped: it has to send it again, to another gateway."""
        self.last_activity = self._loop.time()
        self._progress = Progress()

    # Opening

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop has its own transport class
        self._transport = transport
        self.accepts_answers = True
        peer = transport.get_extra_info("peername")
        self._client.address = f"{peer[0]}:{peer[1]}" if peer else "unknown"
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        if not self._owner.opened(self):
            self.end("too many connections")
        elif self._proxy_header is not None and (refusal := self._proxy_header.refusal(peer)) is not None:
            self.end(refusal)
        elif self._pipeline.memory.budget.exhausted:
            self._loop.call_soon(self.regulate_reading)  # reading begins after this call
        if self._proxy_header is None and self._connects_too_often():
            return
        if self.has_to_log_in and self._arrival is not None:
            self._arrival.end_after(self._owner.limits.login_timeout_ms / 1000, "no login in time")
        if self._proxy_header is None:
            self._arrive()

    def _connects_too_often(self) -> bool:
        """As in Kafka, the client gets no answer, and the connection is closed after a while (KIP-612)."""
        arrival = self._arrival if self._is_new and not self._is_closing else None
        if arrival is None or not arrival.connects_too_often(self._client.address):
            return False
        self._pipeline.ending = TOO_OFTEN
        self._loop.call_soon(self.regulate_reading)  # reading begins after this call
        return True

    def _arrive(self) -> None:
        if not self.has_to_log_in:
            self._is_let_in()
        elif self._arrival is not None:
            self._arrival.begin(self._client.address)

    def logged_in(self) -> None:
        self.has_to_log_in = False
        self._receiver.max_frame_bytes = self._max_request_bytes
        self._is_let_in()

    def limit_requests(self, size_bytes: int) -> None:
        self._max_request_bytes = min(size_bytes, self._owner.limits.max_request_bytes)
        if not self.has_to_log_in:
            self._receiver.max_frame_bytes = self._max_request_bytes

    def _is_let_in(self) -> None:
        """Or has disconnected."""
        if self._arrival is not None:
            self._arrival.is_over()
            self._arrival = None

    def become(self, principal: Principal, server_name: str | None, address: str) -> None:
        """Set the principal and the server name that TLS provided, here or at a load balancer."""
        self._pipeline.become(principal, self.listener.as_asked_for(server_name))
        if principal != ANONYMOUS:
            self._owner.audit.named(address, self.listener.name, principal.name)

    # Reading

    def get_buffer(self, sizehint: int) -> memoryview:
        buffer, budget = self._receiver.get_buffer(), self._pipeline.memory.budget
        waits_for_memory = budget.is_short and not budget.is_first(self)
        if self.has_to_log_in or waits_for_memory or self._pipeline.is_blocked:
            return buffer[:SHORT_READ_BYTES]
        return buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._transport is None or self._transport.is_closing() or self._is_finishing:
            return
        self.last_activity = self._loop.time()
        self._client.arrived_s = time.monotonic()
        self._owner.metrics.bytes_in.value += nbytes
        self._pipeline.admission.usage.bytes_in += nbytes
        self._pipeline.memory.received(nbytes)
        if self._proxy_header is not None:
            self._take_proxy_header(self._proxy_header, self._owner.read_buffer[:nbytes])
        else:
            # A malformed frame ends the connection in its turn, after the valid requests before it.
            self._pipeline.take(self._receiver.buffer_updated(nbytes))
        self._pipeline.run()

    def _take_proxy_header(self, awaited: AwaitedProxyHeader, data: memoryview) -> None:
        """Take the PROXY header when it is complete. Frames may follow it in the same bytes."""
        try:
            found = awaited.take(data)
        except MalformedProxyHeaderError as error:
            self.end("no PROXY header", error=str(error))
            return
        if found is None:
            return
        self._proxy_header = None
        self._pipeline.memory.released(found.header.size_bytes)
        if found.header.source is not None:
            self._client.address = f"{found.header.source.host}:{found.header.source.port}"
        if self._takes(found.header):
            self._pipeline.take(self._receiver.cut(memoryview(found.rest)))

    def _takes(self, header: ProxyHeader) -> bool:
        """Check how often the address connects, and take what the header says of the client."""
        if header.source is not None and self._connects_too_often():
            return False
        if self._is_peer:
            self._pipeline.serve_peer(header)
        elif self._tls_at_proxy is not None:
            tls = header.tls
            principal = None if tls is None else self._tls_at_proxy.principal_at_proxy(tls.common_name)
            if principal is None:
                self.end("no TLS" if tls is None else "client certificate not accepted")
                return False
            self.become(principal, header.authority, self._client.address)
        self._arrive()
        return not self._is_closing

    def regulate_reading(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        want = not (self._pipeline.has_backlog or self._pipeline.ending or self._has_enough)
        if self._is_finishing:  # with unread data, the system would reset the connection, and discard the answers
            want = True
        elif want:  # the header of another gateway says which budget counts
            awaits_gateway = self._is_peer and self._proxy_header is not None
            want = awaits_gateway or self._pipeline.memory.budget.may_read(self)
        else:
            self._pipeline.memory.budget.forget(self)  # others may read while this connection works
        if want == self.is_reading:
            return
        self.is_reading = want
        if want:
            self._progress.resume(self._loop.time())
            self._transport.resume_reading()
        else:
            self._progress.pause(self._loop.time())
            self._transport.pause_reading()

    @property
    def _has_enough(self) -> bool:
        """What has come of the next requests has to begin, or to be cut into requests, before more is read."""
        receiver = self._receiver
        if not receiver.mid_frame:
            return False
        if receiver.has_uncut:
            if not self._cuts_soon:
                self._cuts_soon = True
                self._loop.call_soon(self._cut_more)
            return True
        return self._pipeline.is_blocked

    def _cut_more(self) -> None:
        self._cuts_soon = False
        if self._is_closing or self._is_finishing:
            return
        if self._receiver.has_uncut and not (self._pipeline.has_backlog or self._pipeline.ending):
            self._pipeline.take(self._receiver.cut(memoryview(b"")))
            self._pipeline.run()

    def look_for_end(self) -> None:
        """While its further requests are not read, nothing tells that the client has gone: its fetch would wait on."""
        if self.is_reading or self._client.has_ended or not self._client.waits or self._transport is None:
            return
        if has_ended(self._transport):
            self._client.ends()

    def holds_for_client(self, now_s: float) -> int:
        """The bytes of requests that wait for their own client, longer than others should have to wait for memory.

        To be called again and again: what has come of a request is compared with what had come before.
        """
        transport, pipeline = self._transport, self._pipeline
        if transport is None or transport.is_closing():
            return 0
        waits = self._progress.is_slow(now_s, self._receiver.part, lambda: is_behind(transport))
        if self.last_activity < now_s - RECEIVE_S:
            waits = waits or waits_for_client(pipeline, self._receiver, transport)
        return pipeline.memory.request_bytes if waits else 0

    @property
    def lacks_memory(self) -> bool:
        """No more of its requests is received."""
        return self._pipeline.memory.budget.is_short

    # Writing

    def write(self, buffers: list[Buffer]) -> None:
        if self._transport is None:
            return
        size_bytes = sum(map(len, buffers))
        self._owner.metrics.bytes_out.value += size_bytes
        self._pipeline.admission.usage.bytes_out += size_bytes
        if len(buffers) == 1:
            self._transport.write(buffers[0])
        elif buffers:
            self._transport.writelines(buffers)
        if self._write_paused:  # answers to requests that were already being handled
            self._owner.unread_changed(self, self.unread_bytes)
        if self._ended_by_client and self.idle and self._pipeline.ending is None:
            self.end("end of stream")

    def progressed(self) -> None:
        if self.has_to_log_in and self._arrival is not None:
            self._arrival.holds(self._pipeline.memory.request_bytes)
        self.regulate_reading()

    def pause_writing(self) -> None:
        # While a client does not read, none of its further requests run, so that the memory of its answers stays
        # bounded.
        self._write_paused, self.accepts_answers = True, False
        self._owner.unread_changed(self, self.unread_bytes)
        self.regulate_reading()

    def resume_writing(self) -> None:
        self._write_paused, self.accepts_answers = False, self._transport is not None
        self._owner.unread_changed(self, 0)
        self._pipeline.run()

    @property
    def unread_bytes(self) -> int:
        """Of answers that the client has not received."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    # Closing

    @property
    def cluster(self) -> Cluster:
        """The cluster that this connection is for."""
        return self._pipeline.admission.served.cluster

    @property
    def _is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    @property
    def idle(self) -> bool:
        """No request of this client waits or is being handled."""
        return self._pipeline.idle and not self._receiver.has_uncut

    @property
    def mid_frame(self) -> bool:
        """A part of a request has arrived, or a part of the PROXY header before the first request."""
        return (self._proxy_header is not None and self._proxy_header.begun) or self._receiver.mid_frame

    def close(self, reason: str, **facts: Any) -> None:
        if self._transport is not None and self._transport.is_closing():
            self._transport.abort()  # the client does not even read its last answers
        else:
            self.end(reason, **facts)

    def finish(self, reason: str) -> None:
        """Close the connection when the requests that have begun are answered, and begin no others."""
        self._pipeline.finish(reason)
        if self._pipeline.idle:  # also a client that is muted, or does not read: what it has sent has not begun
            self.end(reason)
        else:
            self._is_finishing = True
            self.regulate_reading()

    def abort(self, reason: str) -> None:
        """Close the connection and discard the answers that the client has not read."""
        self.end(reason)
        if self._transport is not None:
            self._transport.abort()

    def end(self, reason: str, **facts: Any) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._owner.metrics.connections_closed.labels(reason).inc()
        log.info("connection closed", reason=reason, address=self._client.address, **facts)
        self._pipeline.drop_backlog()
        self._pipeline.memory.budget.forget(self)
        self._transport.close()

    def eof_received(self) -> bool:
        """A client that has sent all its requests may still want the answers. True keeps our side open until they are
        written."""
        if self.idle:
            return False
        self._ended_by_client = True
        self._loop.call_soon(self._client.ends)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.accepts_answers = False
        self.has_to_log_in = False
        self._is_let_in()
        self._owner.unread_changed(self, 0)
        self._receiver.clear()
        self._pipeline.memory.budget.forget(self)
        self._pipeline.close()
        self._owner.closed(self)
        # The client would keep this connection in memory until the garbage collector runs.
        self._client.close = lambda reason: None
