"""The leader of a log that only other clusters write to appends checkpoints of its own."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from coordinator.fleet.leadership import PartitionRole
from gateway.coordination.transactions import own_checkpoints
from gateway.coordination.transactions.own_checkpoints import AGAIN_S, OwnCheckpoints
from gateway.fleet.view import FleetView
from gateway.log.bounds.transaction_flag import CHECKPOINT_AT
from gateway.log.registry import LogRegistry
from gateway.log.transactions import checkpoints, log_prefix
from gateway.pulsar.errors import ConnectionLostError
from protocol.kafka.transaction_marker import MarkerType
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.transactions.test_copied_transactions import close, copy_all
from tests.unit.gateway.log.transactions.transaction_scene import TransactionScene, decided

pytestmark = pytest.mark.usefixtures("no_settling")
ENTRIES = 20


@pytest.fixture(autouse=True)
def few_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "EVERY_ENTRIES", ENTRIES)


async def copied(count: int) -> tuple[TransactionScene, TransactionScene]:
    """The log of another cluster with aborted transactions and an open one, and its copy, which is open and loaded."""
    another, here = TransactionScene(), TransactionScene()
    await another.lead()
    await another.begin(99)
    await abort(another, count)
    copy_all(another.topic, here.topic)
    await here.lead()
    await here.log.transactions.prepare_to_read(0)
    await let_callbacks_run()
    return another, here


async def abort(scene: TransactionScene, count: int) -> None:
    for _ in range(count):
        await scene.begin(1)
        await scene.end(1, MarkerType.ABORT)


def checking(scene: TransactionScene, role: PartitionRole = PartitionRole.LEADING) -> OwnCheckpoints:
    fleet = SimpleNamespace(role=lambda topic, partition: role)
    logs = SimpleNamespace(all_open=lambda: [(("topic", 0), scene.log)])
    return OwnCheckpoints(cast(FleetView, fleet), cast(LogRegistry, logs))


async def check(found: OwnCheckpoints, scene: TransactionScene) -> int:
    """The number of entries that it appended."""
    before = len(scene.topic.entries)
    checked = asyncio.create_task(found.check())
    for _ in range(200):
        if checked.done():
            break
        await scene.write()
    await checked
    return len(scene.topic.entries) - before


async def test_a_new_leader_begins_at_it() -> None:
    another, here = await copied(30)
    found = checking(here)
    assert await check(found, here) == 1
    *_, metadata = here.topic.entries[-1]
    assert [*metadata.replicate_to] == ["__local__"]
    assert await check(found, here) == 0
    end_offset = here.log.end_offset
    for _ in range(80):  # behind what a new leader looks back at
        await another.plain()
    expected = [(1, 1 + 2 * number) for number in range(30)]
    before = len(here.topic.entries) - 1
    for number, (_, _, data, written) in enumerate(another.topic.entries[before:], before):
        here.topic.write(data, 1, "pulsar.repl.another", number)
        here.topic.entries[-1][3].replicated_from = "another"
        assert written.num_messages_in_batch == 1
    await here.log.close()
    here.topic.readers.clear()
    await here.lead()
    assert (await decided(here.log))[0] == 0  # that of producer 99 is open
    first_read = min(reader.first_entry for reader in here.topic.readers[2:])
    assert first_read >= end_offset - 2, "the log was read before the checkpoint"
    await here.log.transactions.prepare_to_read(0)
    assert (await decided(here.log))[1] == expected
    assert [*here.log.transactions.open] == [99]
    await close(another, here)


async def test_the_last_one_reaches_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are for places before it, each with a part of the aborted transactions."""
    monkeypatch.setattr(checkpoints, "MOST_ABORTED", 10)
    another, here = await copied(25)
    end = here.log.end_offset
    assert await check(checking(here), here) == 3
    newest = here.log.transactions.prefix.checkpoints.newest
    assert newest is not None
    assert newest.offset == end + 2
    await close(another, here)


async def test_one_follows_when_much_was_copied_since() -> None:
    another, here = await copied(30)
    found = checking(here)
    assert await check(found, here) == 1
    newest = here.topic.properties[CHECKPOINT_AT]
    for count, appended in ((5, 0), (6, 1)):
        start = len(another.topic.entries)
        await abort(another, count)
        for number, (_, _, data, metadata) in enumerate(another.topic.entries[start:], start):
            here.topic.write(data, metadata.num_messages_in_batch, "pulsar.repl.another", number)
            here.topic.entries[-1][3].properties.extend(metadata.properties)
            here.topic.entries[-1][3].replicated_from = "another"
        await here.log.end.refresh()
        assert await check(found, here) == appended
    assert here.topic.properties[CHECKPOINT_AT] > newest
    await close(another, here)


async def test_aborted_transactions_of_others_do_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "MOST_ABORTED", 10)
    monkeypatch.setattr(log_prefix, "MAX_ABORTED", 20)
    monkeypatch.setattr(log_prefix, "KEPT_ABORTED", 10)
    another, here = await copied(60)
    state = here.log.transactions.prefix.state
    assert state.aborted_count == 60
    assert await check(checking(here), here) > 1
    assert here.log.transactions.prefix.state.aborted_count <= 20
    await here.log.transactions.prepare_to_read(0)
    assert len(await here.log.transactions.read_aborted(0, here.log.end_offset)) == 60
    await close(another, here)


async def test_only_the_leader_writes_them_and_only_where_they_are_needed() -> None:
    another, here = await copied(30)
    assert await check(checking(here, PartitionRole.ELSEWHERE), here) == 0
    assert await check(checking(another), another) == 0  # its own entries have them
    here.compacted = True
    here.log.transactions.prefix._cleaned.forget()
    assert await check(checking(here), here) == 0
    await close(another, here)


async def test_one_that_cannot_be_written_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    another, here = await copied(30)
    found, tries, now_s = checking(here), 0, 1.0
    monkeypatch.setattr(own_checkpoints, "time", SimpleNamespace(monotonic=lambda: now_s))

    async def fails() -> None:
        nonlocal tries
        tries += 1
        raise ConnectionLostError("gone")

    monkeypatch.setattr(here.log, "append_checkpoint", fails)
    for expected in (1, 1, 2):
        assert await check(found, here) == 0
        assert tries == expected
        now_s += AGAIN_S / 2
    await close(another, here)


async def test_one_that_does_not_fit_costs_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    another, here = await copied(30)
    monkeypatch.setattr(checkpoints, "encode_checkpoint", lambda _: "x" * 10_000_000)
    found = checking(here)
    assert [await check(found, here) for _ in range(3)] == [1, 0, 0]
    await close(another, here)
