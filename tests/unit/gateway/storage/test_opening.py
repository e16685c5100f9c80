"""Reading a few entries of a log, and finding where it starts, without having the broker read more than is needed."""

from __future__ import annotations

from typing import cast

import pytest

from gateway.pulsar.admin import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.storage.opening import FirstOffset, StartSearch, read_entries
from tests.unit.gateway.storage.fake_pulsar import FakeReader, FakeTopic


@pytest.fixture
def topic() -> FakeTopic:
    topic = FakeTopic()
    for number in range(3_000):
        if number % 1_000 == 0:
            topic.roll_over()
        topic.write(b"", 2, "writer", number)
    return topic


@pytest.fixture
def flows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The permits that readers gave."""
    given: list[int] = []
    flow = FakeReader.flow

    def record(reader: FakeReader, permits: int) -> None:
        given.append(permits)
        flow(reader, permits)

    monkeypatch.setattr(FakeReader, "flow", record)
    return given


async def test_who_wants_one_entry_asks_for_one(topic: FakeTopic, flows: list[int]) -> None:
    at = topic.entries[1_500][0]
    assert [entry.position async for entry in read_entries(cast(PulsarClient, topic), "topic", at, at)] == [at]
    assert flows == [1]


async def test_who_reads_on_is_given_more_at_once(topic: FakeTopic, flows: list[int]) -> None:
    found = [entry.index async for entry in read_entries(cast(PulsarClient, topic), "topic", "earliest", topic.last)]
    assert found == list(range(1, 6_000, 2))
    assert flows[0] == 1
    assert 500 < max(flows) <= 1_001
    assert len(flows) < 30


async def test_the_first_entry_is_read_again_only_when_it_is_another_one(topic: FakeTopic) -> None:
    search = StartSearch(cast(PulsarClient, topic), cast(AdminClient, topic), "topic")
    assert await search.run() == FirstOffset(0, at_first_entry=True)
    assert await search.run() == FirstOffset(0, at_first_entry=True)
    assert len(topic.readers) == 1
    del topic.entries[:1_000]
    assert await search.run() == FirstOffset(2_000, at_first_entry=True)
    assert len(topic.readers) == 2
    topic.entries.clear()
    assert await search.run() is None
