"""Searches by time: the first record that is not older, in few parts at a time, and not from the beginning again."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from random import Random
from typing import Any, cast

import pytest

from gateway.config.limits import MIB, Limits
from gateway.log import timestamps
from gateway.log.bounds.log_bounds import LogBounds
from gateway.log.partition_log import PartitionLog
from gateway.log.reading import passed_times
from gateway.log.reading.passed_times import Passed, PassedTimes
from gateway.log.shared import MAX_SCANS, Shared
from gateway.log.timestamps import find_by_timestamp, find_max_timestamp, holds_before
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.position import Position
from protocol.kafka.records import Record, encode_batch
from tests.unit.gateway.log.fake_pulsar import FakeReader, FakeTopic

PUBLISHED_MS = 1_000_000
"""All entries are published at that time, whatever their records' timestamps are."""


class CopiedTopic(FakeTopic):
    """Its ledgers are larger than what is searched record by record."""

    most_reading = 0
    """The most readers that were open at the same time."""

    async def open_reader(self, *arguments: Any, **options: Any) -> FakeReader:
        opened = await super().open_reader(*arguments, **options)
        self.most_reading = max(self.most_reading, sum(not reader.closed for reader in self.readers))
        return opened

    async def internal_stats(self, topic: str) -> Any:
        found = await super().internal_stats(topic)
        return replace(found, ledgers=tuple(each._replace(size_bytes=1 << 40) for each in found.ledgers))

    async def position_at(self, topic: str, timestamp_ms: int) -> Position:
        if timestamp_ms <= PUBLISHED_MS:
            return self.entries[0][0]
        return self.last._replace(entry_id=self.last.entry_id + 1)

    def add(self, *times_ms: int) -> None:
        records = [Record(number, time_ms, None, b"value") for number, time_ms in enumerate(times_ms)]
        self.write(bytes(encode_batch(records)), len(records), "p", 0)


class ExpiredTopic(CopiedTopic):
    """Its entries are in no ledger but the compacted one."""

    async def internal_stats(self, topic: str) -> Any:
        return replace(await super().internal_stats(topic), ledgers=())


def shared_of(topic: FakeTopic) -> Shared:
    limits = Limits(timestamp_scan_bytes=MIB)
    return Shared(cast(PulsarClient, topic), cast(AdminClient, topic), limits, Metrics(), lambda: True)


def log_of(topic: FakeTopic) -> PartitionLog:
    bounds = LogBounds(topic.last, topic.next_index, 0, asked_at=math.inf)
    return PartitionLog("topic", shared_of(topic), bounds)


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> CopiedTopic:
    monkeypatch.setattr(timestamps, "PART_BYTES", 200)  # about two entries
    return CopiedTopic()


async def test_a_log_of_compacted_entries_only() -> None:
    """Retention has deleted the ledgers that were compacted before the log was opened."""
    topic = ExpiredTopic()
    topic.add(3, 7)
    topic.add(5)
    topic.compacted_ledger_id = 1
    expired = LogBounds(Position(-1, -1), topic.next_index, 0, asked_at=math.inf)
    log = PartitionLog("topic", shared_of(topic), expired, lambda: True)
    assert await find_max_timestamp(log) == (1, 7)
    assert await find_by_timestamp(log, 4) == (1, 7)
    assert await find_by_timestamp(log, 8) is None


async def test_what_was_stored_before_a_time_whatever_timestamps_it_has(topic: CopiedTopic) -> None:
    assert not await holds_before(log_of(topic), PUBLISHED_MS)
    topic.add(-1)
    topic.add(2 * PUBLISHED_MS)
    log = log_of(topic)
    assert [await holds_before(log, PUBLISHED_MS + late) for late in (-1, 0, 1)] == [False, True, True]


async def test_few_searches_read_at_the_same_time(topic: CopiedTopic) -> None:
    for _ in range(10):
        topic.add(1)
    logs = [log_of(topic) for _ in range(5 * MAX_SCANS)]
    for each in logs[1:]:
        each.resources = logs[0].resources
    found = await asyncio.gather(*(find_by_timestamp(each, 2) for each in logs))
    assert found == [None] * len(logs)
    assert 1 < topic.most_reading <= MAX_SCANS
    topic.most_reading = 0
    await asyncio.gather(*(find_max_timestamp(each) for each in logs))
    assert 1 < topic.most_reading <= MAX_SCANS


async def test_a_search_whose_client_has_left_is_continued_by_the_next_one(topic: CopiedTopic) -> None:
    for time_ms in range(1, 101):
        topic.add(time_ms)
    log = log_of(topic)
    first = asyncio.create_task(find_by_timestamp(log, 100))
    while len(topic.readers) < 5:
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    begun = topic.readers[-1].first_entry
    assert begun > 0
    assert await find_by_timestamp(log, 100) == (99, 100)
    assert topic.readers[5].first_entry >= begun - 2


async def test_a_search_that_waits_for_pulsar_holds_up_nobody(
    topic: CopiedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timestamps, "HOLD_S", 0.001)
    topic.add(1)
    log, silent = log_of(topic), CopiedTopic()
    silent.add(1)
    waiting = []
    for _ in range(2 * MAX_SCANS):
        other = log_of(silent)
        other.resources = log.resources._replace(client=cast(PulsarClient, silent), admin=cast(AdminClient, silent))
        monkeypatch.setattr(FakeReader, "deliver", deliver_unless(silent))
        waiting.append(asyncio.create_task(find_by_timestamp(other, 1)))
    async with asyncio.timeout(5):
        assert await find_by_timestamp(log, 1) == (0, 1)
    assert not any(task.done() for task in waiting)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


def deliver_unless(silent: FakeTopic, deliver: Any = FakeReader.deliver) -> Any:
    return lambda reader: None if reader.topic is silent else deliver(reader)


@pytest.mark.parametrize("seed", range(20))
async def test_the_first_record_that_is_not_older_in_any_order_of_times(topic: CopiedTopic, seed: int) -> None:
    """Times go back and forth, some records have none, and the log grows between the searches."""
    random, written = Random(seed), list[int]()
    log = None
    for _ in range(12):
        for _ in range(random.randint(1, 6)):
            times_ms = [random.choice([-1, random.randint(0, 50)]) for _ in range(random.randint(1, 4))]
            written += times_ms
            topic.add(*times_ms)
        if random.random() < 0.2:
            topic.roll_over()
        passed, log = (None if log is None else log.passed_times), log_of(topic)
        log.passed_times = passed or log.passed_times
        for _ in range(3):
            wanted = random.randint(0, 52)
            expected = next(((at, time_ms) for at, time_ms in enumerate(written) if time_ms >= wanted), None)
            assert await find_by_timestamp(log, wanted) == expected
    assert log is not None and log.passed_times._known


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passed_times, "MAX_KNOWN", 10)
    known = PassedTimes()
    assert known.before(5) is None
    for number in range(100):
        known.learn(Passed(Position(1, number), number // 2))
        known.learn(Passed(Position(1, 0), 1_000))  # an older search
    assert len(known._known) <= 10
    found = known.before(50)
    assert found is not None and found.latest < 50 and found.position > Position(1, 80)
    assert known.before(0) is None
