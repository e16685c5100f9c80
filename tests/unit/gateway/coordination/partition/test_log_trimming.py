"""When a snapshot of an internal log is due, what is replayed then, and what stays unchanged after a failure."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from gateway.coordination.partition import log_trimming
from gateway.coordination.partition.internal_log import InternalLog, Record
from gateway.coordination.partition.log_reading import read_records
from gateway.coordination.partition.log_trimming import MAX_AGE_MS, LogTrimming, TrimmedDuringReadError
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ConnectionLostError
from gateway.pulsar.position import Position
from protocol.kafka.errors import ErrorCode
from tests.unit.gateway.coordination.partition.fake_internal_topic import (
    LEDGER_ID,
    MARK,
    FakeInternalTopic,
    new_trimming,
)

TIMEOUT_S = 10.0


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_trimming, "CHECK_S", 0.0)
    monkeypatch.setattr(log_trimming, "RETRY_FIRST_S", 0.0)


class Leader:
    """The leader of the log; takes its snapshots while `trims`."""

    def __init__(self, topic: FakeInternalTopic, trimming: LogTrimming | None = None) -> None:
        self.topic = topic
        self.trimming = trimming or new_trimming(topic)
        self.log = InternalLog(cast(PulsarClient, topic), "t", lambda: 0, lambda: None)
        self.replayed: list[Record] = []

    async def open(self) -> "Leader":
        await self.log.open(MARK, lambda end: self.trimming.replay(end, self._replay))
        return self

    def _replay(self, key: bytes, value: bytes | None) -> None:
        if key != MARK[0]:
            self.replayed.append((key, value))

    async def append(self, *records: Record) -> None:
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.log.append(records, lambda error, now_ms: done.set_result(error))
        assert await asyncio.wait_for(done, TIMEOUT_S) is ErrorCode.NONE

    async def trim_until(self, condition: Callable[[], bool]) -> None:
        trimming = asyncio.create_task(self.trimming.run(self.log))
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                await asyncio.sleep(0)
        trimming.cancel()
        await asyncio.gather(trimming, return_exceptions=True)

    async def run_turns(self, turns: int = 100) -> None:
        await self.trim_until(iter([*[False] * turns, True]).__next__)


def last_snapshot(topic: FakeInternalTopic) -> Position:
    properties = topic.cursor_properties
    return Position(properties["kafka.snapshot.ledger"], properties["kafka.snapshot.entry"])


async def test_a_log_without_a_snapshot_gets_one_at_once_and_is_replayed_from_it() -> None:
    topic = FakeInternalTopic()
    topic.cursor_properties = {}
    leader = await Leader(topic).open()
    await leader.append((b"a", b"1"), (b"a", b"2"), (b"b", b"1"), (b"b", None))
    await leader.trim_until(lambda: bool(topic.cursor_properties))
    topic.trim()
    assert last_snapshot(topic) == topic.acknowledged > Position(LEDGER_ID, 0)
    assert (await Leader(topic).open()).replayed == [(b"a", b"2")]


async def test_a_snapshot_is_due_when_a_segment_is_written() -> None:
    topic = FakeInternalTopic()
    leader = await Leader(topic, new_trimming(topic, segment_bytes=1_000)).open()
    await leader.append((b"a", b"1"))
    await leader.run_turns()
    assert last_snapshot(topic).entry_id == 0
    await leader.append((b"a", b"2" * 1_000))
    await leader.trim_until(lambda: last_snapshot(topic).entry_id > 0)
    before = last_snapshot(topic)
    await leader.run_turns()
    assert last_snapshot(topic) == before


async def test_the_next_leader_counts_what_it_replays() -> None:
    topic = FakeInternalTopic()
    await (await Leader(topic).open()).append((b"a", b"1" * 2_000))
    leader = await Leader(topic, new_trimming(topic, segment_bytes=1_000)).open()
    await leader.trim_until(lambda: last_snapshot(topic).entry_id > 0)


async def test_a_large_snapshot_is_not_taken_again_before_as_much_is_written() -> None:
    topic = FakeInternalTopic()
    leader = await Leader(topic, new_trimming(topic, segment_bytes=10)).open()
    await leader.append((b"large", b"1" * 10_000))
    await leader.trim_until(lambda: last_snapshot(topic).entry_id > 0)
    before = last_snapshot(topic)
    await leader.append((b"a", b"1" * 5_000))
    await leader.run_turns()
    assert last_snapshot(topic) == before
    await leader.append((b"a", b"1" * 5_000))
    await leader.trim_until(lambda: last_snapshot(topic) > before)


async def test_a_snapshot_is_due_each_day() -> None:
    topic = FakeInternalTopic()
    topic.cursor_properties["kafka.snapshot.timestamp"] = 1
    await (await Leader(topic, new_trimming(topic, now_ms=MAX_AGE_MS)).open()).run_turns()
    assert last_snapshot(topic).entry_id == 0
    leader = await Leader(topic, new_trimming(topic, now_ms=MAX_AGE_MS + 1)).open()
    await leader.trim_until(lambda: last_snapshot(topic).entry_id > 0)
    assert topic.cursor_properties["kafka.snapshot.timestamp"] == MAX_AGE_MS + 1


async def test_without_the_admin_api_the_compacted_log_is_replayed() -> None:
    topic = FakeInternalTopic()
    first = await Leader(topic).open()
    await first.append((b"a", b"1"))
    topic.admin_failures = [ConnectionLostError("no admin API")]
    assert (await Leader(topic).open()).replayed == [(b"a", b"1")]


async def test_nothing_is_copied_while_the_last_snapshot_is_not_known() -> None:
    """The compacted ledger may be an old one, with records whose tombstones were trimmed."""
    topic = FakeInternalTopic()
    topic.cursor_properties = {}
    first = await Leader(topic).open()
    await first.append((b"a", b"1"))
    tombstone = len(topic.history)
    await first.append((b"a", None))
    await first.trim_until(lambda: bool(topic.cursor_properties))
    topic.trim()
    topic.history[tombstone] = topic.history[0]
    topic.admin_failures = [ConnectionLostError("no admin API")] * 2
    second = await Leader(topic).open()
    assert second.replayed == [(b"a", b"1")], "the old ledger"
    before = last_snapshot(topic)
    await second.trim_until(lambda: last_snapshot(topic) > before)
    topic.trim()
    assert (await Leader(topic).open()).replayed == []


async def test_a_subscription_that_fails_is_tried_again() -> None:
    topic = FakeInternalTopic()
    topic.cursor_properties = {}
    topic.subscription_failures = [ConnectionLostError("lost")] * 2
    leader = await Leader(topic).open()
    await leader.append((b"a", b"1"))
    await leader.trim_until(lambda: bool(topic.cursor_properties))
    topic.trim()
    assert (await Leader(topic).open()).replayed == [(b"a", b"1")]


async def test_a_log_that_was_trimmed_while_it_was_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = FakeInternalTopic()
    await (await Leader(topic).open()).append((b"a", b"1"))
    async def trimmed_meanwhile(*args: object, **options: object) -> int:
        topic.cursor_properties = {**topic.cursor_properties, "kafka.snapshot.entry": 1}
        return await read_records(*args, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch, pytest.raises(TrimmedDuringReadError):
        patch.setattr(log_trimming, "read_records", trimmed_meanwhile)
        await Leader(topic).open()
    await Leader(topic).open()


async def test_nothing_is_trimmed_for_a_leader_that_is_fenced_meanwhile() -> None:
    topic = FakeInternalTopic()
    topic.cursor_properties = {}
    first = await Leader(topic).open()
    await first.append((b"a", b"1"))
    trimming = asyncio.create_task(first.trimming.run(first.log))
    second = await Leader(topic).open()
    await asyncio.wait_for(first.log.wait_lost(), TIMEOUT_S)
    await asyncio.wait_for(trimming, TIMEOUT_S)
    assert topic.cursor_properties == {}
    await second.append((b"a", b"2"))
    await second.trim_until(lambda: bool(topic.cursor_properties))
    topic.trim()
    assert (await Leader(topic).open()).replayed == [(b"a", b"2")]
