"""The start and end of a log when it is opened, and the requests to Pulsar for them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from gateway.log.bounds.deleted_records import PROPERTY
from gateway.log.bounds.log_bounds import LogBounds, read_bounds
from gateway.log.bounds.start_search import StartSearch
from gateway.log.entries import entry_stream
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.topics import COMPACTION_CURSOR, ManagedLedgerInfo
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ServiceNotReadyError
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry, EntryListener, Reader
from protocol.pulsar.pulsar_commands_pb2 import BrokerEntryMetadata
from tests.unit.gateway.log.fake_pulsar import FakeReader, FakeTopic


async def bounds(topic: FakeTopic) -> LogBounds:
    return await read_bounds(cast(PulsarClient, topic), cast(AdminClient, topic), "topic")


def written(*counts: int) -> FakeTopic:
    topic = FakeTopic()
    for number, count in enumerate(counts):
        topic.write(b"", count, "writer", number)
    return topic


async def test_a_log_of_several_entries_takes_two_readers() -> None:
    topic = written(2, 3, 4)
    found = await bounds(topic)
    assert found[:4] == (topic.last, 9, 0, True)
    assert [reader.closed for reader in topic.readers] == [False, True]
    assert found.start_reader is not None
    assert found.start_reader.reader is cast(Reader, topic.readers[0])
    assert found.start_reader.offset == 0


async def test_the_first_reader_is_closed_when_the_log_does_not_start_with_its_entry() -> None:
    expired = written(2, 3, 4)
    del expired.entries[:]
    compacted = written(2, 3, 4)
    compacted.cursors, compacted.compacted_ledger_id = [COMPACTION_CURSOR], 7
    deleted = written(2, 3, 4)
    deleted.properties = {PROPERTY: "1"}
    for topic in (expired, compacted, deleted, written()):
        assert (await bounds(topic)).start_reader is None
        assert all(reader.closed for reader in topic.readers)


async def test_the_first_reader_is_closed_when_the_log_cannot_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = written(2, 3, 4)
    monkeypatch.setattr(FakeTopic, "managed_ledger", AsyncMock(side_effect=ServiceNotReadyError("no")))
    with pytest.raises(ServiceNotReadyError):
        await bounds(topic)
    assert all(reader.closed for reader in topic.readers)


async def test_the_first_entry_comes_while_the_admin_api_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = written(2, 3)
    given: list[int] = []
    ask = FakeTopic.managed_ledger

    async def managed_ledger(topic: FakeTopic, name: str) -> ManagedLedgerInfo:
        given.append(topic.readers[0].permits)
        return await ask(topic, name)

    monkeypatch.setattr(FakeTopic, "managed_ledger", managed_ledger)
    assert (await bounds(topic))[:4] == (topic.last, 5, 0, True)
    assert given == [1]


async def test_the_last_entry_comes_while_the_admin_api_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = written(2, 3)
    ask, was_read = FakeTopic.managed_ledger, asyncio.Event()
    read = FakeTopic.open_reader

    async def managed_ledger(topic: FakeTopic, name: str) -> ManagedLedgerInfo:
        await was_read.wait()
        return await ask(topic, name)

    async def open_reader(topic: FakeTopic, name: str, start: object, listener: EntryListener) -> FakeReader:
        if start == topic.last:
            was_read.set()
        return await read(topic, name, start, listener)

    monkeypatch.setattr(FakeTopic, "managed_ledger", managed_ledger)
    monkeypatch.setattr(FakeTopic, "open_reader", open_reader)
    async with asyncio.timeout(5):
        assert (await bounds(topic))[:4] == (topic.last, 5, 0, True)


async def test_the_reader_of_an_end_that_is_not_needed_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = written(5, 5)
    topic.properties["index"] = "9"
    topic.roll_over()
    topic.entries.clear()
    monkeypatch.setattr(FakeTopic, "last", Position(3, 1))  # the broker may still name it

    async def managed_ledger(_: FakeTopic, name: str) -> ManagedLedgerInfo:
        while len(topic.readers) < 2:
            await asyncio.sleep(0)
        return ManagedLedgerInfo(frozenset({4}), frozenset(), topic.properties)

    monkeypatch.setattr(FakeTopic, "managed_ledger", managed_ledger)
    async with asyncio.timeout(5):
        assert (await bounds(topic))[:4] == ((-1, -1), 10, 10, True)
    await asyncio.sleep(0)
    assert all(reader.closed for reader in topic.readers)


async def test_a_log_of_one_entry_takes_one_reader() -> None:
    topic = written(5)
    assert (await bounds(topic))[:4] == (topic.last, 5, 0, True)
    assert len(topic.readers) == 1


async def test_an_empty_log() -> None:
    assert (await bounds(FakeTopic()))[:4] == ((-1, -1), 0, 0, True)


async def test_a_log_whose_entries_have_expired_ends_where_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker may still name the last one of them."""
    topic = written(5)
    topic.properties["index"] = "4"
    topic.roll_over()
    topic.entries.clear()
    monkeypatch.setattr(FakeTopic, "last", Position(3, 0))
    found = await bounds(topic)
    assert found[:4] == ((-1, -1), 5, 5, True)


async def test_what_is_written_while_an_empty_log_is_opened_is_not_before_its_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With each property, Pulsar writes the index of the last entry, also of those in the open ledger."""
    topic = written()
    managed_ledger = topic.managed_ledger

    async def meanwhile(name: str) -> ManagedLedgerInfo:
        topic.write(b"", 3, "writer", 0)
        await topic.put_properties(name, {"some": "property"})
        return await managed_ledger(name)

    monkeypatch.setattr(topic, "managed_ledger", meanwhile)
    assert (await bounds(topic))[:3] == ((-1, -1), 0, 0)


async def test_deleted_records_lie_before_the_start() -> None:
    topic = written(5, 5)
    topic.properties[PROPERTY] = "7"
    assert (await bounds(topic))[:4] == (topic.last, 10, 7, False)


async def test_a_compacted_log_starts_at_0() -> None:
    topic = written(5, 5)
    del topic.entries[0]
    topic.compacted_ledger_id = 9
    assert (await bounds(topic))[:4] == (topic.last, 10, 0, True)


async def test_a_compacted_log_without_entries_starts_at_0() -> None:
    topic = written(5)
    topic.properties["index"] = "4"
    topic.entries.clear()
    topic.compacted_ledger_id = 9
    assert (await bounds(topic))[:3] == ((-1, -1), 5, 0)


async def test_the_start_is_not_read_again_while_the_first_ledger_is_there() -> None:
    topic = written(2, 3)
    search = StartSearch(cast(PulsarClient, topic), cast(AdminClient, topic), "topic", (await bounds(topic)).first)
    opened = len(topic.readers)
    assert await search.run() == (0, True)
    assert len(topic.readers) == opened


class PartlyIndexed(FakeTopic):
    """Brokers stored no indexes with the first entries."""

    def __init__(self, unindexed: int) -> None:
        super().__init__()
        self.unindexed = unindexed
        self.delivered = 0
        for number in range(unindexed):
            self.write(b"", 1, "writer", number)
        self.roll_over()
        self.next_index = 0

    def entry_at(self, number: int) -> Entry:
        self.delivered += 1
        entry = super().entry_at(number)
        has_index = number >= self.unindexed
        return entry if has_index else Entry(entry.position, BrokerEntryMetadata(), entry.metadata, entry.payload)

    async def entry(self, topic: str, position: Position) -> Any:
        found = await super().entry(topic, position)
        is_old = found is not None and position in [each for each, *_ in self.entries[: self.unindexed]]
        return replace(found, index=None) if is_old else found


@pytest.mark.parametrize("indexed", [0, 1, 5])
async def test_old_entries_without_an_index_are_not_all_read(indexed: int) -> None:
    """There may be very many of them: from before the index was configured in Pulsar."""
    topic = PartlyIndexed(1_000)
    for number in range(indexed):
        topic.write(b"", 2, "writer", number)
    found = await bounds(topic)
    assert found[:4] == (topic.last, 2 * indexed, 0, False)
    search = StartSearch(cast(PulsarClient, topic), cast(AdminClient, topic), "topic")
    assert await search.run() == ((0, False) if indexed else None)
    assert topic.delivered < 20


async def test_the_start_is_not_read_again_either_if_the_first_entries_have_no_index() -> None:
    topic = PartlyIndexed(1)
    topic.write(b"", 2, "writer", 1)
    found = await bounds(topic)
    assert found[:4] == (topic.last, 2, 0, False)
    search = StartSearch(cast(PulsarClient, topic), cast(AdminClient, topic), "topic", found.first)
    opened = len(topic.readers)
    assert await search.run() == (0, False)
    assert len(topic.readers) == opened


@pytest.mark.parametrize("before", [(), (2,), (2, 3)])
async def test_a_log_may_end_with_what_brokers_keep_to_themselves(
    before: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_stream, "SILENT_S", 0.01)
    topic = written(*before)
    for _ in range(20):
        topic.write_marker(3)
        topic.roll_over()
    found = await bounds(topic)
    assert found[:4] == (topic.last, sum(before) + 60, 0, True)
    search = StartSearch(cast(PulsarClient, topic), cast(AdminClient, topic), "topic")
    assert await search.run() == (0, True)


async def test_an_entry_that_is_written_while_the_last_one_is_read_is_not_taken_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Brokers do not dispatch the marker, but the entry after it."""
    topic = written(2)
    marker = topic.write_marker(3)
    open_reader = topic.open_reader

    async def others_write(name: str, start: Any, listener: Any, **options: Any) -> Any:
        if start == marker:
            topic.write(b"", 10, "other", 0)
        return await open_reader(name, start, listener, **options)

    monkeypatch.setattr(topic, "open_reader", others_write)
    found = await bounds(topic)
    assert found[:2] == (marker, 5)


async def test_a_last_entry_that_is_deleted_meanwhile_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = written(2, 3)
    last = topic.last
    open_reader = topic.open_reader

    async def retention_deletes(name: str, start: Any, listener: Any, **options: Any) -> Any:
        if start == last:
            topic.entries.clear()
            topic.roll_over()
            topic.write(b"", 10, "other", 0)
        return await open_reader(name, start, listener, **options)

    monkeypatch.setattr(topic, "open_reader", retention_deletes)
    with pytest.raises(ServiceNotReadyError, match="deleted"):
        await bounds(topic)


@pytest.mark.parametrize("counts", [(), (2,), (2, 3)])
async def test_a_ledger_that_the_broker_may_not_know(counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Another broker may own the topic, and have written to it."""
    topic = written(*counts)
    assert not (await bounds(topic)).has_newer_ledger
    held = await topic.managed_ledger("topic")
    newer = held._replace(ledger_ids=held.ledger_ids | {topic.ledger_id + 1})
    monkeypatch.setattr(topic, "managed_ledger", AsyncMock(return_value=newer))
    assert (await bounds(topic)).has_newer_ledger
