"""Which logs are cleaned, and when one that failed is retried."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast
from unittest.mock import AsyncMock

import pytest

from gateway.coordination.transactions.cleaning import AGAIN_S, MAX_AGAIN_S, Cleaning
from gateway.log.cleaning.cleaner import Rules
from gateway.log.cleaning.garbage import SharedKeysError
from gateway.log.registry import LogRegistry
from gateway.log.transactions.checkpoint import NO_ENTRY
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.topics import Ledger
from gateway.pulsar.errors import PulsarError, ServiceNotReadyError
from gateway.pulsar.position import Position
from tests.unit.gateway.coordination.transactions.cleaning_scene import (
    FakeCleaner,
    Led,
    Logs,
    new_cleaning,
    new_topic,
    only,
    with_fakes,
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    return with_fakes(monkeypatch)


def uncleanable(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("kafka_gateway_uncleanable_partitions")

async def test_what_is_led_here_and_has_new_entries_is_cleaned(clock: SimpleNamespace) -> None:
    logs = Logs()
    found = new_cleaning(logs, Metrics())
    await found.check()
    assert FakeCleaner.cleaned == ["p0", "p1", "p2"]
    assert FakeCleaner.rules[0] == Rules(deletions_kept_ms=7, lag_ms=8_000)
    await found.check()
    assert len(FakeCleaner.cleaned) == len(logs.asked) == 3
    logs.opened["t", 1].source.last_position = Position(2, 0)
    for waited_s in (0, 7):  # what is new is too young
        clock.now_s += waited_s
        await found.check()
        assert len(logs.asked) == 3
    clock.now_s += 1
    await found.check()
    assert logs.asked[3:] == ["p1"]
    assert len(FakeCleaner.cleaned) == 3  # what was cleaned before is not dirty


@pytest.mark.parametrize(("entries", "is_cleaned_again"), [(3, False), (4, True)])
async def test_what_arrives_during_a_cleaning_is_not_clean(
    clock: SimpleNamespace, entries: int, is_cleaned_again: bool
) -> None:
    """Unless it is what the cleaning itself has appended: one entry for each message that it removes."""
    logs = Logs()
    only(logs, 1)

    def arrives() -> None:
        logs.write(1, Ledger(2, entries, 1 << 30))
        logs.compacted_to = Position(2, entries - 1)

    found = new_cleaning(logs, Metrics())
    FakeCleaner.meanwhile = staticmethod(arrives)
    await found.check()
    FakeCleaner.meanwhile = None
    for _ in range(3):
        await found.check()
        clock.now_s += 8
    assert FakeCleaner.cleaned == ["p1"] * (1 + is_cleaned_again)


async def test_what_was_too_young_is_cleaned_when_it_is_old_enough(clock: SimpleNamespace) -> None:
    """Although nothing is written any more."""
    logs = Logs()
    only(logs, 1)
    found = new_cleaning(logs, Metrics())
    FakeCleaner.limited_at = Position(1, 1)
    await found.check()
    assert FakeCleaner.cleaned == ["p1"]
    logs.compacted_to = Position(1, 9)  # Pulsar has compacted all of it
    FakeCleaner.limited_at = None
    clock.now_s += 7.9
    await found.check()
    assert FakeCleaner.cleaned == ["p1"]
    clock.now_s += 0.1
    for _ in range(3):
        await found.check()
        clock.now_s += 100
    assert FakeCleaner.cleaned == ["p1", "p1"]
    assert [rules.old for rules in FakeCleaner.rules] == [NO_ENTRY, Position(1, 9)]


async def test_what_an_open_transaction_held_back_is_cleaned_when_it_is_decided(clock: SimpleNamespace) -> None:
    logs = Logs()
    only(logs, 1)
    found = new_cleaning(logs, Metrics())
    logs.opened["t", 1].transactions.last_stable_offset = 2
    FakeCleaner.limited_at = Position(1, 1)
    await found.check()
    FakeCleaner.limited_at = None
    for _ in range(2):
        clock.now_s += 100
        await found.check()
        assert FakeCleaner.cleaned == ["p1"]
    logs.opened["t", 1].transactions.last_stable_offset = 10
    await found.check()
    assert FakeCleaner.cleaned == ["p1", "p1"]


async def test_a_little_that_was_too_young_waits_for_more(clock: SimpleNamespace) -> None:
    """The whole log would be read again for it. What Pulsar has compacted there is not a part of what is clean."""
    logs = Logs()
    only(logs, 1)
    found = new_cleaning(logs, Metrics())
    FakeCleaner.limited_at = Position(1, 8)
    logs.ledgers = [Ledger(1, 10, 600 << 20)]  # the last entry has 60 MB
    await found.check()
    for _ in range(2):
        clock.now_s += 8
        await found.check()
    assert FakeCleaner.cleaned == ["p1"]
    logs.write(1, Ledger(2, 1, 10 << 20))
    for _ in range(2):
        await found.check()
        clock.now_s += 8
    assert FakeCleaner.cleaned == ["p1", "p1"]


@pytest.mark.parametrize(("reached", "is_cleaned"), [(1, True), (9, False)])
async def test_a_new_leader_knows_how_far_the_one_before_came(
    clock: SimpleNamespace, reached: int, is_cleaned: bool
) -> None:
    logs = Logs()
    only(logs, 1)
    logs.compacted_to = Position(1, 9)
    logs.properties = {"kafka.cleanings": f"{reached}:1000"}
    found = new_cleaning(logs, Metrics())
    logs.ledgers = [Ledger(1, 10, 600 << 20)]
    await found.check()
    assert FakeCleaner.cleaned == (["p1"] if is_cleaned else [])


async def test_topics_without_compaction_keys_are_left_alone(clock: SimpleNamespace) -> None:
    await new_cleaning(Logs(), Metrics(), has_compaction_keys=False).check()
    assert FakeCleaner.cleaned == []


@pytest.mark.parametrize("error", [SharedKeysError(), PulsarError("gone"), TimeoutError(), KeyError("a bug of ours")])
async def test_one_that_cannot_be_cleaned_delays_no_other_and_is_tried_ever_less_often(
    clock: SimpleNamespace, error: Exception
) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    logs, metrics = Logs(), Metrics()
    found = new_cleaning(logs, metrics)
    FakeCleaner.errors["p1"] = error
    await found.check()
    assert FakeCleaner.cleaned == ["p0", "p2"]
    assert uncleanable(metrics) == 1
    wait_s, attempts = AGAIN_S, logs.asked.count("p1")
    for _ in range(8):
        clock.now_s += wait_s - 1
        logs.opened["t", 1].source.last_position = Position(3, int(clock.now_s))
        await found.check()
        assert logs.asked.count("p1") == attempts
        clock.now_s += 1
        await found.check()
        attempts += 1
        assert logs.asked.count("p1") == attempts
        wait_s = min(MAX_AGAIN_S, 2 * wait_s)
    FakeCleaner.errors.clear()
    clock.now_s += wait_s
    await found.check()
    assert FakeCleaner.cleaned[2:] == ["p1"]
    assert uncleanable(metrics) == 0


async def test_a_topic_that_was_made_anew_does_not_wait_for_the_old_one(clock: SimpleNamespace) -> None:
    topic = new_topic()
    found = Cleaning(Led(), cast(LogRegistry, Logs()), lambda _: topic, AsyncMock(), Metrics())
    FakeCleaner.errors["p1"] = SharedKeysError()
    await found.check()
    FakeCleaner.errors.clear()
    await found.check()
    assert "p1" not in FakeCleaner.cleaned
    topic = new_topic(topic_id=2)
    await found.check()
    assert FakeCleaner.cleaned == ["p0", "p2", "p0", "p1", "p2"]


async def test_transactions_that_only_replication_brings_are_cleaned(clock: SimpleNamespace) -> None:
    """No client has begun one here. If Pulsar does not answer, it is tried again after a while."""
    logs, topics = Logs(), {"t": new_topic(has_compaction_keys=False, has_transactions=False)}
    only(logs, 1)
    failures: list[PulsarError] = [ServiceNotReadyError("not yet")]
    begun: list[str] = []

    async def begin(name: str) -> None:
        begun.append(name)
        if failures:
            raise failures.pop()
        topics[name] = new_topic()

    found = Cleaning(Led(), cast(LogRegistry, logs), topics.get, begin, Metrics())
    for _ in range(2):
        await found.check()
        assert (begun, FakeCleaner.cleaned) == (["t"], [])
    clock.now_s += AGAIN_S
    for cleaned in ([], ["p1"], ["p1"]):
        await found.check()
        assert (begun, FakeCleaner.cleaned) == (["t", "t"], cleaned)


async def test_logs_without_transactions_are_left_alone(clock: SimpleNamespace) -> None:
    logs, begin = Logs(), AsyncMock()
    only(logs, 1)
    logs.opened["t", 1].transactions.flagged = False
    topic = new_topic(has_compaction_keys=False, has_transactions=False)
    await Cleaning(Led(), cast(LogRegistry, logs), lambda _: topic, begin, Metrics()).check()
    begin.assert_not_awaited()
    assert not FakeCleaner.cleaned
