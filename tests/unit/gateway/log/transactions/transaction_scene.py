"""Logs of one topic with transactions, on a fake topic, of gateways one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from gateway.config.limits import Limits
from gateway.log.bounds.log_bounds import read_bounds
from gateway.log.partition_log import PartitionLog
from gateway.log.shared import Shared
from gateway.log.transactions.marker_appends import MarkerForm
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from protocol.kafka.batch import parse_header
from protocol.kafka.records import Record, encode_batch
from protocol.kafka.transaction_marker import MarkerType, TransactionMarker
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.fake_pulsar import FakeTopic
from tests.unit.gateway.log.log_scene import Answers, batch


def transactional(producer_id: int, sequence: int, epoch: int = 0, count: int = 1) -> memoryview:
    records = [Record(delta, 1_000, None, b"value", ()) for delta in range(count)]
    return memoryview(
        encode_batch(
            records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
        )
    )


def shared_on(topic: FakeTopic, limits: Limits | None = None, leads: Callable[[], bool] = lambda: True) -> Shared:
    limits = limits or Limits(refresh_timeout_ms=10_000)
    return Shared(cast(PulsarClient, topic), cast(AdminClient, topic), limits, Metrics(), leads)


class TransactionScene:
    """Logs of one topic, of gateways one after the other. Everything that is sent is written immediately."""

    def __init__(self) -> None:
        self.topic = FakeTopic()
        self.limits: Limits | None = None
        self.leads = True
        """No other gateway can be the leader."""
        self.compacted: int = False
        self.sequences: dict[tuple[int, int], int] = {}
        self.log: PartitionLog
        self.everything: list[tuple[bytes, int]] = []
        """All that was ever written, with its first offset."""

    async def opened(self) -> PartitionLog:
        """The log of another gateway."""
        client, admin = cast(PulsarClient, self.topic), cast(AdminClient, self.topic)
        bounds = await read_bounds(client, admin, "topic")
        shared = shared_on(self.topic, self.limits, lambda: self.leads)
        return PartitionLog("topic", shared, bounds, lambda: self.compacted)

    async def lead(self) -> None:
        self.log = await self.opened()

    async def write(self) -> None:
        """Write everything that waits."""
        await let_callbacks_run()
        for producer in self.topic.producers:
            for sequence_id in list(producer.sent):
                if not producer.closed:
                    self.everything.append((producer.sent[sequence_id][0], self.topic.next_index))
                    producer.write_and_confirm(sequence_id)
                    del producer.sent[sequence_id]
        await let_callbacks_run()

    async def begin(self, producer_id: int, epoch: int = 0, count: int = 1, *, verified: bool = True) -> Answers:
        """Begin a transaction with a batch."""
        sequence = self.sequences.get((producer_id, epoch), 0)
        self.sequences[producer_id, epoch] = sequence + count
        data = transactional(producer_id, sequence, epoch, count)
        header = parse_header(data)
        await self.log.prepare(header, 1)
        writes = self.log.transactional_writes
        if verified and writes.needs_verification(header):
            writes.verifications.verified(writes.verifications.begin(producer_id), producer_id, epoch)
        answers: Answers = []
        self.log.append(data, header, 1, lambda offset, error: answers.append((offset, error)))
        await self.write()
        return answers

    async def end(self, producer_id: int, kind: MarkerType, epoch: int = 0, coordinator_epoch: int = 0) -> None:
        marker = TransactionMarker(kind, producer_id, epoch, coordinator_epoch)
        await self.log.prepare_marker()
        written = self.log.transactional_writes.append_marker(marker, 0, MarkerForm())
        await self.write()
        await written

    async def plain_entry(self) -> None:
        """For instance of a native producer."""
        self.topic.write(bytes(batch()), 1, "another", 0)

    async def plain(self) -> None:
        await self.plain_entry()
        await self.log.end.refresh()

    def trim(self, count: int, before: int) -> None:
        """Retention deletes the oldest entries before an offset, but not the last one."""
        entries = self.topic.entries
        count = min(count, len(entries) - 1, sum(index < before for _, index, *_ in entries))
        del self.topic.entries[:count]
        for reader in self.topic.readers:
            reader.next_entry = max(0, reader.next_entry - count)


async def decided(log: PartitionLog) -> tuple[int, list[tuple[int, int]]]:
    """The last stable offset, and (producer id, first offset) of aborted transactions."""
    await log.transactions.prepare()
    return log.transactions.last_stable_offset, [
        (each.producer_id, each.first_offset) for each in log.transactions.aborted_between(0, log.end_offset)
    ]
