"""A connection with fakes around it: its server, its transport, and a dispatcher that the test decides for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from gateway.config.limits import Limits
from gateway.config.listeners import Networks
from gateway.dispatch import API_VERSIONS, Entrance, ServedCluster, UnsupportedRequest
from gateway.login.audit import LoginAudit
from gateway.network.arrivals import Arrivals
from gateway.network.connection import READ_BUFFER_BYTES, KafkaConnection, Owner
from gateway.network.request_budget import RequestBudget
from gateway.network.turns import Turns
from gateway.observability.metrics import Metrics, Tally
from gateway.requests.call import Call, ClosesConnection
from gateway.requests.cluster import Cluster, Unread, Usage
from gateway.requests.context import ANONYMOUS, Client, Listener, Principal, RequestContext
from gateway.requests.reply import Reply
from protocol.kafka.buffers import Buffer
from protocol.kafka.codec import MalformedRequest


def cluster(**limits: int) -> Cluster:
    config = SimpleNamespace(limits=Limits(**limits))
    fleet = SimpleNamespace(incarnation="")
    return cast(Cluster, SimpleNamespace(config=config, unread=Unread(), usage=Usage(), fleet=fleet))


LISTENER = Listener("")
ALONE = (b"n", b"a")
PIPELINED = replace(API_VERSIONS, pipelined=True)

class FakeDispatcher:
    """A frame is a letter that says how it is handled, then a number; the answer repeats the number.

    n now, f later, a later, w later and without the request, s behind a preparation, p later and behind a preparation,
    0 no answer; m malformed, c closes, d a defect. All but n and a are pipelined and may be expected, each behind any
    other. A
    frame that ends with L is decoded in a thread, an answer that ends with E is encoded in one.
    """

    def __init__(self, entrance: Entrance | None = None) -> None:
        self.own = ServedCluster(cluster())
        self.entrance = entrance
        self.begun: list[str] = []
        self.expected: list[str] = []
        self.unanswered: list[str] = []
        """Requests that were charged after their client has disconnected."""
        self.client: Client | None = None
        self.principal = ANONYMOUS
        self.closed = 0
        self.futures: dict[str, asyncio.Future[Any]] = {}
        self.serial: dict[str, asyncio.Future[Any]] = {}

    def context(
        self, client: Client, listener: Listener, principal: Principal = ANONYMOUS, served: ServedCluster | None = None
    ) -> RequestContext:
        self.client, self.principal = client, principal
        return RequestContext(client, listener, (served or self.own).cluster, principal)

    def handler(self, context: RequestContext, served: ServedCluster | None = None) -> FakeDispatcher:
        return self

    def close(self) -> None:
        self.closed += 1

    def begin(self, frame: bytearray, context: RequestContext) -> Call:
        if not frame or frame[:1] == b"m":
            raise MalformedRequest("m")
        if frame[:1] == b"u":
            raise UnsupportedRequest("u")
        api = API_VERSIONS if frame.startswith(ALONE) else PIPELINED
        return Call(api, 0, 0, None, cast(Any, frame.decode(errors="replace")), context)

    def is_large(self, frame: bytearray) -> bool:
        return frame[-1:] == b"L"

    def is_large_answer(self, call: Call, response: Any) -> bool:
        return str(response).endswith("E")

    def complete(self, call: Call, response: Any) -> Any:
        return response

    def charge_unanswered(self, call: Call, response: Any = None) -> None:
        self.unanswered.append(cast(str, call.request)[1:])

    def encode(self, call: Call, response: Any) -> list[Buffer]:
        if response == "badE":
            raise RuntimeError("cannot be encoded")
        return [] if response is None else [f"{response};".encode()]

    def is_pipelined(self, frame: bytearray, before: object) -> bool:
        return not frame.startswith(ALONE)

    def may_be_expected(self, frame: bytearray, before: object) -> bool:
        return not frame.startswith(ALONE)

    def expect(self, call: Call) -> None:
        self.expected.append(cast(str, call.request)[1:].rstrip())

    def handle_known(self, frame: bytearray, context: RequestContext, place: object) -> bool:
        return False

    def handle(self, call: Call) -> Reply:
        text = cast(str, call.request)
        kind, number = text[0], text[1:].rstrip()
        self.begun.append(number)
        if kind in "sp":
            return Reply.after(self._serially(kind, number))
        if kind in "fwa":
            future = self.futures[number] = asyncio.get_running_loop().create_future()
            reply = Reply.later(future)
            reply.needs_request = kind != "w"
            return reply
        if kind == "c":
            raise ClosesConnection("closes")
        if kind == "d":
            raise RuntimeError("defect")
        return Reply(None if kind == "0" else cast(Any, number))

    async def _serially(self, kind: str, number: str) -> Reply:
        self.serial[number] = asyncio.get_running_loop().create_future()
        await self.serial[number]
        if kind == "s":
            return Reply(cast(Any, number))
        self.futures[number] = asyncio.get_running_loop().create_future()
        return Reply.later(self.futures[number])


class FakeTransport(asyncio.Transport):
    def __init__(self, peer: tuple[str, int] | None = ("127.0.0.1", 5)) -> None:
        self.info: dict[str, Any] = {"peername": peer}
        super().__init__(self.info)
        self.written = bytearray()
        self.reading, self.closing, self.aborted = True, False, False

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.written += data

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        for data in list_of_data:
            self.write(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 1_000

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True


class FakeServer:
    def __init__(self, **limits: int) -> None:
        self.dispatcher = FakeDispatcher()
        self.limits = Limits(**limits)
        self.metrics = Metrics()
        self.unread = Unread()
        self.requests = RequestBudget(self.limits.requests_budget_bytes, self.metrics.request_bytes, self._regulate_all)
        self.peer_requests = RequestBudget(self.limits.requests_budget_bytes, Tally(), self._regulate_all)
        self.gateway_requests = RequestBudget(self.limits.requests_budget_bytes, Tally(), self._regulate_all)
        self.turns = Turns(by_cluster=False, now_s=lambda: 0.0)  # no request takes time
        self.read_buffer = memoryview(bytearray(READ_BUFFER_BYTES))
        self.threads = ThreadPoolExecutor(2)
        self.audit = LoginAudit(self.metrics)
        self.arrivals = Arrivals(self.limits, self.metrics, self.turns)
        self.connections: set[KafkaConnection] = set()
        self.shares: dict[int, RequestBudget] = {}

    def requests_of(self, served: ServedCluster) -> RequestBudget:
        share = self.shares.get(id(served.cluster))
        if share is None:
            budget_bytes = served.cluster.config.limits.requests_budget_bytes
            share = RequestBudget(budget_bytes, Tally(), self._regulate_all, self.requests)
            self.shares[id(served.cluster)] = share
        return share

    def opened(self, connection: KafkaConnection) -> bool:
        self.connections.add(connection)
        return len(self.connections) <= self.limits.max_connections

    def _regulate_all(self) -> None:
        for connection in self.connections:
            connection.regulate_reading()

    def unread_changed(self, connection: KafkaConnection, size_bytes: int) -> None:
        self.unread.size_bytes = size_bytes

    def closed(self, connection: KafkaConnection) -> None:
        self.connections.discard(connection)


class Conversation:
    """A connection with a fake at each end."""

    def __init__(self, *, proxies: Networks | None = None, answers_in_order: bool = True, **limits: int) -> None:
        self.server = FakeServer(**limits)
        self.connection, self.transport = self.connect(proxies=proxies, answers_in_order=answers_in_order)

    def connect(self, listener: Listener = LISTENER, **options: Any) -> tuple[KafkaConnection, FakeTransport]:
        connection, transport = KafkaConnection(cast(Owner, self.server), listener, **options), FakeTransport()
        connection.connection_made(transport)
        return connection, transport

    @property
    def dispatcher(self) -> FakeDispatcher:
        return self.server.dispatcher

    @property
    def answers(self) -> list[str]:
        return self.transport.written.decode().split(";")[:-1]

    def feed(self, data: bytes, connection: KafkaConnection | None = None) -> None:
        """As a transport does: into the buffer that it is given, as much as fits."""
        connection = connection or self.connection
        while data and not self.transport.closing:
            buffer = connection.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            data = data[size:]
            connection.buffer_updated(size)

    def lose(self) -> None:
        self.connection.connection_lost(None)


def frame(text: str, size: int = 0) -> bytes:
    body = text.encode().ljust(size)
    return len(body).to_bytes(4, "big") + body


