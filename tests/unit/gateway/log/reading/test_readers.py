"""More positions need a reader than may be open: all get their turn, and no reader is opened in vain."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from gateway.config.limits import Limits
from gateway.log.entries.decoding import DecodingThreads
from gateway.log.reading import readers
from gateway.log.reading.readers import CatchUpReaders
from gateway.log.reading.waiters import Waiters
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ConnectionLostError
from tests.support.empty_batch import empty_batch
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.fake_pulsar import FakeReader, FakeTopic
from tests.unit.gateway.log.reading.test_catch_up import FakeLog


class Scene:
    """Lagging partitions of one Pulsar topic: each reads the same entries."""

    def __init__(self, partitions: int, entries: int = 1, **limits: int) -> None:
        self.topic = FakeTopic()
        self.logs = [FakeLog() for _ in range(partitions)]
        self.offsets = [0] * partitions
        for _ in range(entries):
            self.topic.write(bytes(empty_batch(0, 10)), 10, "other", 0)
        for log in self.logs:
            log.ends(self.topic.next_index)
            log.start.at_first_entry = True
        admin, client = cast(AdminClient, self.topic), cast(PulsarClient, self.topic)
        self.readers = CatchUpReaders(client, admin, Limits(**limits), Metrics(), DecodingThreads(1))

    @property
    def open_readers(self) -> list[FakeReader]:
        return [reader for reader in self.topic.readers if not reader.closed]

    def want(self, *numbers: int) -> None:
        for number in numbers:
            self.readers.start(self.logs[number], self.offsets[number])

    def take(self, number: int, max_bytes: int = 1 << 20) -> bool:
        """Like a fetch that finds records; the consumer continues after them."""
        found = self.readers.read(self.logs[number], self.offsets[number], max_bytes, at_least_one=True)
        if found is not None:
            self.offsets[number] = found.next_offset
        return found is not None

    def lagging(self) -> list[int]:
        return [number for number, log in enumerate(self.logs) if self.offsets[number] < log.end_offset]

    async def fetch(self) -> int:
        """One fetch of all lagging partitions, in order; returns the number of those with records."""
        found = 0
        for number in self.lagging():
            if self.take(number):
                found += 1
            else:
                self.want(number)
        await let_callbacks_run()
        return found

    def close(self) -> None:
        for log in self.logs:
            self.readers.close_all(log)


@pytest.fixture
def turns_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "TURN_S", 0)


async def test_more_lagging_partitions_than_readers_are_all_read() -> None:
    scene = Scene(partitions=40, max_readers=4)
    for _ in range(200):
        await scene.fetch()
        assert len(scene.open_readers) <= 4
    assert scene.lagging() == []
    assert len(scene.topic.readers) == 40, "none was opened in vain"
    scene.close()


async def test_turns_are_taken_in_the_order_of_asking(turns_end_at_once: None) -> None:
    scene = Scene(partitions=3, entries=20, max_readers=1)
    turns: list[int] = []
    for _ in range(20):
        scene.want(*scene.lagging())
        await let_callbacks_run()
        for number in scene.lagging():
            if scene.take(number, max_bytes=1):
                turns.append(number)
        await let_callbacks_run()
    assert turns[:9] == [0, 1, 2, 0, 1, 2, 0, 1, 2]
    scene.close()


async def test_a_reader_that_has_delivered_nothing_keeps_its_place() -> None:
    scene = Scene(partitions=3, max_readers=2)
    scene.want(0, 1, 2)
    await let_callbacks_run()
    first, second = scene.topic.readers
    assert not first.closed and not second.closed
    assert scene.take(1)
    await let_callbacks_run()
    assert (first.closed, second.closed) == (False, True)
    scene.close()


async def test_its_turn_lasts_for_a_while() -> None:
    scene = Scene(partitions=2, entries=20, max_readers=1)
    scene.want(0, 1)
    await let_callbacks_run()
    for _ in range(3):
        assert scene.take(0, max_bytes=1)
        await let_callbacks_run()
    assert len(scene.topic.readers) == 1
    scene.close()


async def test_without_others_a_reader_continues(turns_end_at_once: None) -> None:
    scene = Scene(partitions=1, entries=20, max_readers=1)
    for _ in range(30):
        await scene.fetch()
    assert scene.lagging() == []
    assert len(scene.topic.readers) == 1
    scene.close()


async def test_a_partition_that_does_not_answer_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(partitions=2, max_readers=1)
    monkeypatch.setattr(FakeReader, "deliver", lambda self: None)
    scene.want(0)
    await let_callbacks_run()
    monkeypatch.undo()
    monkeypatch.setattr(readers, "UNPRODUCTIVE_S", 0)
    scene.want(1)
    await let_callbacks_run()
    assert scene.take(1)
    scene.close()


async def test_a_reader_that_failed_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(partitions=2, max_readers=1)
    monkeypatch.setattr(FakeReader, "deliver", lambda self: None)
    scene.want(0)
    await let_callbacks_run()
    scene.topic.readers[0].lose(ConnectionLostError("lost"))
    scene.want(1)
    await let_callbacks_run()
    assert len(scene.topic.readers) == 2
    scene.close()


async def test_positions_without_a_waiting_fetch_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetches that wait at the end of the log, or for other older data, want no reader there."""
    monkeypatch.setattr(readers, "WANTED_S", 0)
    scene = Scene(partitions=4, max_readers=1)
    scene.logs[1].waiters = waiting_at_end = Waiters(lambda: True)
    waiting_at_end.add(cast(Any, object()), 99, at_end=True)
    waiting_at_end.add(cast(Any, object()), 7, at_end=False)
    scene.logs[3].closed = True
    scene.want(0, 1, 3, 2)
    await let_callbacks_run()
    assert scene.take(0)
    await let_callbacks_run()
    assert [list(scene.readers._readers)] == [[scene.logs[2]]]
    waiting_at_end.stop_watching()
    scene.close()


async def test_a_failed_reader_whose_own_partition_waits_holds_up_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is replaced there, and must not be closed once more for the next partition."""
    scene = Scene(partitions=3, max_readers=2)
    monkeypatch.setattr(FakeReader, "deliver", lambda self: None)
    scene.want(0, 1)
    await let_callbacks_run()
    monkeypatch.undo()
    scene.offsets[0] = 5
    scene.want(0, 2)
    scene.topic.readers[0].lose(ConnectionLostError("lost"))
    scene.topic.readers[1].deliver()
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    await let_callbacks_run()
    assert failures == []
    assert scene.take(0)
    assert scene.take(1)
    await let_callbacks_run()
    assert scene.take(2)
    scene.close()


async def test_a_fetch_whose_reader_is_closed_for_others_waits_for_its_next_turn(
    turns_end_at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is woken: otherwise it would wait for data that no reader requests."""
    scene = Scene(partitions=2, entries=1, max_readers=1)
    scene.want(0)
    await let_callbacks_run()
    assert scene.take(0)
    monkeypatch.setattr(FakeReader, "deliver", lambda self: None)
    scene.topic.write(bytes(empty_batch(0, 10)), 10, "other", 1)
    for log in scene.logs:
        log.ends(20)
    assert not scene.take(0)
    scene.want(0)
    scene.logs[0].woken.clear()
    scene.want(1)
    await let_callbacks_run()
    assert [reader.closed for reader in scene.topic.readers] == [True, False]
    assert scene.logs[0].woken.is_set()
    scene.close()


async def test_a_fetch_that_waits_while_memory_is_scarce_gets_another_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeReader, "deliver", lambda self: None)
    scene = Scene(partitions=1, reader_idle_ms=100)
    scene.want(0)
    await let_callbacks_run()
    [reader] = scene.readers._all()
    reader.last_used -= 1.0
    scene.logs[0].woken.clear()
    scene.readers.close_idle()
    await let_callbacks_run()
    assert scene.open_readers == []
    assert scene.logs[0].woken.is_set()
