"""Entries at the end of a log that the admin API cannot return: a reader shows whether brokers dispatch them."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from gateway.log.bounds.log_bounds import read_bounds
from gateway.log.entries import entry_stream, silent_reader, stored_entries
from gateway.log.entries.undispatched import undispatched_end
from gateway.log.reading.entry_lookup import EntryLookup
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import TopicClosedError
from gateway.pulsar.position import Position
from tests.unit.gateway.log.fake_pulsar import FakeReader, FakeTopic

NOTHING = Position(-1, -1)


class Topic(FakeTopic):
    """The admin API does not return some entries."""

    def __init__(self, *, silent: bool = False) -> None:
        super().__init__()
        self.silent = silent
        self.unreturned: set[Position] = set()

    async def entry(self, topic: str, position: Position) -> Any:
        if position in self.unreturned:
            if self.silent:
                await asyncio.Event().wait()
            raise AdminError(500, "Server Error")
        return await super().entry(topic, position)

    def write_record(self) -> Position:
        return self.write(b"", 1, "native", 0, native=True)

    def write_large_record(self) -> Position:
        self.unreturned.add(position := self.write_record())
        return position

    def write_large_marker(self, count: int = 1) -> Position:
        self.unreturned.add(position := self.write_marker(count))
        return position

    async def end_behind(self, behind: Position, last: Position | None = None) -> int | None:
        client, admin = cast(PulsarClient, self), cast(AdminClient, self)
        return await undispatched_end(client, admin, "topic", behind, last or self.last)


@pytest.fixture(autouse=True)
def short_silences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_entries, "ANSWER_S", 0.05)
    monkeypatch.setattr(silent_reader, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(entry_stream, "SILENT_S", 0.01)


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silent_reader, "PATIENCE_S", 0.05)


@pytest.mark.parametrize("silent", [True, False])
async def test_pulsar_counts_up_to_the_last_entry(silent: bool) -> None:
    topic = Topic(silent=silent)
    record = topic.write_record()
    topic.write_large_marker(3)
    topic.write_marker(2)
    topic.write_large_marker(4)
    assert await topic.end_behind(record) == 10
    assert all(reader.closed for reader in topic.readers)


async def test_records_between_them_are_seen() -> None:
    topic = Topic()
    record = topic.write_large_record()
    topic.write_large_marker()
    assert await topic.end_behind(NOTHING) is None
    assert await topic.end_behind(record) == 2


@pytest.mark.usefixtures("short_patience")
async def test_a_record_that_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic()
    topic.write_large_record()
    monkeypatch.setattr(FakeReader, "deliver", lambda reader: None)
    assert await topic.end_behind(NOTHING) is None
    assert all(reader.closed for reader in topic.readers)


async def test_a_record_that_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cursor is behind the entry, which has not arrived yet. It arrives before the answer to the next request."""
    topic = Topic()
    topic.write_large_record()
    deliver, last_position = FakeReader.deliver, FakeReader.last_position

    async def arrives_before(reader: FakeReader) -> Position:
        reader.next_entry = 0
        deliver(reader)
        return await last_position(reader)

    monkeypatch.setattr(FakeReader, "deliver", lambda reader: setattr(reader, "next_entry", 1))
    monkeypatch.setattr(FakeReader, "last_position", arrives_before)
    assert await topic.end_behind(NOTHING) is None


@pytest.mark.usefixtures("short_patience")
async def test_a_reader_that_the_broker_closes_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic()
    topic.write_large_marker()

    async def closes(reader: FakeReader) -> Position:
        reader.lose(TopicClosedError("unloaded"))
        return topic.last

    monkeypatch.setattr(FakeReader, "last_position", closes)
    assert await topic.end_behind(NOTHING) is None


async def test_the_next_entry_shows_the_end_of_those_before_it() -> None:
    topic = Topic()
    topic.write_large_marker(3)
    last = topic.write_large_marker(4)
    topic.roll_over()
    topic.write(b"", 2, "native", 0, native=True)
    assert await topic.end_behind(NOTHING, last) == 7


async def test_entries_that_are_being_written_are_counted_too() -> None:
    topic = Topic()
    topic.write_large_marker()
    topic.pending_adds = 1
    assert await topic.end_behind(NOTHING) is None


async def test_an_entry_that_is_written_after_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic()
    last = topic.write_large_marker()
    read = topic.managed_ledger_properties

    async def meanwhile(name: str) -> dict[str, str]:
        topic.write_record()
        return await read(name)

    monkeypatch.setattr(topic, "managed_ledger_properties", meanwhile)
    assert await topic.end_behind(NOTHING, last) is None


async def test_a_broker_that_does_not_know_the_newest_count(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic()
    topic.write_large_marker()

    async def older(name: str) -> dict[str, str]:
        return {"index": "-1"}

    monkeypatch.setattr(topic, "managed_ledger_properties", older)
    assert await topic.end_behind(NOTHING) is None


async def test_entries_without_an_offset_have_the_end_before_them() -> None:
    """Their producer sent them as no messages: they have no index."""
    topic = Topic()
    record = topic.write_record()
    for _ in range(2):
        position = topic.write_marker(0)
        topic.entries[-1] = position, cast(int, None), b"", topic.entries[-1][3]
    assert await topic.end_behind(record) == 1
    topic.write_record()
    assert await topic.end_behind(record, position) == 1


async def test_nothing_is_known_when_nothing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic()
    topic.write_large_marker()

    async def fails(name: str) -> Any:
        raise AdminError(500, "no")

    monkeypatch.setattr(topic, "internal_stats", fails)
    assert await topic.end_behind(NOTHING) is None


async def test_a_log_is_opened_that_holds_nothing_else() -> None:
    topic = Topic()
    topic.write_large_marker(3)
    topic.write_large_marker(4)
    bounds = await read_bounds(cast(PulsarClient, topic), cast(AdminClient, topic), "topic")
    assert (bounds.last, bounds.start_offset, bounds.next_offset) == (topic.last, 7, 7)


async def test_a_log_is_opened_that_ends_with_one() -> None:
    topic = Topic()
    topic.write_record()
    topic.write_large_marker(4)
    bounds = await read_bounds(cast(PulsarClient, topic), cast(AdminClient, topic), "topic")
    assert (bounds.last, bounds.start_offset, bounds.next_offset) == (topic.last, 0, 5)


async def test_one_is_looked_up() -> None:
    topic = Topic()
    topic.write_record()
    topic.write_large_marker(4)
    lookup = EntryLookup(cast(PulsarClient, topic), cast(AdminClient, topic))
    assert await lookup.end("topic", topic.last) == 5
