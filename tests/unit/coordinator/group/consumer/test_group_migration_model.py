"""Random histories of a group with members of both protocols, which join, leave and die, under coordinators that
change.

No two members ever read a partition; and without further events, all partitions are read.
"""

import random
from collections.abc import Sequence
from struct import pack
from typing import Any

import pytest

from coordinator import slices
from coordinator.group import downgrade, migration
from coordinator.group.consumer import group as consumer_group
from coordinator.group.messages import JoinedMember
from coordinator.group.subscription import read_assignment, read_subscription, write_assignment
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import SESSION_MS, Harness, Parked, reloaded

T_ID = b"t" * 16
PARTITIONS = range(6)
SEEDS = [*range(20), 23, 39, 43, 50, 75, 79, 82, 86, 183, 271]
"""The last ones have found two readers."""
LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
REJOIN = (
    *LOST, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND,
)  # fmt: skip


class Classic:
    """A consumer of the classic protocol: a cooperative one, or one that releases all partitions before it joins."""

    def __init__(self, h: Harness, *, cooperative: bool) -> None:
        self.h, self.cooperative = h, cooperative
        self.member_id, self.generation = "", -1
        self.owned: list[int] = []
        self.join: Parked[Any] | None = None
        self.sync: Parked[Any] | None = None
        self.must_join = True

    def step(self) -> None:
        if self.join is not None:
            self._joined(self.join)
        elif self.sync is not None:
            self._synced(self.sync)
        elif self.must_join:
            self.owned = self.owned if self.cooperative else []
            owned = b"\0\0\0\1\0\1t" + pack(f">i{len(self.owned)}i", len(self.owned), *self.owned)
            metadata = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff" + owned
            self.join = self.h.join(self.member_id, protocols=[("range", metadata)])
        else:
            self._failed(self.h.heartbeat(self.member_id, self.generation))

    def _failed(self, error: ErrorCode) -> None:
        self.must_join = error is not ErrorCode.NONE
        if error in LOST:
            self.owned = []
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id, self.generation = "", -1

    def _joined(self, parked: Parked[Any]) -> None:
        if not parked.answers:
            return
        answer, self.join = parked.answer, None
        self._failed(answer.error)
        if answer.error is ErrorCode.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation
            self.sync = self.h.sync(self.member_id, self.generation, shares(answer.members))

    def _synced(self, parked: Parked[Any]) -> None:
        if parked.answers:
            answer, self.sync = parked.answer, None
            self._failed(answer.error)
            if answer.error is ErrorCode.NONE:
                before, self.owned = self.owned, list(read_assignment(answer.assignment).get("t", []))
                self.must_join = not set(before) <= set(self.owned)

    def leave(self) -> None:
        if self.member_id:
            self.h.leave(self.member_id)


def shares(members: Sequence[JoinedMember]) -> dict[str, bytes]:
    """The leader's assignment: what another member still owns is given to nobody."""
    owned = [set(read_subscription(member.metadata).owned.get("t", ())) for member in members]
    assigned = {}
    for n, member in enumerate(members):
        of_others = set[int]().union(*owned[:n], *owned[n + 1 :])
        share = [number for number in PARTITIONS[n :: len(members)] if number not in of_others]
        assigned[member.member_id] = write_assignment(1, {"t": share})
    return assigned


class Modern:
    """A consumer of the consumer protocol."""

    def __init__(self, h: Harness, member_id: str) -> None:
        self.h, self.member_id = h, member_id
        self.epoch = 0
        self.owned: list[int] = []
        self.beating: Parked[Any] | None = None

    def step(self) -> None:
        if self.beating is None:
            owned = {T_ID: set(self.owned)} if self.owned else {}
            self.beating = self.h.consumer_heartbeat(self.member_id, self.epoch, owned=owned)
        if not self.beating.answers:
            return
        answer, self.beating = self.beating.answer, None
        if answer.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return
        if answer.error is not ErrorCode.NONE:
            assert answer.error in REJOIN, answer
            self.epoch, self.owned = 0, []
            return
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = sorted(answer.assignment.get(T_ID, ()))

    def leave(self) -> None:
        if self.epoch > 0:
            self.h.consumer_heartbeat(self.member_id, -1)


class World:
    def __init__(self, seed: int, *, in_slices: bool = False) -> None:
        """`in_slices`: the coordinator and its log do a few steps after each event, and not all that there are."""
        self.random = random.Random(seed)
        self.in_slices = in_slices
        self.h = Harness()
        self._slow()
        self.members: list[Classic | Modern] = []
        self.born = 0

    def _slow(self) -> None:
        h = self.h

        def some_steps() -> None:
            for _ in range(self.random.randint(0, 8)):
                if h.coordinator.has_work and (not h.log.waiting or self.random.random() < 0.7):
                    h.coordinator.work()
                elif h.log.waiting:
                    h.log.finish_one(h.now_ms)

        if self.in_slices:
            setattr(h, "_after", some_steps)  # noqa: B010

    def check(self) -> None:
        owned = [number for member in self.members for number in member.owned]
        assert len(owned) == len(set(owned)), "read by two"

    def happen(self) -> None:
        chance = self.random.random()
        if chance < 0.10 and len(self.members) < 4:
            self.born += 1
            is_classic, cooperative = self.random.random() < 0.5, self.random.random() < 0.5
            made = Classic(self.h, cooperative=cooperative) if is_classic else Modern(self.h, f"m{self.born}")
            self.members.append(made)
        elif chance < 0.16 and self.members:
            gone = self.members.pop(self.random.randrange(len(self.members)))
            if self.random.random() < 0.7:
                gone.leave()
            else:
                self.let_sessions_pass()
        elif chance < 0.19:
            self.take_over()
        elif chance < 0.22:
            self.h.topics.unknown.clear()
        elif self.members:
            self.random.choice(self.members).step()

    def let_sessions_pass(self) -> None:
        """Sessions of dead members expire; living members send heartbeats."""
        for _ in range(30):
            for member in self.members:
                member.step()
            if self.in_slices:  # which take no seconds
                self.h.finish_all()
            self.h.advance(SESSION_MS // 5)

    def take_over(self) -> None:
        """Another coordinator, which has to look up the topics: clients that wait for a response retry."""
        self.h = reloaded(self.h)
        self._slow()
        self.h.topics.unknown.add("t")
        for member in self.members:
            member.h = self.h
            if isinstance(member, Modern):
                member.beating = None
            if isinstance(member, Classic) and (member.join is not None or member.sync is not None):
                member.join = member.sync = None
                member.must_join = True


@pytest.mark.parametrize("seed", SEEDS)
def test_partitions_have_one_reader_and_find_one(seed: int) -> None:
    live(World(seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_in_groups_that_change_in_slices(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_UNITS", 1)
    monkeypatch.setattr(consumer_group, "FEW_TOPICS", 0)
    monkeypatch.setattr(downgrade, "AT_ONCE", 0)
    monkeypatch.setattr(downgrade, "PART_RECORDS", 1)
    monkeypatch.setattr(migration, "AT_ONCE", 0)
    live(World(seed, in_slices=True))


def live(world: World) -> None:
    for _ in range(150):
        world.happen()
        world.check()
    world.h.topics.unknown.clear()
    world.members.append(Modern(world.h, "last"))
    for _ in range(80):
        for member in world.members:
            member.step()
            world.check()
        world.h.advance(SESSION_MS // 5)
        if world.in_slices:
            world.h.finish_all()
    assert sorted(number for member in world.members for number in member.owned) == [*PARTITIONS]
