"""A model of the broker and its gateways, for idempotent producers."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from typing import Any, cast

from gateway.config.limits import Limits
from gateway.log.bounds.log_bounds import LogBounds
from gateway.log.partition_log import PartitionLog
from gateway.log.shared import Shared
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ConnectionLostError, TopicClosedError
from protocol.kafka.batch import BatchHeader, parse_header
from protocol.kafka.records import Record, encode_batch
from tests.unit.gateway.log.fake_pulsar import FakeProducer, FakeTopic

RECORDS = 2


class BrokersProducer(FakeProducer):
    async def close(self) -> None:
        """The broker writes and acknowledges what it received, before it confirms that the producer is closed."""
        self.closed = True
        broker = cast(Broker, self.topic)
        broker.receive(self, len(self.sent))
        broker.write_all()
        broker.confirm(len(broker.written), also=self)


class Broker(FakeTopic):
    """Writes in the order of receiving, also for closed producers."""

    producer_class = BrokersProducer

    def __init__(self) -> None:
        super().__init__()
        self.received: deque[tuple[FakeProducer, int, bytes, int]] = deque()
        """What waits for the thread that writes. The broker does not count it as pending yet."""
        self.pending: deque[tuple[FakeProducer, int, bytes, int]] = deque()
        self.written: deque[tuple[FakeProducer, int, Any]] = deque()
        self.failures = 0

    async def internal_stats(self, topic: str) -> Any:
        if self.failures:
            self.failures -= 1
            raise ConnectionLostError("no statistics")
        stats = replace(await super().internal_stats(topic), pending_adds=len(self.pending))
        self.write(1)
        return stats

    async def trim(self, topic: str) -> None:
        self._pass_to_thread()

    def _pass_to_thread(self) -> None:
        self.pending += self.received
        self.received.clear()

    def receive(self, producer: FakeProducer, count: int) -> None:
        for sequence_id in list(producer.sent)[:count]:
            self.received.append((producer, sequence_id, *producer.sent.pop(sequence_id)))

    def write(self, count: int) -> None:  # type: ignore[override]
        self._pass_to_thread()
        for _ in range(min(count, len(self.pending))):
            producer, sequence_id, data, records = self.pending.popleft()
            self.written.append((producer, sequence_id, super().write(data, records, producer.name, sequence_id)))
            metadata = self.entries[-1][3]
            metadata.ClearField("properties")
            metadata.MergeFromString(producer.fields[sequence_id])

    def write_all(self) -> None:
        self.write(len(self.received) + len(self.pending))

    def write_native(self) -> None:
        self.write_all()
        super().write(bytes(batch_of(99, 0)[0]), RECORDS, "native", 0)

    def confirm(self, count: int, also: FakeProducer | None = None) -> None:
        for _ in range(min(count, len(self.written))):
            producer, sequence_id, position = self.written.popleft()
            if not producer.closed or producer is also:
                producer.confirm(sequence_id, position)

    def unload(self) -> None:
        self.write_all()
        self.roll_over()
        for producer in self.producers:
            if not producer.closed:
                producer.closed = True
                producer.listener.on_producer_closed(TopicClosedError("unloaded"))
        for reader in self.readers:
            if not reader.closed:
                reader.lose(TopicClosedError("unloaded"))


def batch_of(producer_id: int, number: int) -> tuple[memoryview, BatchHeader]:
    records = [Record(delta, 1_000, None, b"%d" % number, ()) for delta in range(RECORDS)]
    data = encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=number * RECORDS)
    return memoryview(data), parse_header(data)


class Gateway:
    """One log, opened again when it was closed."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.log: PartitionLog | None = None
        self.opening = asyncio.Lock()
        self.has_lease = True

    async def open(self) -> PartitionLog:
        async with self.opening:
            if self.log is not None and self.log.closed:
                await self.log.close()
            if self.log is None or self.log.closed:
                pulsar, admin = cast(PulsarClient, self.broker), cast(AdminClient, self.broker)
                shared = Shared(pulsar, admin, Limits(refresh_timeout_ms=2_000), Metrics(), lambda: self.has_lease)
                self.log = PartitionLog("topic", shared, await self.bounds())
            return self.log

    async def bounds(self) -> LogBounds:
        return LogBounds(self.broker.last, self.broker.next_index, 0)

    @property
    def producers(self) -> list[FakeProducer]:
        return [each for each in self.broker.producers if not each.closed and self.owns(each.listener)]

    def owns(self, listener: object) -> bool:
        return self.log is not None and listener is self.log.writer._appender

    def kill(self) -> None:
        """The broker has received some of what was sent; no receipt arrives."""
        for producer in self.producers:
            self.broker.receive(producer, len(producer.sent) // 2)
            producer.closed = True
        for reader in self.broker.readers:
            if self.log is not None and reader.listener is self.log._follower:
                reader.closed = True
        self.log = None
