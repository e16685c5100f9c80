"""A flood of one connection, or of the connections of one cluster, does not block others."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from gateway.dispatch import ServedCluster
from gateway.network.connection import KafkaConnection, Owner
from gateway.network.turns import (
    CLUSTER_SLICE_S,
    SHARED_FOR_S,
    SHARED_SLICE_S,
    SLICE_S,
    TURN_S,
    UNAUTHENTICATED,
    Turns,
)
from gateway.requests.call import Call
from gateway.requests.context import Listener, Principal
from gateway.requests.reply import Reply
from protocol.kafka.buffers import Buffer
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.network.connection_harness import FakeDispatcher, FakeServer, FakeTransport, cluster, frame

REQUEST_S = 0.00005
SLICE, CLUSTER_SLICE, SHARED_SLICE, TURN = (
    round(each / REQUEST_S) for each in (SLICE_S, CLUSTER_SLICE_S, SHARED_SLICE_S, TURN_S)
)
"""Requests."""
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

    now_s = encoding_s = 0.0

    def encode(self, call: Call, response: Any) -> list[Buffer]:
        self.now_s += self.encoding_s
        return super().encode(call, response)

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
        await let_callbacks_run()
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
    count = 5 * SLICE
    requests = [f"n{number}" for number in range(1, count)]
    flood.feed(*requests)
    assert 0 < flood.answered <= SLICE + 2  # the first, and one that began within the slice
    assert not flood.transport.reading  # until it has its responses
    quiet.feed("n1")
    assert quiet.answered == 2
    while flood.answered < count:
        before = flood.answered
        await turn()
        assert before < flood.answered <= before + SLICE + 1
    assert flood.transport.written == b"".join(b"%d;" % number for number in range(count)) and flood.transport.reading


async def test_the_connections_of_all_clients_share_a_turn() -> None:
    scene = Scene(by_cluster=False)
    floods = [await scene.connect(str(number)) for number in range(50)]
    for flood in floods:
        flood.feed(*(["n0"] * SLICE))  # all in one turn of the event loop
    in_a_turn = [sum(flood.answered for flood in floods)]
    while in_a_turn[-1]:
        before = sum(flood.answered for flood in floods)
        await turn()
        in_a_turn.append(sum(flood.answered for flood in floods) - before)
    assert max(in_a_turn) <= TURN + SLICE + len(floods)
    assert sum(in_a_turn) == len(floods) * (SLICE + 1)  # connecting is one, too


async def test_the_connections_of_a_cluster_share_its_slice() -> None:
    scene = Scene(by_cluster=True)
    floods = [await scene.connect(FLOOD) for _ in range(50)]
    quiet = await scene.connect(QUIET)
    for each in floods:
        each.feed("n1", "n2")
    assert sum(each.answered - 1 for each in floods) <= CLUSTER_SLICE + 1  # one began within the slice
    for number in range(1, 5):
        began_s = scene.busy.now_s
        quiet.feed(f"n{number}")
        assert scene.busy.now_s == began_s + REQUEST_S and quiet.answered == 1 + number
        await turn()
        # A turn of the loop: that is how long the others wait. One request may end after the slice.
        assert scene.busy.now_s <= began_s + REQUEST_S + SHARED_SLICE_S + REQUEST_S
    for _ in range(100):
        await turn()
    assert {each.answered for each in floods} == {3}, "nobody is forgotten"


async def test_answers_that_come_later_take_turns() -> None:
    scene = Scene(by_cluster=True)
    floods = [await scene.connect(FLOOD) for _ in range(50)]
    for number, each in enumerate(floods):
        each.feed(f"f{number}")
    for _ in range(20):
        await turn()
    scene.busy.encoding_s = REQUEST_S
    for future in scene.busy.futures.values():
        future.set_result("1")
    answered = []
    while sum(each.answered for each in floods) < 100:
        began_s = scene.busy.now_s
        await turn()
        assert scene.busy.now_s <= began_s + CLUSTER_SLICE_S + 2 * REQUEST_S
        answered.append(scene.busy.now_s > began_s)
    assert sum(answered) >= 50 / (CLUSTER_SLICE + 2)


async def test_a_client_that_goes_before_its_answer_has_its_turn() -> None:
    scene = Scene(by_cluster=True)
    flood = await scene.connect(FLOOD)
    flood.feed("f1")
    await turn()
    scene.server.turns.ran(id(flood.connection.cluster), CLUSTER_SLICE_S)
    scene.busy.futures["1"].set_result("1")
    flood.connection.connection_lost(None)
    await let_callbacks_run()
    assert flood.answered == 1


async def test_alone_a_cluster_gets_all_turns() -> None:
    scene = Scene(by_cluster=True)
    flood = await scene.connect(FLOOD)
    flood.feed(*(f"n{number}" for number in range(1, 1 + 4 * CLUSTER_SLICE)))
    for _ in range(4):
        await turn()
    assert flood.answered == 1 + 4 * CLUSTER_SLICE


async def test_many_clusters_that_flood_share_a_slice() -> None:
    turns, now_s, ran = Turns(by_cluster=True, now_s=lambda: now_s), 0.0, [0] * 20

    def flood(number: int) -> None:
        nonlocal now_s
        now_s += REQUEST_S
        ran[number - 1] += 1
        turns.ran(number, REQUEST_S)
        turns.wait(number, lambda _: flood(number))

    for each in range(1, 1 + len(ran)):
        flood(each)
    for number in range(10):
        await turn()
        assert {*ran} == {2 + number}, "one request of each in a turn"


async def test_turns_are_shorter_while_two_clusters_ask() -> None:
    scene = Scene(by_cluster=True)
    flood, quiet = await scene.connect(FLOOD), await scene.connect(QUIET)
    flood.feed("n1")
    scene.busy.now_s += SHARED_FOR_S
    flood.feed(*(f"n{number}" for number in range(2, 80 * CLUSTER_SLICE)))

    async def in_a_turn() -> int:
        before = flood.answered
        await turn()
        return flood.answered - before

    assert await in_a_turn() == CLUSTER_SLICE, "the other one has not asked lately"
    quiet.feed("n1")
    assert quiet.answered == 2
    assert await in_a_turn() == SHARED_SLICE
    began_s = scene.busy.now_s
    while scene.busy.now_s < began_s + SHARED_FOR_S - SHARED_SLICE_S:
        assert await in_a_turn() == SHARED_SLICE
    await in_a_turn()
    assert await in_a_turn() == CLUSTER_SLICE


async def test_a_client_that_goes_while_it_waits_is_forgotten() -> None:
    scene = Scene(by_cluster=True)
    flood, other = await scene.connect(FLOOD), await scene.connect(FLOOD)
    flood.feed(*(f"n{number}" for number in range(1, 50)))
    other.feed("n1")
    begun = len(scene.busy.begun)
    flood.connection.connection_lost(None)
    await let_callbacks_run()
    assert len(scene.busy.begun) == begun + 1 and other.answered == 2


async def test_a_defect_of_one_does_not_stop_the_others() -> None:
    turns, ran = Turns(by_cluster=True), []

    def fail(_: float) -> None:
        raise RuntimeError("defect")

    seen: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context["exception"]))
    turns.wait(1, fail)
    turns.wait(1, lambda _: ran.append(1))
    turns.wait(2, lambda _: ran.append(2))
    await let_callbacks_run()
    assert sorted(ran) == [1, 2] and len(seen) == 1


async def test_unauthenticated_clients_share_a_slice_and_take_it_from_no_cluster() -> None:
    """With one cluster, too: its own connections are bounded one by one."""
    for by_cluster in (True, False):
        scene = Scene(by_cluster=by_cluster)
        turns = scene.server.turns
        turns.ran(UNAUTHENTICATED, SLICE_S)
        assert turns.left_s(UNAUTHENTICATED) == 0
        assert turns.left_s(1) == (CLUSTER_SLICE_S if by_cluster else SLICE_S)
        ran: list[float] = []
        turns.wait(UNAUTHENTICATED, ran.append)
        assert ran == []
        await turn()
        assert ran == [turns.left_s(1)]
        await turn()
        assert turns.left_s(UNAUTHENTICATED) == ran[0]


async def test_time_before_the_admission_counts_for_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(by_cluster=True)
    counted: list[int] = []
    monkeypatch.setattr(scene.server.turns, "ran", lambda cluster, _: counted.append(cluster))
    quiet = Peer(scene, QUIET)
    quiet.feed("n1")
    await let_callbacks_run()
    assert quiet.answered == 1
    assert counted == [UNAUTHENTICATED, id(quiet.connection.cluster), UNAUTHENTICATED]  # the admission runs the request


async def test_requests_that_follow_an_answer_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(by_cluster=True)
    peer = await scene.connect(FLOOD)
    peer.feed("f1", "n1", "n2", "n3")
    await let_callbacks_run()
    turns, counted_s = scene.server.turns, 0.0
    ran = turns.ran

    def counting(cluster: int, seconds: float) -> None:
        nonlocal counted_s
        counted_s += seconds
        ran(cluster, seconds)

    monkeypatch.setattr(turns, "ran", counting)
    began_s = scene.busy.now_s
    scene.busy.futures["1"].set_result("1")
    await let_callbacks_run()
    assert peer.answered == 5
    assert counted_s == pytest.approx(scene.busy.now_s - began_s) == pytest.approx(3 * REQUEST_S)
