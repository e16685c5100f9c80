"""A flood of one connection, or of the connections of one cluster, does not block others."""

from __future__ import annotations

import asyncio
from typing import cast

from gateway.dispatch import ServedCluster
from gateway.network.connection import KafkaConnection, Owner
from gateway.network.turns import SLICE_S, Turns
from gateway.requests.call import Call
from gateway.requests.context import Listener, Principal
from gateway.requests.reply import Reply
from tests.unit.gateway.network.connection_harness import (
    FakeDispatcher,
    FakeServer,
    FakeTransport,
    cluster,
    frame,
    settle,
)

REQUEST_S = 0.001
SLICE = int(SLICE_S / REQUEST_S)
FLOOD, QUIET = "flood", "quiet"


class Entrance:
    """A cluster for each listener."""

    def __init__(self) -> None:
        self.served = {name: ServedCluster(cluster()) for name in (FLOOD, QUIET)}

    async def enter(
        self, listener: Listener, principal: Principal, asked: str | None, *, is_own_user: bool = False
    ) -> ServedCluster:
        return self.served[listener.name]

    async def home(self, listener: Listener, user: str) -> ServedCluster | None:
        return None


class Busy(FakeDispatcher):
    """The event loop is busy with each request."""

    now_s = 0.0

    def handle(self, call: Call) -> Reply:
        self.now_s += REQUEST_S
        return super().handle(call)


class Scene:
    def __init__(self, *, by_cluster: bool) -> None:
        self.server = FakeServer()
        self.busy = self.server.dispatcher = Busy(Entrance() if by_cluster else None)
        self.server.turns = Turns(by_cluster=by_cluster, now_s=lambda: self.busy.now_s)

    async def connect(self, name: str) -> Peer:
        peer = Peer(self, name)
        peer.feed("n0")  # to be admitted
        await settle()
        assert peer.answered == 1
        return peer


class Peer:
    def __init__(self, scene: Scene, name: str) -> None:
        self.connection = KafkaConnection(cast(Owner, scene.server), Listener(name))
        self.transport = FakeTransport()
        self.connection.connection_made(self.transport)

    def feed(self, *requests: str) -> None:
        data = b"".join(map(frame, requests))
        self.connection.get_buffer(-1)[: len(data)] = data
        self.connection.buffer_updated(len(data))

    @property
    def answered(self) -> int:
        return self.transport.written.count(b";")


async def turn() -> None:
    await asyncio.sleep(0)


async def test_a_connection_that_asks_for_much_lets_the_others_ask() -> None:
    scene = Scene(by_cluster=False)
    flood, quiet = await scene.connect(FLOOD), await scene.connect(QUIET)
    requests = [f"n{number}" for number in range(1, 100)]
    flood.feed(*requests)
    assert 0 < flood.answered <= SLICE + 1
    assert not flood.transport.reading  # until it has its responses
    quiet.feed("n1")
    assert quiet.answered == 2
    while flood.answered < 100:
        before = flood.answered
        await turn()
        assert before < flood.answered <= before + SLICE + 1
    assert flood.transport.written == b"".join(b"%d;" % number for number in range(100)) and flood.transport.reading


async def test_the_connections_of_a_cluster_share_its_slice() -> None:
    scene = Scene(by_cluster=True)
    floods = [await scene.connect(FLOOD) for _ in range(50)]
    quiet = await scene.connect(QUIET)
    for each in floods:
        each.feed("n1", "n2")
    assert sum(each.answered - 1 for each in floods) <= SLICE + 2
    for number in range(1, 5):
        began_s = scene.busy.now_s
        quiet.feed(f"n{number}")
        assert scene.busy.now_s == began_s + REQUEST_S and quiet.answered == 1 + number
        await turn()
        assert scene.busy.now_s <= began_s + 3 * SLICE_S  # a turn of the loop: the time that others wait
    for _ in range(100):
        await turn()
    assert {each.answered for each in floods} == {3}, "nobody is forgotten"


async def test_alone_a_cluster_gets_all_turns() -> None:
    scene = Scene(by_cluster=True)
    flood = await scene.connect(FLOOD)
    flood.feed(*(f"n{number}" for number in range(1, 1 + 4 * SLICE)))
    for _ in range(4):
        await turn()
    assert flood.answered == 1 + 4 * SLICE


async def test_a_client_that_goes_while_it_waits_is_forgotten() -> None:
    scene = Scene(by_cluster=True)
    flood, other = await scene.connect(FLOOD), await scene.connect(FLOOD)
    flood.feed(*(f"n{number}" for number in range(1, 50)))
    other.feed("n1")
    begun = len(scene.busy.begun)
    flood.connection.connection_lost(None)
    await settle()
    assert len(scene.busy.begun) == begun + 1 and other.answered == 2


async def test_a_defect_of_one_does_not_stop_the_others() -> None:
    turns, ran = Turns(by_cluster=True), []

    def fail() -> None:
        raise RuntimeError("defect")

    seen: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context["exception"]))
    turns.wait(1, fail)
    turns.wait(1, lambda: ran.append(1))
    turns.wait(2, lambda: ran.append(2))
    await settle()
    assert sorted(ran) == [1, 2] and len(seen) == 1
