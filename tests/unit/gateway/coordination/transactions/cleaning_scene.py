"""Logs of a topic, and cleaners of them, behind the ports of `Cleaning`."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock
from uuid import UUID

import pytest

from coordinator.fleet.leadership import PartitionRole
from gateway.coordination.transactions import cleaning, unclean_logs
from gateway.coordination.transactions.cleaning import Cleaning
from gateway.log.cleaning.cleaner import Outcome, Rules
from gateway.log.registry import LogRegistry
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.topics import Ledger, StoredEntry
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
        self.shared = SimpleNamespace(resources=SimpleNamespace(admin=self, client=None))
        self.idle: dict[tuple[str, int], Any] = {}
        self.reopened: list[int] = []
        self.open_failure: Exception | None = None
        self.asked: list[str] = []
        self.ledgers = [Ledger(1, 10, 1 << 30)]
        self.properties: dict[str, str] = {}

    def write(self, number: int, ledger: Ledger) -> None:
        opened = self.opened["t", number]
        opened.source.last_position = Position(ledger.ledger_id, ledger.entries - 1)
        opened.end_offset += ledger.entries
        opened.transactions.last_stable_offset += ledger.entries
        self.ledgers = [*self.ledgers, ledger]

    @staticmethod
    def _opened(number: int) -> Any:
        source = SimpleNamespace(pulsar_topic=f"p{number}", last_position=Position(1, 9))
        transactions = SimpleNamespace(flagged=True, loaded=True, last_stable_offset=10)
        return SimpleNamespace(source=source, transactions=transactions, resources=None, end_offset=10)

    def all_open(self) -> list[Any]:
        return [*self.opened.items()]

    async def open(self, topic: Topic, number: int) -> Any:
        self.reopened.append(number)
        if self.open_failure is not None:
            raise self.open_failure
        self.opened["t", number] = self.idle.pop(("t", number))

    def close_idle(self, number: int) -> None:
        self.idle["t", number] = self.opened.pop(("t", number))

    async def managed_ledger_properties(self, topic: str) -> dict[str, str]:
        return self.properties

    async def entry(self, topic: str, position: Position) -> StoredEntry:
        """Each has one offset."""
        before = sum(ledger.entries for ledger in self.ledgers if ledger.ledger_id < position.ledger_id)
        return StoredEntry(position, before + position.entry_id, 1)

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
    limited_at: Position | None = None

    def __init__(self, partition_log: Any) -> None:
        self.partition_log = partition_log

    async def clean(self, rules: Rules) -> Outcome:
        name = self.partition_log.source.pulsar_topic
        self.rules.append(rules)
        if name in self.errors:
            raise self.errors[name]
        self.cleaned.append(name)
        if self.meanwhile is not None:
            self.meanwhile()
        return Outcome(3, self.limited_at)

def with_fakes(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock; cleaners are fakes."""
    found = SimpleNamespace(now_s=0.0)
    monkeypatch.setattr(cleaning, "LogCleaner", FakeCleaner)
    for module in (cleaning, unclean_logs):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: found.now_s))
    FakeCleaner.errors, FakeCleaner.cleaned, FakeCleaner.rules, FakeCleaner.meanwhile = {}, [], [], None
    FakeCleaner.limited_at = None
    return found

def new_topic(topic_id: int = 1, *, has_compaction_keys: bool = True, has_transactions: bool = True) -> Topic:
    configs = {"cleanup.policy": "compact", "delete.retention.ms": "7", "min.compaction.lag.ms": "8000"}
    return Topic(
        "t", "t", UUID(int=topic_id), 10, True, configs, 0.0, messages_only=True, has_transactions=has_transactions,
        has_compaction_keys=has_compaction_keys,
    )  # fmt: skip


def new_cleaning(logs: Logs, metrics: Metrics, *, has_compaction_keys: bool = True) -> Cleaning:
    topic = new_topic(has_compaction_keys=has_compaction_keys)
    return Cleaning(Led(), cast(LogRegistry, logs), lambda _: topic, AsyncMock(), metrics)

def only(logs: Logs, number: int) -> None:
    for other in {0, 1, 2, 9} - {number}:
        del logs.opened["t", other]
