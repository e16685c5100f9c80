"""A log on a real Pulsar whose transactions need many checkpoints: the next leader knows all that the last one knew."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Sequence

from gateway.config.limits import Limits
from gateway.errors import KafkaError
from gateway.log.partition_log import PartitionLog, open_log
from gateway.log.shared import Shared
from gateway.log.transactions.aborted_list import AbortedTransaction
from gateway.log.transactions.checkpoints import EVERY_ABORTED
from gateway.log.transactions.marker_appends import MarkerForm
from gateway.observability.metrics import Metrics
from protocol.kafka.batch import parse_header
from protocol.kafka.errors import ErrorCode
from protocol.kafka.records import Record, encode_batch
from protocol.kafka.transaction_marker import MarkerType, TransactionMarker
from tests.integration.pulsar_cluster import Cluster, PulsarAddresses, run

OPEN = 2_000
"""Producers with an open transaction: one checkpoint of 60 kB."""
ABORTED = 10 * EVERY_ABORTED
AT_ONCE = 500
"""Batches that wait for Pulsar: fewer checkpoints are written when more share an entry."""
SOURCE = 1


@contextlib.asynccontextmanager
async def leading(cluster: Cluster, topic: str) -> AsyncIterator[PartitionLog]:
    """The log as a gateway opens it that knows nothing of the former ones."""
    shared = Shared(cluster.client, cluster.admin, Limits(), Metrics(), lambda: True)
    opened = await open_log(topic, shared)
    try:
        yield opened
    finally:
        await opened.close()
        shared.close()


def transactional(producer_id: int, sequence: int) -> memoryview:
    record = Record(0, 1_000, None, b"value", ())
    return memoryview(
        encode_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
    )


async def write(log: PartitionLog, producer_id: int, sequence: int) -> int:
    """A batch of the producer's transaction. Returns its offset. Raises KafkaError."""
    data = transactional(producer_id, sequence)
    header = parse_header(data)
    await log.prepare(header, SOURCE, time.monotonic())
    known = log.transactional_writes.verifications
    if log.transactional_writes.needs_verification(header):
        known.verified(known.begin(producer_id), producer_id, header.producer_epoch)
    written: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def done(offset: int, error: Exception | None) -> None:
        written.set_result(offset) if error is None else written.set_exception(error)

    log.append(data, header, SOURCE, done)
    return await written


async def abort(log: PartitionLog, producer_id: int) -> None:
    await log.prepare_marker()
    marker = TransactionMarker(MarkerType.ABORT, producer_id, 0, 0)
    await log.transactional_writes.append_marker(marker, 0, MarkerForm())


async def open_transactions(log: PartitionLog, producer_ids: Sequence[int]) -> list[int]:
    """The offset of each one's first record."""
    found = []
    for first in range(0, len(producer_ids), AT_ONCE):
        found += await asyncio.gather(*(write(log, each, 0) for each in producer_ids[first : first + AT_ONCE]))
    return found


async def abort_many(log: PartitionLog, producer_ids: Iterable[int], count: int) -> list[tuple[int, int]]:
    """Transactions of one record each. Returns their producers and first offsets."""
    found: list[tuple[int, int]] = []
    producer_ids, sequence = [*producer_ids], 0
    while len(found) < count:
        offsets = await asyncio.gather(*(write(log, each, sequence) for each in producer_ids))
        await asyncio.gather(*(abort(log, each) for each in producer_ids))
        found += zip(producer_ids, offsets, strict=True)
        sequence += 1
    return found


async def aborted_from(log: PartitionLog, offset: int) -> list[AbortedTransaction]:
    return await log.transactions.read_aborted(offset, log.end_offset)


def test_a_chain_of_checkpoints_with_many_open_transactions(pulsar: PulsarAddresses) -> None:
    async def test(cluster: Cluster) -> None:
        topic = await cluster.new_topic()
        waiting, aborting = range(1, OPEN + 1), range(OPEN + 1, OPEN + 51)
        async with leading(cluster, topic) as log:
            first_offsets = await open_transactions(log, waiting)
            expected = await abort_many(log, aborting, ABORTED)
            before = await aborted_from(log, 0)
            end_offset, opened = log.end_offset, dict(log.transactions.open)
        assert [(each.producer_id, each.first_offset) for each in before] == expected
        assert {key: each.first_offset for key, each in opened.items()} == dict(
            zip(waiting, first_offsets, strict=True)
        )

        async with leading(cluster, topic) as log:
            await log.transactions.prepare()
            assert not log.transactions.knows(0), "all aborted transactions are in one checkpoint"
            assert log.end_offset == end_offset
            assert dict(log.transactions.open) == opened
            assert log.transactions.last_stable_offset == first_offsets[0]
            for offset in (end_offset - 1, end_offset // 2, 0):
                assert await aborted_from(log, offset) == [each for each in before if each.last_offset >= offset]
            assert await write(log, waiting[-1], 0) == first_offsets[-1], "a repeated batch"
            for producer_id, sequence in ((waiting[-1], 1), (aborting[-1], ABORTED // len(aborting) + 1)):
                assert await write(log, producer_id, sequence) >= end_offset
            try:
                await write(log, waiting[0], 7)
            except KafkaError as error:
                assert error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            else:
                raise AssertionError("a gap between batches was accepted")
            for number, producer_id in enumerate(waiting[:2], 1):
                await abort(log, producer_id)
                assert log.transactions.last_stable_offset == first_offsets[number]

    run(pulsar, test)
