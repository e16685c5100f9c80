"""Which logs are cleaned, and when one that failed is retried."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from coordinator.fleet.leadership import PartitionRole
from gateway.coordination.transactions import cleaning
from gateway.coordination.transactions.cleaning import AGAIN_S, MAX_AGAIN_S, Cleaning
from gateway.log.cleaning.cleaner import Rules
from gateway.log.cleaning.garbage import SharedKeysError
from gateway.log.registry import LogRegistry
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.topics import Ledger
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.position import Position
from gateway.topics.topic import Topic
from tests.unit.gateway.coordination.transactions.fake_fleet import FakeFleet


class Led(FakeFleet):
    """Leads everything except partition 9."""

    def role(self, topic: str, partition: int) -> PartitionRole:
        return PartitionRole.ELSEWHERE if partition == 9 else PartitionRole.LEADING


class Logs:
    """Logs of partitions 0 to 2 and 9, each with new entries, behind the ports of the registry and of Pulsar."""

    compacted_to = Position(-1, -1)

    def __init__(self) -> None:
        self.opened = {("t", number): self._opened(number) for number in (0, 1, 2, 9)}
        self.topics = self
        self.shared = SimpleNamespace(resources=SimpleNamespace(admin=self))
        self.asked: list[str] = []
        self.ledgers = [Ledger(1, 10, 1 << 30)]

    def write(self, number: int, ledger: Ledger) -> None:
        opened = self.opened["t", number]
        opened.source.last_position = Position(ledger.ledger_id, ledger.entries - 1)
        opened.end_offset += ledger.entries
        self.ledgers = [*self.ledgers, ledger]

    @staticmethod
    def _opened(number: int) -> Any:
        source = SimpleNamespace(pulsar_topic=f"p{number}", last_position=Position(1, 9))
        transactions = SimpleNamespace(flagged=True)
        return SimpleNamespace(source=source, transactions=transactions, resources=None, end_offset=10)

    def all_open(self) -> list[Any]:
        return [*self.opened.items()]

    async def internal_stats(self, topic: str) -> Any:
        self.asked.append(topic)
        never = Ledger(-1, -1, -1)
        return SimpleNamespace(ledgers=self.ledgers, compacted_to=self.compacted_to, compacted_ledger=never)


class FakeCleaner:
    """The cleaner of one log; some fail."""

    errors: dict[str, Exception] = {}
    cleaned: list[str] = []
    rules: list[Rules] = []
    meanwhile: Callable[[], None] | None = None

    def __init__(self, partition_log: Any) -> None:
        self.partition_log = partition_log

    async def clean(self, rules: Rules) -> int:
        name = self.partition_log.source.pulsar_topic
        self.rules.append(rules)
        if name in self.errors:
            raise self.errors[name]
        self.cleaned.append(name)
        if self.meanwhile is not None:
            self.meanwhile()
        return 3


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    found = SimpleNamespace(now_s=0.0)
    monkeypatch.setattr(cleaning, "LogCleaner", FakeCleaner)
    monkeypatch.setattr(cleaning, "time", SimpleNamespace(monotonic=lambda: found.now_s))
    FakeCleaner.errors, FakeCleaner.cleaned, FakeCleaner.rules, FakeCleaner.meanwhile = {}, [], [], None
    return found


def new_topic(topic_id: int = 1, *, has_compaction_keys: bool = True) -> Topic:
    configs = {"cleanup.policy": "compact", "delete.retention.ms": "7", "min.compaction.lag.ms": "8"}
    return Topic(
        "t", "t", UUID(int=topic_id), 10, True, configs, 0.0, messages_only=True, has_transactions=True,
        has_compaction_keys=has_compaction_keys,
    )  # fmt: skip


def new_cleaning(logs: Logs, metrics: Metrics, *, has_compaction_keys: bool = True) -> Cleaning:
    topic = new_topic(has_compaction_keys=has_compaction_keys)
    return Cleaning(Led(), cast(LogRegistry, logs), lambda _: topic, metrics)


def uncleanable(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("kafka_gateway_uncleanable_partitions")


async def test_what_is_led_here_and_has_new_entries_is_cleaned(clock: SimpleNamespace) -> None:
    logs = Logs()
    found = new_cleaning(logs, Metrics())
    await found.check()
    assert FakeCleaner.cleaned == ["p0", "p1", "p2"]
    assert FakeCleaner.rules[0] == Rules(deletions_kept_ms=7, lag_ms=8)
    await found.check()
    assert len(FakeCleaner.cleaned) == len(logs.asked) == 3
    logs.opened["t", 1].source.last_position = Position(2, 0)
    await found.check()
    assert logs.asked[3:] == ["p1"]
    assert len(FakeCleaner.cleaned) == 3  # what was cleaned before is not dirty


@pytest.mark.parametrize(("entries", "is_cleaned_again"), [(3, False), (4, True)])
async def test_what_arrives_during_a_cleaning_is_not_clean(
    clock: SimpleNamespace, entries: int, is_cleaned_again: bool
) -> None:
    """Unless it is what the cleaning itself has appended: one entry for each message that it removes."""
    logs = Logs()
    for number in (0, 2, 9):
        del logs.opened["t", number]

    def arrives() -> None:
        logs.write(1, Ledger(2, entries, 1 << 30))
        logs.compacted_to = Position(2, entries - 1)

    found = new_cleaning(logs, Metrics())
    FakeCleaner.meanwhile = staticmethod(arrives)
    await found.check()
    FakeCleaner.meanwhile = None
    await found.check()
    await found.check()
    assert FakeCleaner.cleaned == ["p1"] * (1 + is_cleaned_again)


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
    found = Cleaning(Led(), cast(LogRegistry, Logs()), lambda _: topic, Metrics())
    FakeCleaner.errors["p1"] = SharedKeysError()
    await found.check()
    FakeCleaner.errors.clear()
    await found.check()
    assert "p1" not in FakeCleaner.cleaned
    topic = new_topic(topic_id=2)
    await found.check()
    assert FakeCleaner.cleaned == ["p0", "p2", "p0", "p1", "p2"]
