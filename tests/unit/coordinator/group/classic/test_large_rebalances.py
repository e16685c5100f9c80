"""The members of a large group are answered in slices."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from coordinator import slices
from coordinator.group.messages import (
    JoinRequest,
    JoinResponse,
    SyncRequest,
    SyncResponse,
)
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import CONFIG, SESSION_MS, Harness, Parked

SLICE, MEMBERS = 10, 100


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_UNITS", SLICE)


def joining_again(h: Harness, members: Sequence[str], metadata: bytes) -> list[Parked[JoinResponse]]:
    """Without further work of the coordinator."""
    joins: list[Parked[JoinResponse]] = []
    for member_id in members:
        joins.append(Parked())
        request = JoinRequest(
            "g", member_id, "c", "/127.0.0.1", SESSION_MS, SESSION_MS, "consumer", [("range", metadata)]
        )
        h.coordinator.join(request, h.now_ms, joins[-1])
    return joins


def syncing(h: Harness, members: Sequence[str], generation: int) -> list[Parked[SyncResponse]]:
    syncs: list[Parked[SyncResponse]] = []
    for member_id in members:
        syncs.append(Parked())
        assignments = {each: each.encode() for each in members}
        h.coordinator.sync(SyncRequest("g", generation, member_id, assignments), h.now_ms, syncs[-1])
    return syncs


def answered_by_step(h: Harness, parked: Sequence[Parked[Any]]) -> Iterator[int]:
    before = 0
    while True:
        now = sum(len(each.answers) for each in parked)
        yield now - before
        if not h.coordinator.has_work:
            return
        before = now
        h.coordinator.work()


def test_a_rebalance_of_a_large_group() -> None:
    h = Harness()
    members = h.stable(MEMBERS)
    joins = joining_again(h, members, b"other")
    assert max(answered_by_step(h, joins)) <= SLICE
    assert {parked.answer.error for parked in joins} == {ErrorCode.NONE}
    syncs = syncing(h, members, 2)
    h.log.finish_one(h.now_ms)
    assert max(answered_by_step(h, syncs)) <= SLICE
    assert [parked.answer.assignment for parked in syncs] == [member.encode() for member in members]
    h.advance(SESSION_MS - 1)
    assert len(h.coordinator.describe_group("g").members) == MEMBERS


def test_a_rebalance_that_begins_before_the_last_one_is_answered() -> None:
    h = Harness()
    members = h.stable(MEMBERS)
    joins = joining_again(h, members, b"other")
    h.coordinator.work()
    waiting = [parked for parked in joins if not parked.answers]
    assert waiting
    again = joining_again(h, members[:1], b"another")
    h.finish_all()
    assert not any(parked.answers for parked in [*waiting, *again]), "they take part in the next one"
    answered = [member for member, parked in zip(members, joins, strict=True) if parked not in waiting]
    again += joining_again(h, answered[1:], b"another")
    h.finish_all()
    assert {parked.answer.generation for parked in [*waiting, *again]} == {3}


def test_a_rebalance_that_begins_before_all_have_their_assignment() -> None:
    h = Harness()
    members = h.stable(MEMBERS)
    joining_again(h, members, b"other")
    h.finish_all()
    syncs = syncing(h, members, 2)
    h.log.finish_one(h.now_ms)
    assert not all(parked.answers for parked in syncs)
    joining_again(h, members[:1], b"another")
    assert [parked.answer.assignment for parked in syncs] == [member.encode() for member in members]
    h.finish_all()


def test_members_of_a_generation_stay_when_the_lease_lapses_before_they_are_answered() -> None:
    """What the leader assigns to them is assigned again when they do not come back."""
    h = Harness(replace(CONFIG, initial_rebalance_delay_ms=1_000))
    joins = [h.join() for _ in range(MEMBERS)]
    while not any(parked.answers for parked in joins):
        h.now_ms += 1_000
        h.coordinator.tick(h.now_ms)
    answered = [parked.answer.member_id for parked in joins if parked.answers]
    assert 0 < len(answered) < MEMBERS
    h.coordinator.pause(h.now_ms)
    h.coordinator.resume(h.now_ms)
    h.finish_all()
    assert {parked.answer.error for parked in joins[len(answered) :]} == {ErrorCode.NOT_COORDINATOR}
    syncing(h, answered, 1)
    h.finish_all()
    assert len(h.coordinator.describe_group("g").members) == MEMBERS
    h.advance(SESSION_MS - 1)
    assert {h.heartbeat(member, 1) for member in answered} == {ErrorCode.NONE}
    h.advance(1)
    assert {h.heartbeat(member, 1) for member in answered} == {ErrorCode.REBALANCE_IN_PROGRESS}
    assert len(h.coordinator.describe_group("g").members) == len(answered)


def test_a_coordinator_that_resigns_answers_waiting_members_little_by_little() -> None:
    h = Harness(replace(CONFIG, initial_rebalance_delay_ms=1_000))
    joins = [h.join(group=f"g{number % 3}") for number in range(MEMBERS)]
    h.coordinator.resign(h.now_ms)
    answered = [0, sum(len(parked.answers) for parked in joins)]
    while h.coordinator.has_work:
        assert answered[-1] - answered[-2] <= SLICE
        h.coordinator.work()
        answered.append(sum(len(parked.answers) for parked in joins))
    assert {parked.answer.error for parked in joins} == {ErrorCode.NOT_COORDINATOR}
    assert answered[1] < MEMBERS
