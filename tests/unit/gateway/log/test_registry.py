"""Logs that are opened and closed at the same time as other events, or while Pulsar does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.config.limits import Limits
from gateway.errors import KafkaError, error_code
from gateway.log import opening_turns, patience
from gateway.log.bounds import drained
from gateway.log.opening_turns import NOBODY
from gateway.log.partition_log import PartitionLog
from gateway.log.registry import LogRegistry
from gateway.log.shared import Shared
from gateway.log.writing import log_writer, producer_supply
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ConnectionLostError, RequestTimeoutError
from gateway.topics.topic import Topic
from protocol.kafka.batch import parse_header
from protocol.kafka.errors import ErrorCode
from protocol.kafka.records import Record, encode_batch
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.fake_pulsar import FakeProducer, FakeTopic

TOPIC = cast(Topic, SimpleNamespace(name="topic", pulsar_topic=lambda partition: f"topic-{partition}", compacts=False))
DATA = memoryview(encode_batch([Record(0, 1_000, None, b"value", ())]))
HEADER = parse_header(DATA)

Answers = list[tuple[int, Exception | None]]


class DeafProducer(FakeProducer):
    """A producer of a broker that does not answer, and so does not confirm the close."""

    async def close(self) -> None:
        self.closed = True
        raise RequestTimeoutError("no answer")


class SlowProducer(FakeProducer):
    """A producer of a broker that needs time to close it."""

    forgotten: asyncio.Event

    async def close(self) -> None:
        await self.forgotten.wait()
        self.closed = True


class SlowTopic(FakeTopic):
    """Partitions that Pulsar serves only when the test says so; it records the order of requests."""

    def __init__(self) -> None:
        super().__init__()
        self.unavailable: dict[str, asyncio.Event] = {}
        self.asked: list[str] = []

    async def _served(self, topic: str) -> None:
        if topic not in self.asked:
            self.asked.append(topic)
        if topic in self.unavailable:
            await self.unavailable[topic].wait()

    async def last_position(self, topic: str, *, read_compacted: bool = False) -> Any:
        await self._served(topic)
        return await super().last_position(topic, read_compacted=read_compacted)

    async def open_reader(self, topic: str, *args: Any, **kwargs: Any) -> Any:
        await self._served(topic)
        return await super().open_reader(topic, *args, **kwargs)


class Scene:
    def __init__(self, **limits: int) -> None:
        self.topic = SlowTopic()
        pulsar, admin = cast(PulsarClient, self.topic), cast(AdminClient, self.topic)
        self.compacted: set[str] = set()
        shared = Shared(pulsar, admin, Limits(**limits), Metrics(), lambda: True)
        self.leads = True
        self.registry = LogRegistry(shared, self.compacted.__contains__, lambda topic, partition: self.leads)

    async def open(self) -> PartitionLog:
        opened = await self.registry.open(TOPIC, 0)
        await opened.prepare(HEADER, 1)
        return opened

    async def append(self) -> Answers:
        opened, answers = await self.open(), Answers()
        opened.append(DATA, HEADER, 1, lambda offset, error: answers.append((offset, error)))
        return answers


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(producer_supply, "LATE_ARRIVAL_S", 0)
    monkeypatch.setattr(drained, "DRAIN_PAUSE_S", 0)
    return Scene()


async def test_a_log_is_read_as_its_topic_is_configured_at_that_moment(scene: Scene) -> None:
    opened = await scene.registry.open(TOPIC, 0)
    assert not opened.source.compacted
    scene.compacted.add(TOPIC.name)
    assert opened.source.compacted
    scene.registry.find(TOPIC.name, 0)
    scene.compacted.clear()
    assert not opened.source.compacted


async def test_a_log_without_answers_is_opened_anew(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.topic.producer_class = DeafProducer
    first, answers = await scene.open(), await scene.append()
    await scene.registry.close_stalled()
    assert not first.closed  # it has had no time yet
    monkeypatch.setattr(log_writer, "STALLED_S", -1)
    await scene.registry.close_stalled()
    [(_, error)] = answers
    assert isinstance(error, KafkaError) and error_code(error) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await scene.open() is not first
    names = {producer.name for producer in scene.topic.producers}
    assert (len(scene.topic.producers), len(names)) == (2, 1)  # the broker must close the first one


async def test_a_log_that_has_nothing_to_wait_for_stays(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "STALLED_S", -1)
    opened = await scene.open()
    await scene.registry.close_stalled()
    assert not opened.closed


async def test_a_producer_that_was_closed_in_order_needs_no_successor(scene: Scene) -> None:
    await (await scene.open()).close()
    await scene.open()
    assert len({producer.name for producer in scene.topic.producers}) == 2


async def test_a_log_whose_leader_changed_meanwhile_is_closed_though_it_leads_again(scene: Scene) -> None:
    """Another gateway may have written in between."""
    first = await scene.open()
    scene.registry.start_closing(lambda topic, partition: True)
    assert scene.registry.find("topic", 0) is None
    await scene.registry.close_those(lambda topic, partition: False)
    assert first.closed
    assert await scene.open() is not first


# What happens while a log is closed

Change = Callable[[LogRegistry], Awaitable[None]]
CHANGES: dict[str, Change] = {
    "forget_topic": lambda registry: registry.forget_topic("topic"),
    "close_those": lambda registry: registry.close_those(lambda *_: True),
    "close_idle": lambda registry: registry.close_idle(),
    "close_stalled": lambda registry: registry.close_stalled(),
    "close": lambda registry: registry.close(),
}


@pytest.mark.parametrize("second", CHANGES)
@pytest.mark.parametrize("first", CHANGES)
@pytest.mark.parametrize("turns", [0, 1, 2, 3])
async def test_changes_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch, scene: Scene, first: str, second: str, turns: int
) -> None:
    monkeypatch.setattr(log_writer, "STALLED_S", -1)
    scene.topic.producer_class = SlowProducer
    SlowProducer.forgotten = asyncio.Event()
    for partition in range(3):
        opened = await scene.registry.open(TOPIC, partition)
        await opened.prepare(HEADER, 1)
        opened.append(DATA, HEADER, 1, lambda *_: None)
        opened.reader.last_used = opened.writer.last_used = opened.last_used - 10_000
    tasks = [asyncio.ensure_future(CHANGES[first](scene.registry))]
    for _ in range(turns):
        await asyncio.sleep(0)
    tasks.append(asyncio.ensure_future(CHANGES[second](scene.registry)))
    for _ in range(turns):
        await asyncio.sleep(0)
    SlowProducer.forgotten.set()
    async with asyncio.timeout(5):
        await asyncio.gather(*tasks)
    assert all(scene.registry.find("topic", partition) is None for partition in range(3))


async def test_a_log_that_is_used_again_while_others_are_closed_stays(scene: Scene) -> None:
    scene.topic.producer_class = SlowProducer
    SlowProducer.forgotten = asyncio.Event()
    logs = [await scene.registry.open(TOPIC, partition) for partition in range(100)]
    for opened in logs:
        opened.reader.last_used = opened.writer.last_used = opened.last_used - 10_000
    closing = asyncio.ensure_future(scene.registry.close_idle())
    await asyncio.sleep(0)
    logs[-1].reader.read(0, 1)
    SlowProducer.forgotten.set()
    await closing
    assert scene.registry.find("topic", 99) is logs[-1]
    assert scene.registry.find("topic", 0) is None


# What happens while a log is opened


@pytest.mark.parametrize("change", ["forget_topic", "close_those"])
async def test_a_log_that_is_not_wanted_any_more_when_it_is_open(scene: Scene, change: str) -> None:
    """It may have been read before another gateway wrote, or before the topic was created again."""
    scene.topic.unavailable["topic-0"] = asyncio.Event()
    opening = asyncio.ensure_future(scene.registry.open(TOPIC, 0))
    await let_callbacks_run()
    await CHANGES[change](scene.registry)
    again = asyncio.ensure_future(scene.registry.open(TOPIC, 0))
    await let_callbacks_run()
    scene.topic.unavailable["topic-0"].set()
    with pytest.raises(KafkaError) as refused:
        await opening
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert scene.registry.find("topic", 0) is await again


async def test_a_log_that_is_opened_for_another_leader_follows_it(scene: Scene) -> None:
    """Also if nobody reads it: what that one deletes is not known here, when this gateway leads some day."""
    assert not (await scene.registry.open(TOPIC, 0)).follows_leader
    scene.leads = False
    opened = await scene.registry.open(TOPIC, 1)
    assert opened.follows_leader
    assert scene.registry.find(TOPIC.name, 1) is opened


async def test_a_log_whose_opening_began_under_another_leader_is_opened_anew(scene: Scene) -> None:
    """That one may have deleted records since the start was read."""
    scene.leads = False
    served = scene.topic.unavailable["topic-0"] = asyncio.Event()
    opening = asyncio.create_task(scene.registry.open(TOPIC, 0))
    await let_callbacks_run()
    scene.leads = True
    served.set()
    with pytest.raises(KafkaError, match="changed while it was opened"):
        await opening
    assert not (await scene.registry.open(TOPIC, 0)).follows_leader


async def test_so_many_are_opened_at_a_time_and_writes_come_first() -> None:
    scene = Scene(max_log_openings=2)
    for partition in range(2):
        scene.topic.unavailable[f"topic-{partition}"] = asyncio.Event()
    tasks = [asyncio.ensure_future(scene.registry.open(TOPIC, partition)) for partition in range(8)]
    await let_callbacks_run()
    assert scene.topic.asked == ["topic-0", "topic-1"]
    tasks.append(asyncio.ensure_future(scene.registry.open(TOPIC, 9, urgent=True)))
    tasks.append(asyncio.ensure_future(scene.registry.open(TOPIC, 7, urgent=True)))
    await let_callbacks_run()
    for each in scene.topic.unavailable.values():
        each.set()
    async with asyncio.timeout(5):
        await asyncio.gather(*tasks)
    assert set(scene.topic.asked[2:4]) == {"topic-7", "topic-9"}
    assert scene.topic.asked[4:] == [f"topic-{partition}" for partition in range(2, 7)]


async def test_partitions_that_pulsar_does_not_serve_hold_up_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening_turns, "HOLD_S", 0)
    scene = Scene(max_log_openings=1)
    scene.topic.unavailable["topic-0"] = asyncio.Event()
    waiting = asyncio.ensure_future(scene.registry.open(TOPIC, 0))
    await let_callbacks_run()
    async with asyncio.timeout(5):
        await scene.registry.open(TOPIC, 1)
    scene.topic.unavailable["topic-0"].set()
    await waiting


@pytest.mark.parametrize("whose", [NOBODY, "a client"])
async def test_partitions_that_fail_slowly_again_and_again_come_behind_others(
    whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "PATIENCE_S", 0)
    scene = Scene(max_log_openings=1)

    async def fail(topic: str) -> None:
        raise ConnectionLostError("lost")

    monkeypatch.setattr(scene.topic, "managed_ledger", fail)
    with pytest.raises((KafkaError, ConnectionLostError)):
        await scene.registry.open(TOPIC, 0)
    await let_callbacks_run()
    monkeypatch.undo()
    scene.topic.unavailable = {f"topic-{partition}": asyncio.Event() for partition in range(2)}
    tasks = [asyncio.ensure_future(scene.registry.open(TOPIC, partition, whose=whose)) for partition in (1, 2)]
    tasks.append(asyncio.ensure_future(scene.registry.open(TOPIC, 0, urgent=True)))
    await let_callbacks_run()
    scene.topic.asked.clear()
    for each in scene.topic.unavailable.values():
        each.set()
    async with asyncio.timeout(5):
        await asyncio.gather(*tasks, return_exceptions=True)
    await let_callbacks_run()
    assert scene.topic.asked[-2:] == ["topic-2", "topic-0"]


async def test_requests_wait_for_one_that_pulsar_does_not_serve_only_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "PATIENCE_S", 0.05)
    scene.topic.unavailable["topic-0"] = asyncio.Event()
    for _ in range(2):
        with pytest.raises(KafkaError) as refused:
            await scene.registry.open(TOPIC, 0)
        assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    monkeypatch.setattr(patience, "PATIENCE_S", 10)
    scene.topic.unavailable["topic-0"].set()
    assert await scene.registry.open(TOPIC, 0) is scene.registry.find("topic", 0)


async def test_requests_wait_longer_while_many_logs_open(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused batch that is not idempotent may be overtaken by the next ones, and a busy Pulsar opens logs slowly."""
    monkeypatch.setattr(patience, "PATIENCE_S", 0)
    monkeypatch.setattr(patience, "OTHERS_S", 10.0)
    scene.topic.unavailable = {f"topic-{partition}": asyncio.Event() for partition in range(2)}
    first, second = [asyncio.ensure_future(scene.registry.open(TOPIC, partition)) for partition in range(2)]
    await let_callbacks_run()
    assert not first.done()
    scene.topic.unavailable["topic-0"].set()
    assert await first is scene.registry.find("topic", 0)
    monkeypatch.setattr(patience, "OTHERS_S", 0)
    with pytest.raises(KafkaError):  # the second one is alone now
        await asyncio.wait_for(scene.registry.open(TOPIC, 1), 5)
    scene.topic.unavailable["topic-1"].set()
    await second


async def test_callers_do_not_wait_while_it_fails_slowly(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PATIENCE_S", 0)
    scene.topic.unavailable["topic-0"] = asyncio.Event()

    async def fail(topic: str) -> None:
        raise ConnectionLostError("lost")

    monkeypatch.setattr(scene.topic, "managed_ledger", fail)
    with pytest.raises(KafkaError):
        await scene.registry.open(TOPIC, 0)
    scene.topic.unavailable["topic-0"].set()
    await let_callbacks_run()
    monkeypatch.undo()
    scene.topic.unavailable["topic-0"].clear()
    with pytest.raises(KafkaError):
        async with asyncio.timeout(1):
            await scene.registry.open(TOPIC, 0)
    scene.topic.unavailable["topic-0"].set()
    await let_callbacks_run()
    assert await scene.registry.open(TOPIC, 0) is scene.registry.find("topic", 0)


async def test_callers_that_wait_for_a_log_get_an_error_when_the_gateway_stops(scene: Scene) -> None:
    scene.topic.unavailable["topic-0"] = asyncio.Event()
    opening = asyncio.ensure_future(scene.registry.open(TOPIC, 0))
    await let_callbacks_run()
    await scene.registry.close()
    with pytest.raises(KafkaError):
        await opening


async def test_the_client_that_waits_for_the_fewest_is_next() -> None:
    """It reads nothing before all logs are open that it asked for: one by one, clients go on much sooner."""
    scene = Scene(max_log_openings=1)
    scene.topic.unavailable["topic-0"] = asyncio.Event()
    asked = [(0, "first"), (1, "many"), (2, "some"), (3, "many"), (4, "some"), (5, "many"), (6, "one")]
    tasks = [asyncio.ensure_future(scene.registry.open(TOPIC, number, whose=client)) for number, client in asked]
    await let_callbacks_run()
    scene.topic.unavailable["topic-0"].set()
    async with asyncio.timeout(5):
        await asyncio.gather(*tasks)
    assert scene.topic.asked == [f"topic-{number}" for number in (0, 6, 2, 4, 1, 3, 5)]


async def test_an_opening_that_was_abandoned_ends_with_the_registry(scene: Scene) -> None:
    """It would connect to Pulsar again after the cluster's connections were closed."""
    scene.topic.unavailable["topic-0"] = asyncio.Event()
    opening = asyncio.ensure_future(scene.registry.open(TOPIC, 0))
    await let_callbacks_run()
    await scene.registry.forget_topic("topic")
    await scene.registry.close()
    with pytest.raises(KafkaError):
        await opening
    readers = len(scene.topic.readers)
    scene.topic.unavailable["topic-0"].set()
    await let_callbacks_run()
    assert len(scene.topic.readers) == readers
