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

    def __init__(self, own: tuple[str, ...] = (OWN, OTHER)) -> None:
        members = [member_of(name, number) for number, name in enumerate((OWN, OTHER))]
        self.fleets = {name: fleet_of(members, held=True, own=name) for name in own}
        self.logs = {name: FakeLog() for name in own}
        self.free: list[str] = []
        self.positions: Iterator[int] = iter(range(2, 1_000))
        for name, fleet in self.fleets.items():
            assert fleet._membership is not None
            fleet._turns = TopicTurns(fleet._membership, cast(FleetLog, self.logs[name]))
        self.fleets[own[-1]].subscribe(self)

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
