"""What a gateway may do, depending on its membership, its lease, and the time without an acknowledgement of Pulsar."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.fleet import leadership
from coordinator.fleet.leadership import (
    LeadershipState,
    PartitionRole,
    Permissions,
    Silence,
    Standing,
    leadership_state,
)
from tests.unit.coordinator.fleet.fleet_harness import KEYS, TIMES, World

DEAD_AFTER_MS, CUT_OFF_MS = TIMES.dead_after_ms, TIMES.cut_off_ms
WITH_LEASE = Standing(is_member=True, holds_lease=True, others=2, staying_others=2)
WITHOUT_LEASE = WITH_LEASE._replace(holds_lease=False)
ALONE = Standing(is_member=True, holds_lease=False, others=0, staying_others=0)
JOINING = WITHOUT_LEASE._replace(is_member=False)
State = LeadershipState


@pytest.mark.parametrize(
    ("standing", "silence_ms", "expected"),
    [
        (WITH_LEASE, 0, State.LEADING),
        (WITH_LEASE, math.inf, State.LEADING),
        (ALONE, 0, State.LAPSED),
        (ALONE, math.inf, State.LAPSED),
        (ALONE._replace(is_member=False), math.inf, State.OUTSIDE),
        (WITHOUT_LEASE, 0, State.DOUBTFUL),
        (WITHOUT_LEASE, DEAD_AFTER_MS, State.DOUBTFUL),
        (WITHOUT_LEASE, DEAD_AFTER_MS + 1, State.PRESUMED_DEAD),
        (WITHOUT_LEASE, CUT_OFF_MS, State.PRESUMED_DEAD),
        (WITHOUT_LEASE, CUT_OFF_MS + 1, State.CUT_OFF),
        (WITHOUT_LEASE._replace(staying_others=0), math.inf, State.PRESUMED_DEAD),
        (JOINING, 0, State.DOUBTFUL),
        (JOINING, math.inf, State.CUT_OFF),
    ],
)
def test_state(standing: Standing, silence_ms: float, expected: LeadershipState) -> None:
    assert leadership_state(standing, Silence(silence_ms), TIMES) is expected


@pytest.mark.parametrize(
    ("standing", "silence_ms", "expected"),
    [
        (WITH_LEASE, math.inf, State.LEADING),
        (ALONE, math.inf, State.LAPSED),
        (WITHOUT_LEASE, DEAD_AFTER_MS + 1, State.DOUBTFUL),
        (WITHOUT_LEASE, CUT_OFF_MS, State.DOUBTFUL),
        (WITHOUT_LEASE, CUT_OFF_MS + 1, State.ALL_CUT_OFF),
        (WITHOUT_LEASE._replace(staying_others=0), math.inf, State.DOUBTFUL),
    ],
)
def test_state_while_pulsar_is_away_from_all(standing: Standing, silence_ms: float, expected: LeadershipState) -> None:
    assert leadership_state(standing, Silence(silence_ms, may_be_evicted=False), TIMES) is expected


def documented() -> Iterator[tuple[LeadershipState, Permissions]]:
    """The rows of the module's table."""
    assert leadership.__doc__ is not None
    rows = [line.strip("| ").split(" | ") for line in leadership.__doc__.splitlines() if line.startswith("| ")]
    for name, _when, *columns in rows[2:]:
        yield LeadershipState[name], Permissions(*(column == "yes" for column in columns))


def test_the_table_says_what_each_state_permits() -> None:
    rows = dict(documented())
    assert rows == {state: state.permissions for state in LeadershipState}


members = st.tuples(st.booleans(), st.integers(1, 3), st.integers(0, 1))
standings = members.map(lambda drawn: Standing(True, drawn[0], drawn[1], drawn[1] - drawn[2])) | members.map(
    lambda drawn: Standing(False, False, drawn[1], drawn[1] - drawn[2])
)


durations_ms = st.floats(0, 60_000)


@given(standings, st.tuples(durations_ms, durations_ms), st.booleans(), st.integers(33, 60_000))
def test_longer_silence_never_permits_more(
    standing: Standing, durations_ms: tuple[float, float], may_be_evicted: bool, dead_after_ms: int
) -> None:
    times = replace(TIMES, dead_after_ms=dead_after_ms)
    earlier, later = (leadership_state(standing, Silence(each, may_be_evicted), times) for each in sorted(durations_ms))
    assert all(was or not is_now for was, is_now in zip(earlier.permissions, later.permissions, strict=True))


@given(standings, st.builds(Silence, durations_ms, st.booleans()))
def test_a_coordinating_state_excludes_others(standing: Standing, silence: Silence) -> None:
    permissions = leadership_state(standing, silence, TIMES).permissions
    assert permissions.coordinates == standing.holds_lease
    assert permissions.excludes_others == standing.holds_lease


def test_a_gateway_on_its_own() -> None:
    world = World()
    only = world.start("a")
    world.run(1_000)
    assert only.membership.state(world.now_ms, lambda: Silence(math.inf)) is State.LEADING
    later_ms = world.now_ms + TIMES.lease_ms
    assert only.membership.state(later_ms, lambda: Silence(math.inf)) is State.LAPSED
    assert {only.membership.role(key, later_ms) for key in KEYS} == {PartitionRole.WITHOUT_LEASE}


def test_roles_of_a_gateway_that_joins() -> None:
    world = World()
    old = world.start("a")
    world.run(1_000)
    old.paused = True
    new = world.start("b")
    assert new.membership.state(world.now_ms, lambda: Silence(0)) is State.DOUBTFUL
    assert {new.membership.role(key, world.now_ms) for key in KEYS} == {PartitionRole.ELSEWHERE}
    world.run(500)
    assert new.membership.state(world.now_ms, lambda: Silence(0)) is State.LEADING
    assert {new.membership.role(key, world.now_ms) for key in KEYS} == {
        PartitionRole.ELSEWHERE,
        PartitionRole.TAKING_OVER,
    }
    old.paused = False
    world.run(500)
    assert {new.membership.role(key, world.now_ms) for key in KEYS} == {PartitionRole.ELSEWHERE, PartitionRole.LEADING}
    later_ms = world.now_ms + TIMES.lease_ms
    assert new.membership.state(later_ms, lambda: Silence(DEAD_AFTER_MS + 1)) is State.PRESUMED_DEAD


def test_a_gateway_that_was_evicted() -> None:
    world = World()
    first, second = world.start("a"), world.start("b")
    world.run(1_000)
    second.paused = True
    world.run(TIMES.dead_after_ms + 1_000)
    assert first.membership.state(world.now_ms, lambda: Silence(0)) is State.LEADING
    second.read(world.now_ms)
    assert second.membership.state(world.now_ms, lambda: Silence(math.inf)) is State.CUT_OFF
    assert {second.membership.role(key, world.now_ms) for key in KEYS} == {PartitionRole.ELSEWHERE}
