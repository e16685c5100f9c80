"""The order of mirroring: coalescing, pauses, turns of one partition, bounds."""

import random
from functools import partial
from typing import Any

import pytest

from coordinator.timers import Timers
from coordinator.topics import TopicPartition
from gateway.coordination.mirror.schedule import (
    COALESCE_MS,
    MAX_STUCK_RUNNING,
    PAUSE_FIRST_MS,
    PAUSE_LONGEST_MS,
    SLOW_MS,
    START_EVERY_MS,
    MirrorKey,
    MirrorSchedule,
)

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
A0, B0, C0, A1, A2 = (MirrorKey(*each) for each in (("a", T0), ("b", T0), ("c", T0), ("a", T1), ("a", T2)))


def due(schedule: MirrorSchedule, now_ms: int) -> list[MirrorKey]:
    """All keys that may start by then, as far as START_EVERY_MS allows."""
    taken = []
    while (key := schedule.take(now_ms)) is not None:
        taken.append(key)
        now_ms += START_EVERY_MS
    return taken


def test_changes_of_a_moment_are_one_update() -> None:
    schedule = MirrorSchedule()
    for now_ms in (0, 1, COALESCE_MS - 1):
        assert schedule.changed(A0, now_ms)
    assert schedule.next_ms(0) == COALESCE_MS
    assert schedule.take(COALESCE_MS - 1) is None
    assert schedule.take(COALESCE_MS) == A0
    assert A0 in schedule
    schedule.succeeded(A0, COALESCE_MS)
    assert A0 not in schedule
    assert schedule.next_ms(COALESCE_MS) is None


def test_a_change_during_the_update_is_another_update() -> None:
    schedule = MirrorSchedule()
    schedule.changed(A0, 0)
    assert schedule.take(600) == A0
    schedule.changed(A0, 700)
    schedule.changed(A0, 800)
    schedule.succeeded(A0, 900)
    assert A0 in schedule
    assert schedule.oldest_ms() == 700
    assert due(schedule, 900 + COALESCE_MS - 1) == []
    assert due(schedule, 900 + COALESCE_MS) == [A0]


def test_a_failed_update_pauses_longer_each_time() -> None:
    schedule = MirrorSchedule()
    schedule.changed(A0, 0)
    now_ms, pauses = COALESCE_MS, []
    for _ in range(9):
        assert schedule.take(now_ms) == A0
        schedule.failed(A0, now_ms)
        due_ms = schedule.next_ms(now_ms)
        assert due_ms is not None
        pauses.append(due_ms - now_ms)
        now_ms = due_ms
    assert pauses[:3] == [PAUSE_FIRST_MS, 2 * PAUSE_FIRST_MS, 4 * PAUSE_FIRST_MS]
    assert set(pauses[6:]) == {PAUSE_LONGEST_MS}
    assert schedule.oldest_ms() == 0, "it has not been mirrored since"


def test_a_change_does_not_shorten_the_pause() -> None:
    schedule = MirrorSchedule()
    schedule.changed(A0, 0)
    schedule.take(COALESCE_MS)
    schedule.failed(A0, COALESCE_MS)
    schedule.changed(A0, COALESCE_MS)
    assert schedule.take(2 * COALESCE_MS) is None
    assert schedule.take(COALESCE_MS + PAUSE_FIRST_MS) == A0


def test_the_first_success_ends_the_pauses() -> None:
    schedule = MirrorSchedule()
    schedule.changed(A0, 0)
    schedule.take(COALESCE_MS)
    schedule.failed(A0, 1_000)
    schedule.take(2_000)
    schedule.succeeded(A0, 2_000)
    schedule.changed(A0, 3_000)
    schedule.take(4_000)
    schedule.failed(A0, 4_000)
    assert schedule.next_ms(4_000) == 4_000 + PAUSE_FIRST_MS


def test_keys_of_a_partition_take_turns() -> None:
    schedule = MirrorSchedule()
    for key in (A0, B0, C0, A1):
        schedule.changed(key, 0)
    assert due(schedule, COALESCE_MS) == [A0, A1]
    schedule.succeeded(A0, 2_000)
    assert due(schedule, 2_000) == [B0]
    schedule.failed(B0, 3_000)
    assert due(schedule, 3_000) == [], "what fails one may fail all"
    assert due(schedule, 3_000 + PAUSE_FIRST_MS) == [C0]
    schedule.succeeded(C0, 5_000)
    assert due(schedule, 5_000) == [B0]


@pytest.mark.parametrize("succeeds", [True, False])
def test_the_end_of_an_update_does_not_touch_all_other_keys_of_its_partition(
    monkeypatch: pytest.MonkeyPatch, succeeds: bool
) -> None:
    """The keys of ten thousand groups would take some 20 ms, at each update."""
    calls, set_timer = 0, Timers.set

    def count(timers: Timers[Any], key: Any, deadline_ms: int) -> None:
        nonlocal calls
        calls += 1
        set_timer(timers, key, deadline_ms)

    monkeypatch.setattr(Timers, "set", count)
    schedule, keys = MirrorSchedule(), [MirrorKey(f"group-{number}", T0) for number in range(50)]
    for key in keys:
        schedule.changed(key, 0)
    now_ms, updated = COALESCE_MS, list[MirrorKey]()
    while len(updated) < len(keys):
        assert now_ms < 1_000_000
        for key in due(schedule, now_ms):
            updated.append(key)
            end = schedule.succeeded if succeeds else partial(schedule.failed, timed_out=len(updated) == 1)
            end(key, now_ms + 100)
        now_ms += 200
    assert updated == keys
    assert calls <= 5 * len(keys)


def test_only_some_run_at_once() -> None:
    schedule = MirrorSchedule(max_running=2)
    for key in (A0, A1, A2):
        schedule.changed(key, 0)
    assert due(schedule, 1_000) == [A0, A1]
    assert schedule.next_ms(1_100) == 1_000 + SLOW_MS
    schedule.succeeded(A1, 1_100)
    assert due(schedule, 1_100) == [A2]


def test_updates_start_at_a_bounded_rate() -> None:
    schedule = MirrorSchedule()
    schedule.changed(A0, 0)
    schedule.changed(A1, 0)
    assert schedule.take(1_000) == A0
    assert schedule.take(1_000) is None
    assert schedule.next_ms(1_000) == 1_000 + START_EVERY_MS
    assert schedule.take(1_000 + START_EVERY_MS) == A1


def test_partitions_that_never_answer_delay_no_other_for_long() -> None:
    """40 partitions whose updates end after ten seconds: in the first round and later."""
    schedule = MirrorSchedule()
    stuck = [MirrorKey("g", TopicPartition("stuck", number)) for number in range(40)]
    healthy = [MirrorKey("g", TopicPartition("healthy", number)) for number in range(100)]
    for key in stuck:
        schedule.changed(key, 0)
    running: dict[MirrorKey, int] = {}
    waited_ms: list[int] = []
    changed_ms: dict[MirrorKey, int] = {}
    for now_ms in range(0, 100_000, START_EVERY_MS):
        if now_ms % 1_000 == 0:
            key = healthy[now_ms // 1_000]
            schedule.changed(key, now_ms)
            changed_ms[key] = now_ms
        for key in [key for key, started_ms in running.items() if now_ms - started_ms >= 10_000]:
            del running[key]
            schedule.failed(key, now_ms, timed_out=True)
        taken = schedule.take(now_ms)
        if taken in changed_ms:
            schedule.succeeded(taken, now_ms)
            waited_ms.append(now_ms - changed_ms[taken])
        elif taken is not None:
            running[taken] = now_ms
    assert len(waited_ms) >= 98
    assert max(waited_ms) <= 12_000, "while those that do not answer are met for the first time"
    assert max(waited_ms[20:]) <= COALESCE_MS + 2 * SLOW_MS
    assert len(running) <= MAX_STUCK_RUNNING


def test_removed_offsets_wait_for_room() -> None:
    schedule = MirrorSchedule(max_keys=1)
    assert schedule.changed(A0, 0)
    assert schedule.changed(A1, 0, removed=True)
    assert schedule.changed(A1, 0), "it waits already"
    assert not schedule.changed(A2, 0)
    assert A1 in schedule
    assert len(schedule) == 2
    assert due(schedule, 1_000) == [A0]
    schedule.succeeded(A0, 1_000)
    assert due(schedule, 1_000 + COALESCE_MS) == [A1]


def test_keys_are_bounded() -> None:
    schedule = MirrorSchedule(max_keys=2)
    assert schedule.changed(A0, 0)
    assert schedule.changed(A1, 0)
    assert not schedule.changed(A2, 0)
    assert schedule.changed(A0, 0), "known ones are not turned away"
    schedule.take(1_000)
    schedule.succeeded(A0, 1_000)
    assert schedule.changed(A2, 1_000)
    assert len(schedule) == 2


def test_a_thousand_random_updates_end() -> None:
    """No change is lost: each one is mirrored after it was made."""
    source = random.Random(7)
    schedule = MirrorSchedule(max_running=3)
    keys = [MirrorKey(f"g{number}", TopicPartition("t", number % 4)) for number in range(12)]
    changed_at: dict[MirrorKey, int] = {}
    running: list[MirrorKey] = []
    now_ms = 0
    for step in range(5_000):
        now_ms += source.randrange(50)
        if step < 4_000 and source.random() < 0.3:
            key = source.choice(keys)
            schedule.changed(key, now_ms)
            changed_at[key] = now_ms
        if (taken := schedule.take(now_ms)) is not None:
            assert taken not in running
            assert all(other.partition != taken.partition for other in running)
            changed_at.pop(taken, None)
            running.append(taken)
        if running and source.random() < 0.5:
            key = running.pop(source.randrange(len(running)))
            if step < 4_000 and source.random() < 0.3:
                schedule.failed(key, now_ms, timed_out=source.random() < 0.5)
                changed_at.setdefault(key, now_ms)
            else:
                schedule.succeeded(key, now_ms)
        for key in changed_at:
            assert key in schedule
    while (due_ms := schedule.next_ms(now_ms)) is not None or running:
        now_ms = max(now_ms, due_ms or now_ms)
        for key in running:
            schedule.succeeded(key, now_ms)
        running = due(schedule, now_ms)
        for key in running:
            changed_at.pop(key, None)
    assert not changed_at
    assert len(schedule) == 0
