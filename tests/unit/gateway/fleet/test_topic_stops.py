"""Before a gateway deletes a topic, the others stop using it, and answer."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from coordinator.fleet.messages import (
    Goodbye,
    LogPosition,
    Message,
    TopicStop,
    TopicStopped,
    decode_message,
    encode_message,
)
from gateway.fleet import fleet as fleet_module
from gateway.fleet import topic_stops
from gateway.fleet.cluster_view import ClusterView
from gateway.fleet.fleet import Fleet
from gateway.fleet.fleet_log import FleetLog
from gateway.fleet.listener import FleetListener
from tests.unit.gateway.fleet.fleet_scene import OWN, fleet_of, member_of


class FakeLog:
    writable = True

    def __init__(self) -> None:
        self.sent: list[Message] = []

    def send(self, message: Message) -> None:
        self.sent.append(decode_message(encode_message(message)))


class Scene:
    def __init__(self, fleet: Fleet | None = None) -> None:
        members = [member_of(OWN, 0), member_of("b", 1), member_of("c", 2)]
        self.fleet = fleet_of(members, held=True) if fleet is None else fleet
        self.log = FakeLog()
        self.fleet._log = cast(FleetLog, self.log)
        self._position = 1

    def read(self, message: Message) -> None:
        self._position += 1
        self.fleet._read(LogPosition(1, self._position), message)

    async def ask(self, topic: str = "t") -> tuple[asyncio.Task[None], TopicStop]:
        asking = asyncio.create_task(self.fleet.ask_to_stop(topic))
        await asyncio.sleep(0)
        [question] = self.log.sent
        assert isinstance(question, TopicStop)
        return asking, question

    def answer(self, question: TopicStop, incarnation: str) -> None:
        self.read(TopicStopped(request_id=question.request_id, incarnation=incarnation))


class Listener(FleetListener):
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.stopped = asyncio.Event()

    async def stop_topic(self, topic: str) -> None:
        self.asked.append(topic)
        await self.stopped.wait()


async def until(done: asyncio.Task[None]) -> None:
    async with asyncio.timeout(5):
        await done


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def scene() -> Scene:
    return Scene()


async def test_it_waits_for_all_members(scene: Scene) -> None:
    asking, question = await scene.ask()
    assert (question.topic, question.incarnation) == ("t", OWN)
    scene.read(question)  # its own
    scene.answer(question, "b")
    scene.answer(question.model_copy(update={"request_id": "another"}), "c")
    await turns()
    assert not asking.done()
    scene.answer(question, "c")
    await until(asking)


async def test_it_does_not_wait_for_members_that_leave(scene: Scene) -> None:
    asking, question = await scene.ask()
    scene.answer(question, "b")
    scene.read(Goodbye(node_id=2, incarnation="c"))
    await until(asking)


async def test_it_does_not_wait_for_ever(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_stops, "STOP_S", 0.01)
    asking, question = await scene.ask()
    await until(asking)
    scene.answer(question, "b")  # too late


async def test_nobody_is_asked(scene: Scene) -> None:
    alone = fleet_of([member_of(OWN, 0)], held=True)
    alone._log = cast(FleetLog, scene.log)
    await alone.ask_to_stop("t")
    scene.log.writable = False
    await scene.fleet.ask_to_stop("t")
    assert not scene.log.sent


async def test_it_answers_when_nothing_uses_the_topic(scene: Scene) -> None:
    listener = Listener()
    scene.fleet.subscribe(listener)
    scene.read(TopicStop(topic="t", request_id="1", incarnation="b"))
    await turns()
    assert listener.asked == ["t"] and not scene.log.sent
    listener.stopped.set()
    await turns()
    assert scene.log.sent == [TopicStopped(request_id="1", incarnation=OWN)]


async def test_it_does_not_answer_late(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "STOP_S", 0)
    failures: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, failure: failures.append(failure))
    scene.fleet.subscribe(Listener())
    scene.read(TopicStop(topic="t", request_id="1", incarnation="b"))
    await asyncio.sleep(0.05)
    assert not scene.log.sent and not failures


async def test_it_waits_for_members_that_are_leaving() -> None:
    """Their subscriptions may still be moving."""
    members = [member_of(OWN, 0), member_of("b", 1)]
    leaving = Scene(fleet_of(members, held=True, leaving=["b"]))
    asking, _ = await leaving.ask()
    await turns()
    assert not asking.done()
    leaving.read(Goodbye(node_id=1, incarnation="b"))
    await until(asking)


async def test_the_topics_of_a_cluster_are_its_own(scene: Scene) -> None:
    view, of_view = ClusterView(scene.fleet, "acme/orders"), Listener()
    view.subscribe(of_view)
    asking = asyncio.create_task(view.ask_to_stop("t"))
    await asyncio.sleep(0)
    [question] = scene.log.sent
    assert isinstance(question, TopicStop) and question.topic == "acme/orders/t"
    for topic in ("t", "acme/other/t", "acme/orders/u"):
        scene.read(TopicStop(topic=topic, request_id="1", incarnation="b"))
    await turns()
    assert of_view.asked == ["u"]
    scene.answer(question, "b")
    scene.answer(question, "c")
    await until(asking)
