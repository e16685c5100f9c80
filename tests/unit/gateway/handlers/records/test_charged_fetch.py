"""Both ways of a Fetch request are charged alike, and throttle the client alike."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from gateway.handlers.records.tail_fetch import Tails
from gateway.log.reading import receipt_lookup
from gateway.log.reading.waiters import Waiters
from gateway.security.quota_entities import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from tests.unit.gateway.handlers.both_charged import EXPIRED_MS, BothCharged, set_quota
from tests.unit.gateway.handlers.both_ways import OTHER, TOPIC, Way
from tests.unit.gateway.handlers.records.fetches import BATCHES, END, Fetches, batch, fetch, one, part, produce

SIZE_BYTES = len(batch())
ALL_BYTES = BATCHES * SIZE_BYTES
BUSY_S = 0.25
VERSION = 17
SECOND_LAST = END - 6
STEPS = 40


@pytest.fixture
async def both(monkeypatch: pytest.MonkeyPatch, sections: dict[str, Any]) -> BothCharged:
    """Their logs are open, have records in memory, and their connections know the request."""
    monkeypatch.setattr(receipt_lookup, "LOOK_UP_AFTER_S", 0)  # the broker delivers no entries
    charged = BothCharged(Fetches(monkeypatch, sections), monkeypatch)
    await charged.ways.ask(*(produce(batch(), topic) for topic in (TOPIC, OTHER) for _ in range(BATCHES)))
    await charged.ask(one(VERSION, 0), one(VERSION, 0), taken=1)
    return charged


async def test_within_the_quota(both: BothCharged) -> None:
    both.set(CONSUMER_BYTE_RATE, ALL_BYTES)
    assert await both.ask(*[one(VERSION, 0)] * 9, one(VERSION, SECOND_LAST), taken=10) == []
    assert both.used()["c", CONSUMER_BYTE_RATE] == 9 * ALL_BYTES + 2 * SIZE_BYTES


async def test_over_the_quota(both: BothCharged) -> None:
    both.set(CONSUMER_BYTE_RATE, ALL_BYTES)
    assert await both.ask(*[one(VERSION, 0)] * 12, taken=10) == [1_000, 1_000]
    assert both.used()["c", CONSUMER_BYTE_RATE] == 10 * ALL_BYTES
    both.now_ms += EXPIRED_MS + 1_000
    await both.ask(one(VERSION, 0), one(VERSION, 0), one(VERSION, 0), taken=2)


async def test_a_connection_that_begins_under_a_quota_is_known(both: BothCharged) -> None:
    both.set(CONSUMER_BYTE_RATE, ALL_BYTES)
    both.reconnect()
    assert await both.ask(*[one(VERSION, 0)] * 3, taken=2) == []
    both.set(CONSUMER_BYTE_RATE, None)
    assert await both.ask(one(VERSION, 0), taken=1) == []


async def test_fewer_bytes_than_the_log_has(both: BothCharged) -> None:
    both.set(CONSUMER_BYTE_RATE, SIZE_BYTES / 5)
    assert await both.ask(one(VERSION, 0), taken=0) == []
    assert both.used()["c", CONSUMER_BYTE_RATE] == 2 * SIZE_BYTES
    assert await both.ask(one(VERSION, END - 3), taken=0) != []


async def test_less_than_min_bytes_is_enough_for_a_small_quota(both: BothCharged) -> None:
    frame = one(VERSION, END - 3, min_bytes=100_000)
    await both.ask(frame, frame, taken=1)
    both.set(CONSUMER_BYTE_RATE, SIZE_BYTES / 5)
    assert await both.ask(frame, taken=0) == []


async def test_request_time(both: BothCharged, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the fast path has the slow step."""
    both.each_takes(monkeypatch, Tails, "look", BUSY_S)
    both.set(REQUEST_PERCENTAGE, 10)
    await both.ways.ask(*[one(VERSION, 0)] * 4)
    assert both.used()["c", REQUEST_PERCENTAGE] == 400 * BUSY_S
    assert both.muted_ms[both.ways.straight] == []


Event = Callable[[Way], None]
EVENTS: dict[str, Event] = {
    "set": lambda way: set_quota(way, CONSUMER_BYTE_RATE, ALL_BYTES),
    "set too low": lambda way: set_quota(way, CONSUMER_BYTE_RATE, 1),
    "of another kind": lambda way: set_quota(way, PRODUCER_BYTE_RATE, 1_000_000),
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("before", [None, 10 * ALL_BYTES])
async def test_a_quota_that_changes_while_a_fetch_waits(both: BothCharged, event: str, before: float | None) -> None:
    await waits(both, before, EVENTS[event], batches=1)


async def test_more_records_arrive_than_the_quota_allows_at_once(both: BothCharged) -> None:
    await waits(both, SIZE_BYTES / 5, lambda way: None, batches=BATCHES)
    assert both.used()["c", CONSUMER_BYTE_RATE] == 2 * SIZE_BYTES


@pytest.mark.parametrize("before", [None, 10 * ALL_BYTES])
async def test_a_client_that_leaves_is_charged_for_its_time(
    both: BothCharged, monkeypatch: pytest.MonkeyPatch, before: float | None
) -> None:
    """Not for records, which it did not get."""
    await both.ways.ask(one(VERSION, 0, max_wait_ms=30_000))
    both.each_takes(monkeypatch, Waiters, "add", BUSY_S)
    both.set(CONSUMER_BYTE_RATE, before)
    both.set(REQUEST_PERCENTAGE, 10)
    await both.run_and_leave(one(VERSION, END, max_wait_ms=30_000), taken=1)
    assert both.used()["c", REQUEST_PERCENTAGE] == 100 * BUSY_S
    assert not both.used().get(("c", CONSUMER_BYTE_RATE))


async def waits(both: BothCharged, before: float | None, event: Event, batches: int) -> None:
    """With the quota `before`, a fetch waits at the end. Something happens, and then records arrive."""

    async def run(way: Way) -> list[bytes]:
        producer, consumer = way.scene.connect(), way.client
        await way.answers(one(VERSION, 0, max_wait_ms=30_000))
        set_quota(way, CONSUMER_BYTE_RATE, before)
        consumer.ask(one(VERSION, END, max_wait_ms=30_000))
        await way.scene.run()
        assert not consumer.received
        event(way)
        producer.ask(produce(batch()) * batches)
        await way.scene.until_answered([producer, consumer])
        return [b"".join(map(bytes, consumer.received))]

    both.ways.taken = 0
    await both.ways.run(run)
    assert both.ways.taken == 1
    both.compare()


async def test_sessions(both: BothCharged) -> None:
    rows = {TOPIC: [part(0)], OTHER: [part(END)]}
    found = await both.ways.ask(fetch(VERSION, rows, session_epoch=0))
    session_id = int.from_bytes(found[0][4 + 4 + 1 + 4 + 2 :][:4], "big")
    both.set(CONSUMER_BYTE_RATE, ALL_BYTES / 4)
    for epoch in range(1, 8):
        asked = fetch(VERSION, {TOPIC: [part(0)]}, session_id=session_id, session_epoch=epoch)
        await both.ways.ask(asked)
        both.compare()
        both.now_ms += 700


@pytest.mark.parametrize("seed", range(4))
async def test_any_use_of_any_quotas(both: BothCharged, seed: int) -> None:
    random = Random(seed)
    for _ in range(STEPS):
        if random.random() < 0.4:
            both.now_ms += EXPIRED_MS  # a rate that no client has had meanwhile may be a new one
            both.set(CONSUMER_BYTE_RATE, random.choice([None, SIZE_BYTES / 10, SIZE_BYTES, 10 * SIZE_BYTES]))
        elif random.random() < 0.3:
            both.reconnect()
        both.now_ms += random.choice([0, 1, 700, 1_000, 3_000, 15_000])
        offsets = random.choices(range(0, END + 1, 3), k=random.randrange(1, 4))
        frames = [one(VERSION, offset, min_bytes=random.choice([1, 300]), max_wait_ms=1) for offset in offsets]
        await both.ways.ask(*frames)
        both.compare()
