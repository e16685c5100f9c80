"""Gateways change a topic one after the other, in the order of their requests in the fleet's log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import cast

import pytest

from coordinator.fleet.messages import (
    Goodbye,
    LogPosition,
    Message,
    TopicTurn,
    TopicTurnEnd,
    decode_message,
    encode_message,
)
from gateway.fleet import topic_turns
from gateway.fleet.cluster_view import ClusterView
from gateway.fleet.fleet import Fleet
from gateway.fleet.fleet_log import FleetLog
from gateway.fleet.listener import FleetListener
from gateway.fleet.topic_turns import TopicTurns
from gateway.pulsar.errors import RequestTimeoutError
from tests.unit.gateway.fleet.fleet_scene import OWN, fleet_of, member_of

OTHER = "b"


class FakeLog:
    """What is sent waits in `sent` until the test stores it, or loses it."""

    def __init__(self) -> None:
        self.writable = True
        self.sent: list[Message] = []

    def send(self, message: Message) -> None:
        self.sent.append(decode_message(encode_message(message)))


class Scene(FleetListener):
    """Two gateways with one log."""

    def __init__(self, joined: tuple[str, ...] = (OWN, OTHER)) -> None:
        members = [member_of(name, number) for number, name in enumerate(joined)]
        self.fleets = {name: fleet_of(members, held=name in joined, own=name) for name in (OWN, OTHER)}
        self.logs = {name: FakeLog() for name in (OWN, OTHER)}
        self.free: list[str] = []
        self.positions: Iterator[int] = iter(range(2, 1_000))
        for name, fleet in self.fleets.items():
            assert fleet._membership is not None
            fleet._log = cast(FleetLog, self.logs[name])
            fleet._turns = TopicTurns(fleet._membership, fleet._log)
        self.fleets[OTHER].subscribe(self)

    def topic_turn_ended(self, topic: str) -> None:
        self.free.append(topic)

    def store(self, message: Message) -> None:
        position = LogPosition(1, next(self.positions))
        for fleet in self.fleets.values():
            fleet._read(position, message)

    def store_all(self, name: str) -> list[Message]:
        sent, self.logs[name].sent = self.logs[name].sent, []
        for message in sent:
            self.store(message)
        return sent

    async def exchange(self) -> list[Message]:
        """The gateways hand over partitions, and read what both have written."""
        releasing = [asyncio.create_task(fleet._keep_releasing()) for fleet in self.fleets.values()]
        stored: list[Message] = []
        for _ in range(10):
            for name in self.fleets:
                stored += self.store_all(name)
            await asyncio.sleep(0.002)
        for task in releasing:
            task.cancel()
        return stored

    def join(self) -> None:
        self.fleets[OTHER]._tick()
        self.store_all(OTHER)

    async def change(self, name: str, topic: str = "t") -> Change:
        change = Change(self.fleets[name], topic)
        await turns()
        return change


class Change:
    def __init__(self, fleet: Fleet, topic: str) -> None:
        self.begun = False
        self.may_end = asyncio.Event()
        self.task = asyncio.create_task(self._run(fleet, topic))

    async def _run(self, fleet: Fleet, topic: str) -> None:
        async with fleet.topic_turn(topic):
            self.begun = True
            await self.may_end.wait()

    async def end(self) -> None:
        self.may_end.set()
        async with asyncio.timeout(5):
            await self.task


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def scene() -> Scene:
    return Scene()


async def test_one_after_the_other(scene: Scene) -> None:
    first, second = await scene.change(OWN), await scene.change(OTHER)
    assert not first.begun and not second.begun, "the log has neither"
    scene.store_all(OTHER)
    scene.store_all(OWN)
    await turns()
    assert (first.begun, second.begun) == (False, True)
    await second.end()
    assert not first.begun
    scene.store_all(OTHER)
    await turns()
    assert first.begun
    await first.end()
    assert scene.free == ["t"]
    scene.store_all(OWN)
    assert scene.free == ["t", "t"]
    assert not scene.logs[OWN].sent and not scene.logs[OTHER].sent


async def test_changes_of_other_topics_do_not_wait(scene: Scene) -> None:
    changes = [await scene.change(OWN, "t"), await scene.change(OTHER, "u")]
    scene.store_all(OWN)
    scene.store_all(OTHER)
    await turns()
    assert [change.begun for change in changes] == [True, True]
    for change in changes:
        await change.end()


async def test_a_turn_ends_with_its_gateway(scene: Scene) -> None:
    scene.store(TopicTurn(topic="t", request_id="1", incarnation=OTHER))
    waiting = await scene.change(OWN)
    scene.store_all(OWN)
    await turns()
    assert not waiting.begun
    scene.store(Goodbye(node_id=1, incarnation=OTHER))
    await turns()
    assert waiting.begun and scene.free == ["t"]
    await waiting.end()


async def test_requests_of_former_members_are_void(scene: Scene) -> None:
    scene.store(TopicTurn(topic="t", request_id="1", incarnation="gone"))
    change = await scene.change(OWN)
    scene.store_all(OWN)
    await turns()
    assert change.begun
    await change.end()


async def test_it_does_not_wait_for_ever(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a request that was given up takes no turn."""
    monkeypatch.setattr(topic_turns, "TURN_S", 0.01)
    scene.store(TopicTurn(topic="t", request_id="1", incarnation=OTHER))
    waiting = await scene.change(OWN)
    with pytest.raises(RequestTimeoutError):
        await waiting.end()
    asked, given_up = scene.store_all(OWN) + scene.store_all(OWN)
    assert isinstance(asked, TopicTurn) and isinstance(given_up, TopicTurnEnd)
    assert asked.request_id == given_up.request_id


@pytest.mark.parametrize("lost", [TopicTurn, TopicTurnEnd])
async def test_what_the_log_lost_is_sent_again(
    scene: Scene, lost: type[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_turns, "SEND_AGAIN_S", 0)
    own, change = scene.fleets[OWN]._turns, await scene.change(OWN)
    assert own is not None
    for kind in (TopicTurn, TopicTurnEnd):
        if kind is lost:
            assert [type(message) for message in scene.logs[OWN].sent] == [kind]
            scene.logs[OWN].sent.clear()
            own.send_due()
        own.send_due()  # what is stored twice counts once
        assert {type(message) for message in scene.store_all(OWN)} == {kind}
        await turns()
        assert change.begun
        await change.end()
    own.send_due()
    assert not scene.logs[OWN].sent


async def test_while_the_log_cannot_be_written(scene: Scene) -> None:
    scene.logs[OWN].writable = False
    change, own = await scene.change(OWN), scene.fleets[OWN]._turns
    assert own is not None and not scene.logs[OWN].sent
    scene.logs[OWN].writable = True
    own.send_due()
    scene.store_all(OWN)
    await turns()
    assert change.begun
    await change.end()


async def test_a_turn_that_the_next_gateway_finds_in_a_snapshot(scene: Scene) -> None:
    first = await scene.change(OWN)
    scene.store_all(OWN)
    roster = scene.fleets[OWN]._membership
    assert roster is not None
    snapshot = roster.roster.snapshot()
    assert [(turn.topic, turn.incarnation) for turn in snapshot.turns] == [("t", OWN)]
    assert type(roster.roster)(snapshot).snapshot() == snapshot
    await first.end()


async def test_alone_it_needs_no_turn() -> None:
    fleet = fleet_of([member_of(OWN, 0)], held=True)
    log = FakeLog()
    assert fleet._membership is not None
    fleet._turns = TopicTurns(fleet._membership, cast(FleetLog, log))
    async with fleet.topic_turn("t"):
        assert not log.sent


async def test_who_joins_waits_for_what_a_lone_gateway_has_begun() -> None:
    scene = Scene(joined=(OWN,))
    begun = await scene.change(OWN)
    assert begun.begun and not scene.logs[OWN].sent
    scene.join()
    waiting = await scene.change(OTHER)
    assert not scene.logs[OTHER].sent, "it does not know yet what the other one has begun"
    kinds = [type(message) for message in await scene.exchange()]
    assert kinds[0] is TopicTurn, "before the heartbeat that says that it has read of the other one"
    assert not waiting.begun
    await begun.end()
    await scene.exchange()
    assert waiting.begun
    await waiting.end()
    await scene.exchange()
    assert scene.free == ["t", "t"]


async def test_who_joins_waits_although_the_log_loses_what_the_lone_gateway_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_turns, "SEND_AGAIN_S", 0)
    scene = Scene(joined=(OWN,))
    begun = await scene.change(OWN)
    scene.join()
    waiting = await scene.change(OTHER)
    for _ in range(3):
        assert {type(message) for message in scene.logs[OWN].sent} == {TopicTurn}
        scene.logs[OWN].sent.clear()
        releasing = asyncio.create_task(scene.fleets[OWN]._keep_releasing())
        await asyncio.sleep(0.01)
        releasing.cancel()
        scene.fleets[OWN]._behind.set()
        own = scene.fleets[OWN]._turns
        assert own is not None
        own.send_due()
    await scene.exchange()
    assert not waiting.begun
    await begun.end()
    await scene.exchange()
    assert waiting.begun
    await waiting.end()


async def test_who_joins_a_gateway_that_changes_nothing_waits_for_its_answer() -> None:
    scene = Scene(joined=(OWN,))
    scene.join()
    waiting = await scene.change(OTHER)
    assert not waiting.begun
    await scene.exchange()
    assert waiting.begun
    await waiting.end()


async def test_who_joins_does_not_wait_for_a_gateway_that_dies() -> None:
    """Nor if it is the only one then."""
    scene = Scene(joined=(OWN,))
    begun = await scene.change(OWN)
    scene.join()
    waiting = await scene.change(OTHER)
    scene.store(Goodbye(node_id=0, incarnation=OWN))
    del scene.fleets[OWN]
    await scene.exchange()
    assert waiting.begun
    await waiting.end()
    await begun.end()


async def test_a_change_that_ends_before_the_log_has_it() -> None:
    scene = Scene(joined=(OWN,))
    begun = await scene.change(OWN)
    scene.join()
    await begun.end()
    waiting = await scene.change(OTHER)
    assert [type(message) for message in scene.logs[OWN].sent] == [TopicTurn]
    await scene.exchange()
    assert waiting.begun
    await waiting.end()


async def test_before_it_joins_it_needs_no_turn() -> None:
    fleet = fleet_of([], held=False)
    async with fleet.topic_turn("t"):
        pass


async def test_the_topics_of_a_cluster_are_its_own(scene: Scene) -> None:
    view, of_view = ClusterView(scene.fleets[OWN], "acme/orders"), Heard()
    view.subscribe(of_view)
    scene.store(TopicTurn(topic="t", request_id="1", incarnation=OTHER))

    async def change() -> None:
        async with view.topic_turn("t"):
            pass

    changing = asyncio.create_task(change())
    await turns()
    [asked] = scene.store_all(OWN)
    assert isinstance(asked, TopicTurn) and asked.topic == "acme/orders/t"
    async with asyncio.timeout(5):
        await changing
    scene.store_all(OWN)
    scene.store(TopicTurnEnd(topic="t", request_id="1"))
    assert of_view.ended == ["t"]


class Heard(FleetListener):
    def __init__(self) -> None:
        self.ended: list[str] = []

    def topic_turn_ended(self, topic: str) -> None:
        self.ended.append(topic)
