"""Rows of partitions are created once for one view, and a bounded number is kept."""

from __future__ import annotations

import asyncio

import pytest

from gateway.fan_out import Slices
from gateway.requests import partition_rows
from gateway.requests.partition_rows import CHUNK, MetadataPartition, PartitionRows

MANY = 4 * CHUNK + 1


class Fleet:
    """Rows have the view as their epoch."""

    def __init__(self) -> None:
        self.view = 0
        self.made = 0

    def make(self, numbers: range) -> list[MetadataPartition]:
        self.made += len(numbers)
        return self._rows(numbers)

    def _rows(self, numbers: range) -> list[MetadataPartition]:
        return [MetadataPartition(leader_epoch=self.view, partition_index=number) for number in numbers]

    async def rows(self, rows: PartitionRows, key: str, partitions: int = MANY) -> None:
        found = await rows.get(key, None, lambda: self.view, partitions, self.make, Slices())
        assert found == self._rows(range(partitions))


async def test_a_topic_that_grows_and_one_that_is_smaller() -> None:
    rows, fleet = PartitionRows(), Fleet()
    for partitions in (3, 5, MANY, 2, 0):
        await fleet.rows(rows, "t", partitions)
    assert fleet.made == MANY


async def test_a_change_amid_is_seen_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, fleet = PartitionRows(), Fleet()

    async def pause(self: Slices) -> None:
        await asyncio.sleep(0)
        fleet.view = fleet.made >= MANY // 2

    monkeypatch.setattr(Slices, "pause", pause)
    await asyncio.gather(*(fleet.rows(rows, "t") for _ in range(5)))
    assert fleet.view == 1
    assert fleet.made < 2 * MANY


async def test_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_rows, "MAX_ROWS", 2 * MANY)
    rows, fleet = PartitionRows(), Fleet()
    await asyncio.gather(*(fleet.rows(rows, f"t{number}") for number in range(10)))
    assert kept(rows) <= 2 * MANY
    await fleet.rows(rows, "t0")


async def test_nothing_is_kept_of_deleted_topics() -> None:
    rows, fleet = PartitionRows(), Fleet()
    for number in range(100):
        await fleet.rows(rows, f"t{number}", 3)
        fleet.view = number % 2
        await fleet.rows(rows, f"t{number}", 3)
        rows.forget(f"t{number}")
    assert (kept(rows), len(rows._known), rows._count) == (0, 0, 0)


async def test_a_topic_that_goes_while_its_rows_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, fleet = PartitionRows(), Fleet()

    async def pause(self: Slices) -> None:
        rows.forget("t")

    monkeypatch.setattr(Slices, "pause", pause)
    await fleet.rows(rows, "t")
    assert (kept(rows), rows._count) == (0, 0)


def kept(rows: PartitionRows) -> int:
    return sum(len(each.rows) for variants in rows._known.values() for each in variants.values())
