"""Reading a few entries of a log, and finding its start, without more entries from the broker than needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.config.limits import Limits
from gateway.log.bounds.start_search import FirstOffset, StartSearch
from gateway.log.entries.entry_stream import read_entries
from gateway.log.writing.producer_scan import Tail, scan_ranges
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.topics import InternalStats, Ledger
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.position import Position
from tests.unit.gateway.log.fake_pulsar import FakeReader, FakeTopic


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
    """The permits of all readers."""
    given: list[int] = []
    flow = FakeReader.flow

    def record(reader: FakeReader, permits: int) -> None:
        given.append(permits)
        flow(reader, permits)

    monkeypatch.setattr(FakeReader, "flow", record)
    return given


async def test_reading_one_entry_requests_one(topic: FakeTopic, flows: list[int]) -> None:
    at = topic.entries[1_500][0]
    assert [entry.position async for entry in read_entries(cast(PulsarClient, topic), "topic", at, at)] == [at]
    assert flows == [1]


async def test_reading_on_requests_more_entries(topic: FakeTopic, flows: list[int]) -> None:
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


MIB = 1 << 20
LIMITS = Limits(producer_state_scan_bytes=32 * MIB, append_max_in_flight_entries=64)


def stats(*ledgers: Ledger) -> InternalStats:
    last = Position(ledgers[-1].ledger_id, ledgers[-1].entries - 1) if ledgers else Position(-1, -1)
    return cast(InternalStats, SimpleNamespace(ledgers=ledgers, last_confirmed=last))


def scanned(ledgers: list[Ledger], taken_over: Position | None = None) -> list[tuple[Any, Position]]:
    last = Position(ledgers[-1].ledger_id, ledgers[-1].entries - 1)
    return scan_ranges(stats(*ledgers), Tail(last, taken_over or last), LIMITS)


def test_all_that_may_have_been_in_flight_is_scanned_however_large() -> None:
    """By the average size, 32 of them would be enough."""
    assert scanned([Ledger(1, 1_000, 1_000 * MIB)]) == [(Position(1, 1_000 - 128), Position(1, 999))]
    assert scanned([Ledger(1, 1_000, 1_000 * MIB), Ledger(2, 28, 28 * MIB)]) == [(Position(1, 900), Position(2, 27))]
    assert scanned([Ledger(1, 100, MIB)]) == [("earliest", Position(1, 99))]


def test_what_others_wrote_since_the_log_was_taken_over_hides_nothing() -> None:
    ledgers = [Ledger(1, 1_000_000, 1_000 * MIB), Ledger(2, 1_000_000, 1_000 * MIB)]
    taken_over = Position(1, 499_999)
    ranges = scanned(ledgers, taken_over)
    assert ranges == [(Position(1, 468_000), taken_over), (Position(2, 968_000), Position(2, 999_999))]
    taken_over = Position(2, 970_000)
    [(start, last)] = scanned(ledgers, taken_over)
    assert last == Position(2, 999_999)
    assert Position(2, 937_000) < start < Position(2, 939_000)


def test_a_log_that_was_empty_or_has_expired_since() -> None:
    ledgers = [Ledger(7, 1_000_000, 1_000 * MIB)]
    for taken_over in (Position(-1, -1), Position(3, 10)):
        assert scanned(ledgers, taken_over) == [(Position(7, 968_000), Position(7, 999_999))]
    assert scan_ranges(stats(), Tail(Position(7, -1), Position(-1, -1)), LIMITS) == []
