"""When another gateway may lead what this one did, what only the leader may send is stopped."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from coordinator.fleet.membership import Membership
from gateway import background
from gateway.config import FleetSection
from gateway.fleet.fleet import Fleet
from gateway.pulsar.admin import AdminClient
from gateway.pulsar.client import PulsarClient

CASES = [
    (True, ["own", "other"], False),
    (False, ["own", "other"], True),
    (False, ["own"], False),
    (False, ["own, restarted"], True),
    (False, ["other"], True),
    (False, [], False),
]


def fleet_of(held: bool, members: list[str]) -> Fleet:
    """A fleet as the gateway with the incarnation ``own`` knows it."""
    fleet = Fleet(cast(PulsarClient, None), cast(AdminClient, None), "t/ns", FleetSection(heartbeat_ms=10))
    states = [SimpleNamespace(member=SimpleNamespace(incarnation=each), leaving=True) for each in members]
    roster = SimpleNamespace(members=dict(enumerate(states)), eligible=[])
    own = SimpleNamespace(incarnation="own")
    membership = SimpleNamespace(roster=roster, member=own, holds_lease=lambda _now_ms: held)
    fleet._membership = cast(Membership, membership)
    return fleet


@pytest.mark.parametrize(("held", "members", "expected"), CASES)
async def test_doubtful(held: bool, members: list[str], expected: bool) -> None:
    assert fleet_of(held, members).is_doubtful is expected


@pytest.mark.parametrize(("held", "members", "expected"), CASES)
async def test_it_is_told_again_and_again(held: bool, members: list[str], expected: bool) -> None:
    fleet = fleet_of(held, members)
    told: list[None] = []
    fleet.on_lease_lost.append(lambda: told.append(None))
    ticking = asyncio.create_task(fleet._keep_ticking())
    await asyncio.sleep(0.05)
    ticking.cancel()
    assert (len(told) >= 2) is expected


async def test_what_could_not_be_let_go_of_is_let_go_of_when_it_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the others wait for ever for what this gateway lost."""
    monkeypatch.setattr(background, "RESTART_PAUSE_S", 0)
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    fleet = fleet_of(True, ["own", "other"])
    settled: list[int] = []
    membership = cast(SimpleNamespace, fleet._membership)
    membership.roster.epoch, membership.settle = 7, lambda epoch, _now_ms: settled.append(epoch)
    attempts = iter([KeyError("once"), None])

    async def let_go() -> None:
        if (error := next(attempts)) is not None:
            raise error

    fleet.let_go.append(let_go)
    task = background.keep_running("fleet hand-over", fleet._keep_letting_go)
    fleet._behind.set()
    async with asyncio.timeout(5):
        while not settled:
            await asyncio.sleep(0)
    assert settled == [7]
    task.cancel()
