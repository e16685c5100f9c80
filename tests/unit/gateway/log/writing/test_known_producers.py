"""What a log has to read before it checks batches that clients may have sent to other gateways before."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import pytest

from gateway.config.limits import Limits
from gateway.log.bounds.log_bounds import LogBounds
from gateway.log.partition_log import PartitionLog
from gateway.log.shared import Shared
from gateway.log.writing import known_producers, writer_names
from gateway.log.writing.producer_scan import read_tail
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.position import Position
from gateway.pulsar.producer import SendListener
from protocol.kafka.batch import BatchHeader, parse_header
from protocol.kafka.records import Record, encode_batch
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.fake_pulsar import FakeProducer, FakeTopic
from tests.unit.gateway.log.log_scene import answered


def batch_of(producer_id: int) -> memoryview:
    record = Record(0, 1_000, None, b"value", ())
    return memoryview(encode_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=0))


def header_of(producer_id: int) -> BatchHeader:
    return parse_header(batch_of(producer_id))


class Topic(FakeTopic):
    """Counts the requests for its statistics, and writes late entries when their producers' names are taken over."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.late: dict[str, int] = {}
        """By name of a Pulsar producer, the id of the idempotent producer that it has a batch of."""

    async def internal_stats(self, topic: str) -> Any:
        self.asked += 1
        return await super().internal_stats(topic)

    async def open_producer(self, topic: str, listener: SendListener, **options: Any) -> FakeProducer:
        late = self.late.pop(options.get("name", ""), None)
        if late is not None:
            self.write(bytes(batch_of(late)), 1, options["name"], 0)
        return await super().open_producer(topic, listener, **options)


class Names:
    """Of this gateway, and of evicted ones."""

    def __init__(self, *evicted: str) -> None:
        self.gone = evicted

    def own_name(self) -> str:
        return "mine"

    def evicted(self) -> tuple[str, ...]:
        return self.gone


@pytest.fixture(autouse=True)
def nothing_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_producers, "LATE_ARRIVAL_S", 0)
    monkeypatch.setattr(writer_names, "LATE_ARRIVAL_S", 0)


@pytest.fixture
def topic() -> Topic:
    return Topic()


def log_on(topic: Topic, names: Names) -> PartitionLog:
    client, admin = cast(PulsarClient, topic), cast(AdminClient, topic)
    shared = Shared(client, admin, Limits(), Metrics(), lambda: True, names)
    return PartitionLog("topic", shared, LogBounds(Position(-1, -1), 0, 0))


async def repeated(log: PartitionLog, producer_id: int) -> int:
    """The offset of a batch that is in the log already."""
    answers: list[tuple[int, Exception | None]] = []
    header = header_of(producer_id)
    assert log.append(batch_of(producer_id), header, 3, lambda offset, error: answers.append((offset, error)))
    offset, error = await answered(answers)
    assert error is None
    return offset


async def has_to_read(log: PartitionLog) -> None:
    """The log, for a new connection. It then knows the batch of producer 2, which this gateway has not written."""
    assert not log.ready_for(header_of(2), 2)
    await log.prepare(header_of(2), 2)
    assert await repeated(log, 2) == 0
    await log.close()


async def test_a_late_read_of_the_only_leader_serves_all_later_batches(topic: Topic) -> None:
    log = log_on(topic, Names())
    await log.prepare(header_of(1), 1)
    assert topic.asked == 1
    assert log.ready_for(header_of(2), 2)
    assert log.ready_for(header_of(1)._replace(base_sequence=1), 2), "over a new connection"
    await log.close()


@pytest.mark.usefixtures("others_still_write")
async def test_a_read_that_began_before_a_batch_arrived_does_not(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch waits for a read that another one has begun. Meanwhile an entry of the previous leader was written."""
    log, begun, may_end = log_on(topic, Names()), asyncio.Event(), asyncio.Event()

    async def read_slowly(*arguments: Any) -> None:
        begun.set()
        await may_end.wait()
        await read_tail(*arguments)

    monkeypatch.setattr(known_producers, "read_tail", read_slowly)
    first = asyncio.create_task(log.prepare(header_of(1), 1, time.monotonic()))
    await begun.wait()
    topic.write(bytes(batch_of(2)), 1, "the previous leader", 0)
    second = asyncio.create_task(log.prepare(header_of(2), 2, time.monotonic()))
    await let_callbacks_run()
    may_end.set()
    await asyncio.gather(first, second)
    assert await repeated(log, 2) == 0
    await log.close()


@pytest.mark.usefixtures("others_still_write")
async def test_an_early_read_does_not(topic: Topic) -> None:
    log = log_on(topic, Names())
    await log.prepare(header_of(1), 1)
    topic.write(bytes(batch_of(2)), 1, "the previous leader", 0)
    await has_to_read(log)


async def test_a_read_before_this_gateway_led_does_not(topic: Topic) -> None:
    """DescribeProducers reads the log while the previous leader still writes."""
    log = log_on(topic, Names())
    assert await log.producers.active() == []
    topic.write(bytes(batch_of(2)), 1, "the previous leader", 0)
    await has_to_read(log)


async def test_a_late_entry_of_an_evicted_gateway_is_known_before_any_batch_is_checked(topic: Topic) -> None:
    topic.late["gone"] = 2
    log = log_on(topic, Names("gone"))
    await log.prepare_for_producers()
    assert log.ready_for(header_of(2), 2)
    assert await repeated(log, 2) == 0
    assert topic.asked == 1
    await log.close()


async def test_an_eviction_after_the_read_has_the_log_read_again(topic: Topic) -> None:
    names = Names()
    log = log_on(topic, names)
    await log.prepare(header_of(1), 1)
    topic.late["gone"], names.gone = 2, ("gone",)
    await has_to_read(log)


async def test_a_replicated_partition_is_read_for_each_connection(topic: Topic) -> None:
    """The client may have written to another cluster before, and the copy comes late."""
    topic.cursors = ["spark", "pulsar.repl.eu"]
    log = log_on(topic, Names())
    await log.prepare(header_of(1), 1)
    topic.write(bytes(batch_of(2)), 1, "pulsar.repl.eu", 0)
    await has_to_read(log)


async def test_a_partition_is_read_again_when_replication_may_have_been_enabled(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_on(topic, Names())
    await log.prepare(header_of(1), 1)
    topic.cursors = ["pulsar.repl.eu"]
    assert log.ready_for(header_of(2), 2)
    monkeypatch.setattr(known_producers, "READ_AGAIN_S", 0)
    assert not log.ready_for(header_of(2), 2)
    await log.prepare(header_of(2), 2)
    monkeypatch.undo()
    topic.write(bytes(batch_of(3)), 1, "pulsar.repl.eu", 0)
    assert not log.ready_for(header_of(3), 3)
    await log.prepare(header_of(3), 3)
    assert await repeated(log, 3) == 0
    await log.close()


async def test_a_copy_shows_that_a_partition_is_replicated(topic: Topic) -> None:
    """A cluster that only receives copies has no cursor of a replicator."""
    topic.write(bytes(batch_of(1)), 1, "pulsar.repl.eu", 0)
    topic.entries[-1][3].replicated_from = "eu"
    log = log_on(topic, Names())
    await log.prepare(header_of(1), 1)
    topic.write(bytes(batch_of(2)), 1, "pulsar.repl.eu", 1)
    assert not log.ready_for(header_of(2), 2)
    await log.prepare(header_of(2), 2)
    assert await repeated(log, 2) == 1
    await log.close()
