"""Random histories of groups that are deleted, made anew and expire, in small slices; their log refuses appends.

At rest, the coordinator has the offsets that its successor loads from the log, and so have Pulsar's subscriptions, to
judge by what the listener was told.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from coordinator.group.config import GroupConfig
from coordinator.group.coordinator import GroupCoordinator
from coordinator.group.messages import (
    CommitRequest,
    EndOfTransaction,
    OffsetToCommit,
    TransactionalCommitRequest,
)
from coordinator.group.offsets import commands, group_offsets, pending_offsets
from coordinator.topics import TopicPartition
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import Harness, Parked, reloaded

HISTORIES, STEPS = 400, 40
RETENTION_MS = 100_000
CONFIG = GroupConfig(offsets_retention_ms=RETENTION_MS, offsets_retention_check_interval_ms=RETENTION_MS // 2)
GROUPS = ("g", "h")
PARTITIONS = [TopicPartition("t", number) for number in range(4)]

Where = tuple[str, TopicPartition]


class History:
    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._h = Harness(CONFIG, auto=False)
        self._next_offset = 0
        self._steps: list[tuple[int, Callable[[], object]]] = [
            (6, self._commit), (3, self._commit_in_transaction), (3, self._end), (2, self._delete),
            (2, self._delete_group), (1, self._wait), (6, self._work), (6, self._write), (2, self._refuse),
        ]  # fmt: skip

    def run(self) -> None:
        weights, steps = zip(*self._steps, strict=True)
        for step in self._random.choices(steps, weights, k=STEPS):
            step()
        self._rest()
        self._check()

    def _offsets(self) -> dict[TopicPartition, OffsetToCommit]:
        chosen = self._random.sample(PARTITIONS, self._random.randint(1, len(PARTITIONS)))
        self._next_offset += 1
        return {each: OffsetToCommit(self._next_offset) for each in chosen}

    def _group(self) -> str:
        return self._random.choice(GROUPS)

    def _commit(self) -> None:
        self._h.coordinator.commit_offsets(CommitRequest(self._group(), self._offsets()), self._h.now_ms, Parked[Any]())

    def _commit_in_transaction(self) -> None:
        group, coordinator = self._group(), self._h.coordinator
        verification = coordinator.start_verification(group, 7, 0)
        request = TransactionalCommitRequest(group, self._offsets(), version=5, producer_id=7, producer_epoch=0)
        coordinator.commit_in_transaction(request, verification, self._h.now_ms, Parked[Any]())

    def _end(self) -> None:
        committed = self._random.random() < 0.5
        marker = EndOfTransaction(7, 0, coordinator_epoch=1, committed=committed, transaction_version=1)
        self._h.coordinator.end_transaction(marker, self._h.now_ms, Parked[Any]())

    def _delete(self) -> None:
        self._h.coordinator.delete_offsets(self._group(), [*self._offsets()], self._h.now_ms, Parked[Any]())

    def _delete_group(self) -> None:
        self._h.coordinator.delete_groups([self._group()], self._h.now_ms, Parked[Any]())

    def _wait(self) -> None:
        self._h.now_ms += RETENTION_MS
        self._h.coordinator.tick(self._h.now_ms)

    def _work(self) -> None:
        if self._h.coordinator.has_work:
            self._h.coordinator.work()

    def _write(self) -> None:
        if self._h.log.waiting:
            self._h.log.finish_one(self._h.now_ms)

    def _refuse(self) -> None:
        if self._h.log.waiting:
            self._h.log.finish_one(self._h.now_ms, ErrorCode.NOT_ENOUGH_REPLICAS)

    def _rest(self) -> None:
        while self._h.coordinator.has_work or self._h.log.waiting:
            self._h.finish_all()

    def _check(self) -> None:
        told: dict[Where, int | None] = {}
        for group, offsets in self._h.changes:
            told |= {(group, partition): offset for partition, offset in offsets.items()}
        kept = _committed(self._h.coordinator)
        assert kept == _committed(reloaded(self._h).coordinator)
        assert kept == {where: offset for where, offset in told.items() if offset is not None}


def _committed(coordinator: GroupCoordinator) -> dict[Where, int]:
    return {
        (group, partition): value.offset
        for group in GROUPS
        for partition, value in coordinator.committed(group).items()
    }


@pytest.mark.parametrize("slice_units", [1, 2, 1_000])
def test_random_histories(slice_units: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (commands, group_offsets, pending_offsets):
        monkeypatch.setattr(module, "SLICE_UNITS", slice_units)
    for seed in range(HISTORIES):
        try:
            History(seed).run()
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
