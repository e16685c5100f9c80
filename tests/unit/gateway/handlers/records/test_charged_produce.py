"""Both ways of a Produce request are charged alike, and throttle the client alike."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from gateway.handlers.records.known_produce import KnownProduces
from gateway.log.partition_log import PartitionLog
from gateway.log.reading import receipt_lookup
from gateway.security.quota_entities import CONNECTION_RATE, MUTATION_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from gateway.security.quota_rates import MAX_THROTTLE_MS
from protocol.pulsar.pulsar_commands_pb2 import ServerError
from tests.unit.gateway.handlers.both_charged import ANYBODY, CLIENT_IDS, EXPIRED_MS, BothCharged, set_quota
from tests.unit.gateway.handlers.both_ways import OTHER, BothWays
from tests.unit.gateway.handlers.records.test_known_produce import batch, idempotent, request

FRAME = request(9, batch())
SIZE_BYTES = len(FRAME) - 4
BUSY_S = 0.25
STEPS = 60
ENTITIES: tuple[dict[str, str | None], ...] = (
    ANYBODY, {"client-id": "c"}, {"client-id": None}, {"user": None, "client-id": "d"}
)  # fmt: skip


@pytest.fixture
async def both(monkeypatch: pytest.MonkeyPatch, sections: dict[str, Any]) -> BothCharged:
    """Their logs are open, and their connections know the request."""
    monkeypatch.setattr(receipt_lookup, "LOOK_UP_AFTER_S", 0)  # the broker delivers no entries
    charged = BothCharged(BothWays(monkeypatch, KnownProduces, sections), monkeypatch)
    await charged.ways.ask(request(7, batch(producer_id=1, producer_epoch=0, base_sequence=0)))
    await charged.ask(FRAME, FRAME, taken=1)
    return charged


async def test_within_the_quota(both: BothCharged) -> None:
    both.set(PRODUCER_BYTE_RATE, SIZE_BYTES)
    assert await both.ask(*[FRAME] * 10, taken=10) == []
    assert both.used()["c", PRODUCER_BYTE_RATE] == 10 * SIZE_BYTES


async def test_over_the_quota(both: BothCharged) -> None:
    both.set(PRODUCER_BYTE_RATE, SIZE_BYTES)
    waits_ms = await both.ask(*[FRAME] * 12, taken=12)
    assert waits_ms == [1_000, 2_000]
    assert both.used()["c", PRODUCER_BYTE_RATE] == 12 * SIZE_BYTES
    both.now_ms += 5_000
    assert await both.ask(FRAME, taken=1) == [3_000]
    both.now_ms += 12_000
    assert await both.ask(FRAME, taken=1) == []


async def test_what_was_written_is_answered_however_long_the_client_has_to_wait(both: BothCharged) -> None:
    """A quota of one byte keeps a client out. Without an answer, it would send the same batch again."""
    frame = request(9, batch(10_000))
    both.set(PRODUCER_BYTE_RATE, 1)
    *_, longest_ms = await both.ask(*[frame] * 4, taken=4)
    assert longest_ms == MAX_THROTTLE_MS


@pytest.mark.parametrize("version", [5, 8, 13])
async def test_the_answer_has_the_throttle_time(both: BothCharged, version: int) -> None:
    named: Any = {"topic_id": both.ways.topic_id} if version >= 13 else {}
    frame = request(version, batch(), **named)
    both.set(PRODUCER_BYTE_RATE, 10)
    [waits_ms, *_] = await both.ask(frame, frame, frame, taken=2)
    [answer] = await both.ways.ask(request(version, batch(), **named))
    both.compare()
    assert int.from_bytes(answer[-5:-1] if version >= 9 else answer[-4:], "big") > waits_ms > 0


async def test_request_time(both: BothCharged, monkeypatch: pytest.MonkeyPatch) -> None:
    both.each_takes(monkeypatch, PartitionLog, "append", BUSY_S)
    both.set(REQUEST_PERCENTAGE, 10)
    assert await both.ask(*[FRAME] * 4, taken=4) == []
    assert both.used()["c", REQUEST_PERCENTAGE] == 400 * BUSY_S
    assert await both.ask(FRAME, FRAME, taken=2) == [1_000, 1_000], "at most a second"
    both.now_ms += 500
    assert await both.run(lambda way: None, FRAME, taken=1) == [1_000]
    assert both.used()["c", REQUEST_PERCENTAGE] == 700 * BUSY_S


@pytest.mark.parametrize(("byte_rate", "percentage"), [(SIZE_BYTES, 1_000), (1_000_000, 10)])
async def test_both_quotas_are_charged_once(
    both: BothCharged, monkeypatch: pytest.MonkeyPatch, byte_rate: float, percentage: float
) -> None:
    both.each_takes(monkeypatch, PartitionLog, "append", BUSY_S)
    both.set(PRODUCER_BYTE_RATE, byte_rate)
    both.set(REQUEST_PERCENTAGE, percentage)
    assert await both.ask(*[FRAME] * 12, taken=12)
    assert both.used()["c", PRODUCER_BYTE_RATE] == 12 * SIZE_BYTES
    assert both.used()["c", REQUEST_PERCENTAGE] == 1_200 * BUSY_S


async def test_a_quota_that_changes_while_a_request_waits(both: BothCharged) -> None:
    assert await both.run(lambda way: set_quota(way, PRODUCER_BYTE_RATE, 1), FRAME, taken=1) == [
        (SIZE_BYTES - 10) * 1_000
    ]
    assert await both.run(lambda way: set_quota(way, PRODUCER_BYTE_RATE, SIZE_BYTES), FRAME, taken=1) == []
    assert both.used()["c", PRODUCER_BYTE_RATE] == 2 * SIZE_BYTES
    assert await both.run(lambda way: set_quota(way, PRODUCER_BYTE_RATE, None), FRAME, taken=1) == []
    assert both.used() == {}


async def test_a_nearer_quota_counts_from_when_it_is_set(both: BothCharged) -> None:
    both.set(PRODUCER_BYTE_RATE, 1_000_000)
    assert await both.ask(FRAME, taken=1) == []
    both.set(PRODUCER_BYTE_RATE, 1, {"user": None, "client-id": "c"})
    assert await both.ask(FRAME, taken=1) == [(SIZE_BYTES - 10) * 1_000]
    both.set(PRODUCER_BYTE_RATE, None, {"user": None, "client-id": "c"})
    assert await both.ask(FRAME, taken=1) == []
    assert both.used()["c", PRODUCER_BYTE_RATE] >= 2 * SIZE_BYTES


async def test_connections_and_client_ids_share_the_quota_of_their_user(both: BothCharged) -> None:
    both.set(PRODUCER_BYTE_RATE, 1_000)
    others = request(9, batch(), client_id="d")
    for number in range(1, 4):
        assert await both.ask(FRAME, others, others, taken=2 if number == 1 else 1) == []
        assert both.used()["c", PRODUCER_BYTE_RATE] == both.used()["d", PRODUCER_BYTE_RATE]
        assert both.used()["c", PRODUCER_BYTE_RATE] == number * (2 * len(others) + len(FRAME) - 12)
        both.reconnect()


@pytest.mark.parametrize(("quota", "entity"), [
    (CONNECTION_RATE, {"ip": None}), (MUTATION_RATE, ANYBODY), (PRODUCER_BYTE_RATE, {"client-id": "another"})
])  # fmt: skip
async def test_a_client_without_a_quota_of_its_own(
    both: BothCharged, quota: str, entity: dict[str, str | None]
) -> None:
    both.set(quota, 1, entity)
    assert await both.ask(FRAME, FRAME, taken=2) == []


async def test_refused_batches_are_charged(both: BothCharged) -> None:
    both.set(PRODUCER_BYTE_RATE, SIZE_BYTES)
    both.ways.each(lambda way: setattr(way.broker, "error", ServerError.NotAllowedError))
    assert await both.ask(FRAME, taken=1) == []
    assert both.used()["c", PRODUCER_BYTE_RATE] == SIZE_BYTES


async def test_repeated_batches_are_charged(both: BothCharged) -> None:
    both.set(PRODUCER_BYTE_RATE, 1_000_000)
    frames = [request(9, idempotent(sequence)) for sequence in (0, 3, 3, 0, 6)]
    assert await both.ask(*frames, taken=4) == []
    assert both.used()["c", PRODUCER_BYTE_RATE] == sum(len(frame) - 4 for frame in frames)


@pytest.mark.parametrize("byte_rate", [SIZE_BYTES, 1])
async def test_a_client_that_leaves_is_charged(
    both: BothCharged, monkeypatch: pytest.MonkeyPatch, byte_rate: float
) -> None:
    both.each_takes(monkeypatch, PartitionLog, "append", BUSY_S)
    both.set(PRODUCER_BYTE_RATE, byte_rate)
    both.set(REQUEST_PERCENTAGE, 10)
    await both.run_and_leave(FRAME, FRAME, taken=2)
    assert both.used()["c", PRODUCER_BYTE_RATE] == 2 * SIZE_BYTES
    assert both.used()["c", REQUEST_PERCENTAGE] == 200 * BUSY_S


async def test_an_append_after_a_preparation_is_charged_for_its_time(
    both: BothCharged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No log of the topic is open."""
    both.each_takes(monkeypatch, PartitionLog, "append", BUSY_S)
    both.set(REQUEST_PERCENTAGE, 10)
    assert await both.ask(request(9, batch(), topic=OTHER), taken=0) == []
    assert both.used()["c", REQUEST_PERCENTAGE] == 100 * BUSY_S


@pytest.mark.parametrize("seed", range(6))
async def test_any_use_of_any_quotas(both: BothCharged, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    random = Random(seed)
    both.each_takes(monkeypatch, PartitionLog, "append", BUSY_S)
    frames = [request(9, batch(n), client_id=client_id) for n in (1, 2, 40) for client_id in CLIENT_IDS]

    def change() -> None:
        both.now_ms += EXPIRED_MS  # a rate that no client has had meanwhile may be a new one
        quota, bound = random.choice([(PRODUCER_BYTE_RATE, 300.0), (REQUEST_PERCENTAGE, 10.0)])
        both.set(quota, random.choice([None, bound / 10, bound, bound * 10]), random.choice(ENTITIES))

    for _ in range(STEPS):
        if random.random() < 0.5:
            change()
        elif random.random() < 0.3:
            both.reconnect()
        both.now_ms += random.choice([0, 1, 700, 1_000, 3_000, 15_000])
        await both.ways.ask(*random.choices(frames, k=random.randrange(1, 5)))
        both.compare()
