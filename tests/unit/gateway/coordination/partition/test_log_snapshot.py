"""A snapshot copies the current records of a log, and never an older record after a newer one."""

import asyncio
from typing import cast

import pytest

from gateway.coordination.partition import internal_log, log_reading, log_snapshot
from gateway.coordination.partition.internal_log import InternalLog, Record
from gateway.coordination.partition.log_reading import Replay, read_records
from gateway.coordination.partition.log_snapshot import LogSnapshot, SnapshotFailedError
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.position import Position
from protocol.kafka.errors import ErrorCode
from tests.unit.gateway.coordination.partition.fake_internal_topic import MARK, FakeInternalTopic, FakeProducer

TIMEOUT_S = 10.0


class Scene:
    def __init__(self) -> None:
        self.topic = FakeInternalTopic()
        self.log = InternalLog(cast(PulsarClient, self.topic), "t", lambda: 0, lambda: None)
        self.answers: list[ErrorCode] = []
        self.reading = asyncio.Event()
        self.may_read = asyncio.Event()
        self.may_read.set()

    async def open(self, *records: Record) -> "Scene":
        async def nothing(end: Position) -> None:
            pass

        await self.log.open(MARK, nothing)
        for record in records:
            self.append(record)
        return self

    def append(self, *records: Record) -> None:
        self.log.append(records, lambda error, now_ms: self.answers.append(error))

    async def read_to(self, end: Position, replay: Replay) -> None:
        await read_records(cast(PulsarClient, self.topic), "t", "earliest", end, replay, read_compacted=True)
        self.reading.set()
        await self.may_read.wait()

    async def take(self) -> list[Record]:
        """The records after the mark at the end."""
        position = await asyncio.wait_for(LogSnapshot(self.log).take(MARK, self.read_to), TIMEOUT_S)
        return self.behind(position)

    def behind(self, position: Position) -> list[Record]:
        entries = zip(self.topic.entries, self.topic.records(), strict=True)
        return [cast(Record, record) for entry, records in entries if entry.position > position for record in records]

    async def take_while_read(self, *records: Record) -> list[Record]:
        """The records are appended when all is read, and nothing is copied yet."""
        self.may_read.clear()
        taking = asyncio.create_task(self.take())
        await self.reading.wait()
        for record in records:
            self.append(record)
        self.may_read.set()
        return await taking


async def test_the_last_record_of_each_key_is_copied_and_no_tombstone() -> None:
    scene = await Scene().open((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"a", b"2"), (b"b", None))
    assert await scene.take() == [(b"c", b"1"), (b"a", b"2")]


async def test_an_empty_log_has_an_empty_snapshot() -> None:
    scene = await Scene().open()
    assert await scene.take() == []


async def test_the_mark_shares_its_entry_with_nothing() -> None:
    scene = await Scene().open((b"a", b"1"))
    taking = asyncio.create_task(scene.take())
    scene.append((b"b", b"1"))
    await taking
    assert [MARK] in scene.topic.records()[1:]


async def test_what_is_written_meanwhile_is_newer_than_a_copy() -> None:
    scene = await Scene().open((b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    assert await scene.take_while_read((b"a", b"2"), (b"b", None)) == [(b"a", b"2"), (b"b", None), (b"c", b"1")]


async def test_what_the_log_refused_meanwhile_is_copied_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeProducer, "max_message_bytes", 2_000)
    scene = await Scene().open((b"a", b"1"), (b"b", b"1"))
    assert sorted(await scene.take_while_read((b"a", b"2" * 3_000))) == [(b"a", b"1"), (b"b", b"1")]
    assert scene.answers[-1] is ErrorCode.MESSAGE_TOO_LARGE


async def test_a_key_waits_while_its_append_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_snapshot, "SLICE_RECORDS", 1)
    scene = await Scene().open((b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    assert await scene.take_while_read((b"b", b"2")) == [(b"b", b"2"), (b"a", b"1"), (b"c", b"1")]


async def test_much_is_copied_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reading, "SLICE_RECORDS", 3)
    monkeypatch.setattr(log_snapshot, "SLICE_BYTES", 10)
    records: list[Record] = [(b"k%d" % number, b"value") for number in range(20)]
    scene = await Scene().open(*records)
    assert await scene.take() == records
    assert max(map(len, scene.topic.records()[3:])) == 2


async def test_a_log_that_is_lost_meanwhile_has_no_snapshot() -> None:
    scene = await Scene().open((b"a", b"1"))
    scene.may_read.clear()
    taking = asyncio.create_task(scene.take())
    await scene.reading.wait()
    scene.topic.producers[-1].lose()
    scene.may_read.set()
    with pytest.raises(SnapshotFailedError):
        await taking
    assert scene.log.append_filter is None


async def test_a_crowded_log_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = await Scene().open((b"a", b"1"))
    monkeypatch.setattr(internal_log, "MAX_QUEUED_BYTES", 1)
    with pytest.raises(SnapshotFailedError):
        await scene.take()


async def test_taking_it_may_be_cancelled() -> None:
    scene = await Scene().open((b"a", b"1"))
    scene.topic.holds = True
    taking = asyncio.create_task(scene.take())
    await asyncio.sleep(0)
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    scene.topic.producers[-1].lose()
    assert scene.log.append_filter is None
