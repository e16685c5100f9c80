"""Readers of older data against a broker that counts permits as Pulsar does: below zero, by whole entries."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.config.limits import MIB, Limits
from gateway.log.bounds.log_end import LogEnd
from gateway.log.entries.decoding import DecodingThreads
from gateway.log.reading import catch_up
from gateway.log.reading.read_source import ReadSource
from gateway.log.reading.readers import CatchUpReaders
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ConnectionLostError
from gateway.pulsar.position import Position
from protocol.kafka.batch import iter_headers
from protocol.kafka.records import Record, encode_batch
from tests.support.empty_batch import empty_batch
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.fake_pulsar import FakeReader, FakeTopic


class FakeLog(ReadSource):
    start: Any
    waiters: Any

    def __init__(self) -> None:
        self.woken = asyncio.Event()
        start: Any = SimpleNamespace(offset=0, at_first_entry=False, refresh=self._nothing_removed)
        waiters: Any = SimpleNamespace(wake=self.woken.set, wait_for=lambda offset: True)
        self.known_end = LogEnd[None](Position(-1, -1), 0)
        self.is_compacted = False
        super().__init__("topic", start, self.known_end, waiters, lambda: self.is_compacted)

    def ends(self, end_offset: int, last: Position | None = None) -> None:
        self.known_end.next_offset = end_offset
        self.known_end.last = self.known_end.last if last is None else last

    async def _nothing_removed(self, *, at_most_every_s: float) -> None:
        pass


class Scene:
    def __init__(self, **limits: int) -> None:
        self.topic, self.log = FakeTopic(), FakeLog()
        admin, client = cast(AdminClient, self.topic), cast(PulsarClient, self.topic)
        self.readers = CatchUpReaders(client, admin, Limits(**limits), Metrics(), DecodingThreads(1))

    def write(self, count: int, size_bytes: int) -> None:
        """An entry of ``count`` offsets, in batches of about ``size_bytes`` together."""
        batches = max(1, min(count, size_bytes // len(empty_batch(0, 1))))
        data = b"".join(bytes(empty_batch(0, 1)) for _ in range(batches - 1))
        self.topic.write(data + bytes(empty_batch(0, count - batches + 1)), count, "other", 0)

    def compact(self, *removed: int) -> None:
        """Compaction reads all entries, and removes those with these numbers."""
        self.log.is_compacted = True
        self.topic.compacted_to = self.topic.last
        self.topic.compacted_away = {self.topic.entries[number][0] for number in removed}

    async def read(self, offset: int, max_bytes: int) -> Any:
        async with asyncio.timeout(5):
            while True:
                self.log.woken.clear()
                found = self.readers.read(self.log, offset, max_bytes, at_least_one=True)
                if found is not None:
                    return found
                self.readers.start(self.log, offset)
                await self.log.woken.wait()

    async def read_all(self, offset: int, max_bytes: int) -> None:
        """Every offset once, in order."""
        while offset < self.topic.next_index:
            found = await self.read(offset, max_bytes)
            for chunk in found.chunks:
                for _, header in iter_headers(bytes(chunk)):
                    assert header.base_offset == offset
                    offset = header.last_offset + 1
            assert found.next_offset == offset


@settings(max_examples=60, deadline=None)
@given(
    entries=st.lists(st.tuples(st.integers(1, 2_000), st.integers(60, 20_000)), min_size=1, max_size=40),
    max_bytes=st.integers(1, 100_000),
)
async def test_a_reader_never_stalls_however_entries_differ(entries: list[tuple[int, int]], max_bytes: int) -> None:
    scene = Scene(reader_budget_bytes=MIB)
    for count, size_bytes in entries:
        scene.write(count, size_bytes)
    await scene.read_all(0, max_bytes)
    assert len(scene.topic.readers) == 1
    scene.readers.close_all(scene.log)


async def test_large_messages_and_then_entries_of_many_small_ones() -> None:
    """By the average message so far, few permits are enough; one such entry uses a thousand."""
    scene = Scene(reader_budget_bytes=MIB)
    large = bytes(encode_batch([Record(0, 1, None, bytes(100_000), ())]))
    for _ in range(100):
        scene.topic.write(large, 1, "other", 0)
    for _ in range(5):
        scene.write(1_000, 100)
    await scene.read_all(0, 10_000)
    scene.readers.close_all(scene.log)


async def test_the_budget_bounds_what_is_read_ahead() -> None:
    scene = Scene(reader_budget_bytes=MIB)
    for _ in range(100):
        scene.write(1_000, 61_000)
    await scene.read(0, 1)
    for _ in range(100):
        await asyncio.sleep(0)
    reader = scene.topic.readers[0]
    assert reader.next_entry * 61_000 < 2 * MIB
    scene.readers.close_all(scene.log)


async def test_many_readers_share_one_budget_and_all_get_on() -> None:
    scene = Scene(readers_budget_bytes=MIB)
    for _ in range(600):
        scene.write(1_000, 61_000)
    offsets = [number * 20_000 for number in range(20)]
    for offset in offsets:
        scene.readers.start(scene.log, offset)
    for _ in range(300):
        await asyncio.sleep(0)
    ahead = [reader.next_entry - offset // 1_000 for reader, offset in zip(scene.topic.readers, offsets, strict=True)]
    assert min(ahead) >= 1
    assert sum(ahead) * 61_000 < 8 * MIB
    scene.readers.close_all(scene.log)


async def test_a_lost_reader_is_replaced_where_it_stood() -> None:
    scene = Scene()
    for _ in range(4):
        scene.write(10, 610)
    first = await scene.read(0, 610)
    scene.topic.readers[0].lose(ConnectionLostError("lost"))
    await scene.read_all(first.next_offset, 610)
    scene.readers.close_all(scene.log)


async def test_readers_that_end_at_once_are_opened_after_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry that no broker can send ends each connection on which it is sent."""
    monkeypatch.setattr(
        FakeReader, "deliver", lambda reader: reader.closed or reader.lose(ConnectionLostError("lost"))
    )
    scene = Scene()
    scene.write(10, 610)
    fetch = asyncio.create_task(scene.read(0, 610))
    await asyncio.sleep(0.1)
    fetch.cancel()
    assert len(scene.topic.readers) == 1
    scene.readers.close_all(scene.log)


async def test_a_reader_that_a_defect_keeps_from_opening_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise fetches at this position would wait for ever."""
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
    scene = Scene()
    scene.write(10, 610)
    monkeypatch.setattr(FakeTopic, "open_reader", AsyncMock(side_effect=KeyError("a defect")))
    scene.readers.start(scene.log, 0)
    await let_callbacks_run()
    monkeypatch.undo()
    await scene.read_all(0, 610)
    assert isinstance(failures[0]["exception"], KeyError)
    scene.readers.close_all(scene.log)


async def test_stalled_readers_are_closed_when_memory_is_scarce() -> None:
    scene = Scene(readers_budget_bytes=MIB)
    for _ in range(3):
        scene.write(10_000, MIB // 2)
    for offset in (20_000, 10_000, 0):
        await scene.read(offset, 1)
    stalled, *rest = scene.readers._all()
    stalled.last_used -= 2
    scene.readers.close_idle()
    assert list(scene.readers._all()) == rest
    scene.readers.close_all(scene.log)


async def test_idle_readers_are_closed() -> None:
    scene = Scene(reader_idle_ms=100)
    scene.write(10, 610)
    await scene.read(0, 1)
    scene.readers.close_idle()
    await asyncio.sleep(0)
    assert not scene.topic.readers[0].closed
    next(iter(scene.readers._all())).last_used -= 1
    scene.readers.close_idle()
    await asyncio.sleep(0)
    assert scene.topic.readers[0].closed


async def test_the_first_entry_is_read_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    async def search(*_: object) -> None:
        raise AssertionError("searched")

    monkeypatch.setattr(catch_up, "find_position", search)
    scene = Scene()
    scene.log.start.at_first_entry = True
    for _ in range(3):
        scene.write(10, 1_000)
    await scene.read_all(0, 10_000)
    scene.readers.close_all(scene.log)


class ExpiringLog(FakeLog):
    """Its start is read again when it is requested."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__()
        self.ends(end)
        self.found = start
        self.start.refresh = self._find

    async def _find(self, *, at_most_every_s: float) -> None:
        self.start.offset = self.found


async def test_a_log_that_has_expired_altogether(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "SILENT_S", 0.01)
    scene = Scene()
    scene.log = ExpiringLog(start=10, end=10)
    scene.readers.start(scene.log, 3)
    async with asyncio.timeout(5):
        await scene.log.woken.wait()
    assert scene.log.start.offset == 10
    assert scene.readers.read(scene.log, 3, 1_000, at_least_one=True) is None
    scene.readers.close_all(scene.log)


@pytest.mark.parametrize("expired", [True, False])
async def test_retention_that_overtakes_a_reader(expired: bool) -> None:
    scene = Scene()
    scene.log = ExpiringLog(start=20 if expired else 0, end=30)
    scene.write(10, 1_000)
    scene.topic.roll_over()
    scene.topic.next_index += 10
    scene.write(10, 1_000)
    scene.readers.start(scene.log, 0)
    for _ in range(50):
        await asyncio.sleep(0)
    found = scene.readers.read(scene.log, 0, 100_000, at_least_one=True)
    assert (found is None) is expired
    assert scene.log.start.offset == scene.log.found
    scene.readers.close_all(scene.log)


async def test_offsets_that_brokers_keep_to_themselves_are_no_loss() -> None:
    """Markers of replication: there is no admin request for each of them."""
    scene = Scene()
    scene.log = ExpiringLog(start=99, end=30)
    for _ in range(3):
        scene.write(10, 1_000)
        scene.topic.next_index += 1
    assert (await scene.read(0, 100_000)).next_offset >= 10
    assert scene.log.start.offset == 0
    scene.readers.close_all(scene.log)


async def test_what_brokers_keep_to_themselves_at_the_end_is_stepped_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "SILENT_S", 0.01)
    scene = Scene()
    scene.write(10, 1_000)
    last = [scene.topic.write_marker(3) for _ in range(40)][-1]
    scene.log.ends(scene.topic.next_index, last)
    await scene.read_all(0, 100_000)
    scene.write(10, 1_000)
    last = scene.topic.write_marker()
    scene.log.ends(scene.topic.next_index, last)
    await scene.read_all(130, 100_000)
    scene.readers.close_all(scene.log)


async def test_what_only_comes_late_is_not_stepped_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "SILENT_S", 0.01)
    scene = Scene()
    scene.write(1, 100)
    assert (await scene.read(0, 1_000)).next_offset == 1
    [reader] = scene.topic.readers
    reader.permits = -100
    scene.topic.delivers = False
    scene.topic.write_marker()
    scene.write(1, 100)
    last = scene.topic.write_marker()
    scene.log.ends(scene.topic.next_index, last)
    scene.readers.start(scene.log, 1)
    await asyncio.sleep(0.05)
    assert scene.readers.read(scene.log, 1, 1_000, at_least_one=True) is None
    reader.permits = 1
    reader.deliver()
    assert (await scene.read(1, 1_000)).next_offset == 3
    assert (await scene.read(3, 1_000)).next_offset == 4
    scene.readers.close_all(scene.log)


@pytest.mark.parametrize("asks", [True, False])
async def test_data_that_another_reader_holds_is_found_when_the_own_one_has_failed(asks: bool) -> None:
    """Nothing would wake the fetch: all data of the other reader has arrived."""
    scene = Scene()
    scene.write(10, 100)
    scene.log.ends(20)
    assert (await scene.read(0, MIB)).next_offset == 10
    assert scene.readers.read(scene.log, 10, MIB, at_least_one=True) is None
    await scene.read(0, 1)  # of another consumer, which then waits
    scene.write(10, 100)
    assert (await scene.read(10, MIB)).next_offset == 20
    first, _ = scene.topic.readers
    first.lose(ConnectionLostError("lost"))
    scene.write(10, 100)
    scene.log.ends(30)
    await let_callbacks_run()
    assert not asks or scene.readers.holds(scene.log, 20)
    found = scene.readers.read(scene.log, 20, MIB, at_least_one=True)
    assert found is not None and found.next_offset == 30
    scene.readers.close_all(scene.log)


async def test_a_fetch_whose_failed_reader_another_fetch_removes_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "RETRY_S", 0.001)
    scene = Scene()
    scene.write(10, 100)
    scene.log.ends(10)
    scene.log.start.at_first_entry = True
    with monkeypatch.context() as failing:
        failing.setattr(scene.topic, "open_reader", AsyncMock(side_effect=ConnectionLostError("lost")))
        scene.readers.start(scene.log, 0)
        await let_callbacks_run()
    assert not scene.readers.holds(scene.log, 5), "the other fetch"
    async with asyncio.timeout(5):
        await scene.log.woken.wait()
    scene.readers.close_all(scene.log)


async def test_a_reader_stops_when_messages_become_large() -> None:
    """Permits count messages: a broker that may send thousands of small ones may send as many large ones."""
    scene = Scene(reader_budget_bytes=MIB, readers_budget_bytes=MIB)
    scene.write(2_000, 2_000)
    large = bytes(encode_batch([Record(0, 1_000, None, bytes(100_000), ())], base_offset=0))
    for _ in range(100):
        scene.topic.write(large, 1, "other", 0)
    scene.log.start.at_first_entry = True
    scene.log.ends(scene.topic.next_index, scene.topic.last)
    await scene.read(0, 1)
    await let_callbacks_run()
    (reader,) = scene.readers._all()
    assert reader.held_bytes < 3 * MIB
    await scene.read_all(0, 1 << 20)
    scene.readers.close_all(scene.log)
