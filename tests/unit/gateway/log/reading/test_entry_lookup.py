"""Entries that the admin API does not return are read instead."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from gateway.log.entries import entry_stream
from gateway.log.reading import entry_lookup
from gateway.log.reading.entry_lookup import EntryLookup
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.position import Position
from tests.unit.gateway.log.fake_pulsar import FakeTopic


@pytest.fixture
def topic() -> FakeTopic:
    topic = FakeTopic()
    for count in (3, 1, 5):
        topic.write(b"", count, "writer", topic.entry_id)
    return topic


def lookup_in(topic: FakeTopic) -> EntryLookup:
    return EntryLookup(cast(PulsarClient, topic), cast(AdminClient, topic))


async def test_entries_from_the_admin_api_are_not_read(topic: FakeTopic) -> None:
    found = await lookup_in(topic).entry("topic", Position(3, 2))
    assert found is not None
    assert (found.index, found.num_messages) == (8, 5)
    assert not topic.readers


async def test_what_it_never_answers_is_read_and_not_asked_for_again(
    topic: FakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_lookup, "ANSWER_S", 0)
    asked: list[Position] = []

    async def never(topic: str, position: Position) -> Any:
        asked.append(position)
        await asyncio.Event().wait()

    monkeypatch.setattr(topic, "entry", never)
    lookup = lookup_in(topic)
    for position, expected in ((Position(3, 1), (3, 1)), (Position(3, 2), (8, 5)), (Position(2, 9), None)):
        found = await lookup.entry("topic", position)
        assert (None if found is None else (found.index, found.num_messages)) == expected
    assert asked == [Position(3, 1)]
    assert all(reader.closed for reader in topic.readers)
    assert await lookup.end("topic", topic.last) == 9


async def test_an_entry_that_the_admin_api_fails_to_return_is_read(
    topic: FakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers return properties as an HTTP header, which has at most 8 KB: a checkpoint may be longer."""
    entry, failing = topic.entry, Position(3, 1)

    async def fail_for_one(name: str, position: Position) -> Any:
        if position == failing:
            raise AdminError(500, "Server Error")
        return await entry(name, position)

    monkeypatch.setattr(topic, "entry", fail_for_one)
    lookup = lookup_in(topic)
    found = await lookup.entry("topic", failing)
    assert found is not None
    assert (found.index, found.num_messages) == (3, 1)
    assert await lookup.entry("topic", Position(3, 2)) is not None
    assert len(topic.readers) == 1, "the others are looked up as before"


async def test_an_entry_that_brokers_do_not_dispatch_is_looked_up_again(
    topic: FakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The admin API failed once. Readers of the entry would wait for ten seconds."""
    monkeypatch.setattr(entry_stream, "SILENT_S", 0.01)
    marker, entry, failures = topic.write_marker(2), topic.entry, [AdminError(500, "no metadata session")]

    async def fail_once(name: str, position: Position) -> Any:
        if failures:
            raise failures.pop()
        return await entry(name, position)

    monkeypatch.setattr(topic, "entry", fail_once)
    async with asyncio.timeout(5):
        assert await lookup_in(topic).end("topic", marker) == 11


async def test_a_failure_of_the_admin_api_is_not_hidden(topic: FakeTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any) -> None:
        raise AdminError(503, "unavailable")

    monkeypatch.setattr(topic, "entry", fail)
    with pytest.raises(AdminError):
        await lookup_in(topic).entry("topic", Position(3, 1))
    assert not topic.readers


async def test_an_emptied_log_ends_where_its_last_index_says(topic: FakeTopic) -> None:
    topic.entries.clear()
    topic.properties["index"] = "8"
    assert await lookup_in(topic).end("topic", Position(3, 2)) == 9
    assert await lookup_in(topic).end("topic", Position(3, -1)) == 9


async def test_topics_are_forgotten_when_the_admin_api_is_asked_again(
    topic: FakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_lookup, "ANSWER_S", 0)
    monkeypatch.setattr(entry_lookup, "READ_FOR_S", 0.001)

    async def never(topic: str, position: Position) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(topic, "entry", never)
    lookup = lookup_in(topic)
    for number in range(5):
        await lookup.entry(f"topic-{number}", Position(3, 1))
        await asyncio.sleep(0.002)
    assert list(lookup._asked_again_at) == ["topic-4"]
