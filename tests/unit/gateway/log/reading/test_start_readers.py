"""A consumer that begins at the start of a new log goes on with the reader that has opened the log."""

from __future__ import annotations

from typing import cast

import pytest

from gateway.log.bounds.log_bounds import read_bounds
from gateway.log.entries.start_reader import open_start_reader
from gateway.log.reading import start_readers
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ConnectionLostError
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry
from protocol.kafka.batch import iter_headers
from protocol.pulsar.pulsar_commands_pb2 import MessageMetadata
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.fake_pulsar import FakeReader, FakeTopic
from tests.unit.gateway.log.reading.test_catch_up import FakeLog, Scene


class Opened(Scene):
    """A log of several entries that was just opened."""

    async def open(self, entries: int = 5) -> None:
        for _ in range(entries):
            self.write(10, 1_000)
        await self.keep(self.log)
        self.log.ends(self.topic.next_index, self.topic.last)

    async def keep(self, log: FakeLog) -> None:
        bounds = await read_bounds(cast(PulsarClient, self.topic), cast(AdminClient, self.topic), "topic")
        assert bounds.start_reader is not None
        log.start.at_first_entry = True
        self.readers.keep(log, bounds.start_reader)

    @property
    def open_readers(self) -> list[FakeReader]:
        return [reader for reader in self.topic.readers if not reader.closed]


@pytest.fixture
async def opened() -> Opened:
    scene = Opened()
    await scene.open()
    return scene


async def test_a_consumer_from_the_start_opens_no_other_reader(opened: Opened) -> None:
    readers = len(opened.topic.readers)
    await opened.read_all(0, max_bytes=1)
    assert len(opened.topic.readers) == readers
    opened.readers.close_all(opened.log)
    await let_callbacks_run()
    assert opened.open_readers == []


async def test_a_second_consumer_from_the_start_opens_its_own(opened: Opened) -> None:
    await opened.read_all(0, max_bytes=1)
    readers = len(opened.topic.readers)
    await opened.read_all(0, max_bytes=1)
    assert len(opened.topic.readers) == readers + 1
    opened.readers.close_all(opened.log)


async def test_a_consumer_of_another_offset_opens_its_own(opened: Opened) -> None:
    readers = len(opened.topic.readers)
    await opened.read_all(10, max_bytes=1)
    assert len(opened.topic.readers) > readers
    await opened.read_all(0, max_bytes=1)
    opened.readers.close_all(opened.log)
    await let_callbacks_run()
    assert opened.open_readers == []


async def test_a_log_that_is_compacted_by_now_is_not_read_with_it(opened: Opened) -> None:
    (kept,) = opened.open_readers
    opened.log.is_compacted = True
    await opened.read_all(0, max_bytes=1)
    assert opened.topic.readers[-1] is not kept
    opened.readers.close_all(opened.log)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_reader_that_the_broker_closes_is_replaced(opened: Opened, when: str) -> None:
    (kept,) = opened.open_readers
    if when == "after":
        opened.readers.start(opened.log, 0)
    kept.lose(ConnectionLostError("lost"))
    await opened.read_all(0, max_bytes=1)
    assert opened.topic.readers[-1] is not kept
    opened.readers.close_all(opened.log)
    await let_callbacks_run()
    assert opened.open_readers == []


async def test_a_reader_that_is_given_up_at_once_is_closed(opened: Opened) -> None:
    opened.readers.start(opened.log, 0)
    opened.readers.close_all(opened.log)
    await let_callbacks_run()
    assert opened.open_readers == []


async def test_the_oldest_are_closed(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    (first,) = opened.open_readers
    monkeypatch.setattr(start_readers, "MAX_KEPT", 2)
    others = [FakeLog(), FakeLog()]
    await opened.keep(others[0])
    assert not first.closed
    await opened.keep(others[1])
    await let_callbacks_run()
    assert first.closed
    assert len(opened.open_readers) == 2
    monkeypatch.setattr(start_readers, "MAX_KEPT_BYTES", 1)
    await opened.keep(opened.log)
    await let_callbacks_run()
    assert opened.open_readers == []


async def test_they_are_kept_for_a_short_time(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    opened.readers.close_idle()
    await let_callbacks_run()
    assert len(opened.open_readers) == 1
    monkeypatch.setattr(start_readers, "KEPT_S", 0)
    opened.readers.close_idle()
    await let_callbacks_run()
    assert opened.open_readers == []


async def test_what_arrives_while_a_reader_is_handed_over_comes_after_the_first_entry(opened: Opened) -> None:
    (kept,) = opened.open_readers
    opened.readers.start(opened.log, 0)
    kept.permits = 10
    kept.deliver()
    found = await opened.read(0, 1)
    assert next(header for chunk in found.chunks for _, header in iter_headers(bytes(chunk))).base_offset == 0
    opened.readers.close_all(opened.log)


@pytest.mark.parametrize("count", [-1_000_000, 0, 2**31 - 1])
async def test_a_first_entry_that_gives_the_broker_permits_ends_its_reader(count: int) -> None:
    topic = FakeTopic()
    reader = await open_start_reader(cast(PulsarClient, topic), "topic")
    metadata = MessageMetadata(producer_name="native", sequence_id=1, publish_time=0, num_messages_in_batch=1)
    reader.first = Entry(Position(1, 0), None, metadata, memoryview(b""))
    assert reader.can_go_on
    metadata.num_messages_in_batch = count
    reader.first = Entry(Position(1, 0), None, metadata, memoryview(b""))
    assert not reader.can_go_on


async def test_the_broker_has_the_permits_that_are_counted(opened: Opened) -> None:
    opened.readers.start(opened.log, 0)
    await opened.read(0, 1)
    (kept,) = opened.open_readers
    (reader,) = opened.readers._all()
    assert kept.permits == reader._window._outstanding
    opened.readers.close_all(opened.log)
