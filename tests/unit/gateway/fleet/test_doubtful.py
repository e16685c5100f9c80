"""When another gateway may lead a partition, this gateway sends nothing that only the leader may send."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.fleet.membership import Membership
from gateway import background
from gateway.fleet.fleet import Fleet
from gateway.fleet.listener import FleetListener
from tests.unit.gateway.fleet.fleet_scene import fleet_of, member_of

CASES = [
    (True, ["own", "other"], False),
    (False, ["own", "other"], True),
    (False, ["own"], True),  # others may have joined, and evicted it, while this process was suspended
    (False, ["own, restarted"], True),
    (False, ["other"], True),
    (False, [], False),
]


def fleet_with(held: bool, members: list[str]) -> Fleet:
    """As the gateway with the incarnation ``own`` knows it."""
    return fleet_of([member_of(each, number) for number, each in enumerate(members)], held=held)


class Listener(FleetListener):
    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.lease_losses = 0

    def lease_lost(self) -> None:
        self.lease_losses += 1

    async def release_partitions(self) -> None:
        if self.failures:
            raise self.failures.pop()


@pytest.mark.parametrize(("held", "members", "expected"), CASES)
async def test_doubtful(held: bool, members: list[str], expected: bool) -> None:
    assert fleet_with(held, members).may_send_idempotent() is not expected


@pytest.mark.parametrize(("held", "members", "expected"), CASES)
async def test_it_is_reported_repeatedly(held: bool, members: list[str], expected: bool) -> None:
    fleet, listener = fleet_with(held, members), Listener()
    fleet.subscribe(listener)
    ticking = asyncio.create_task(fleet._keep_ticking())
    await asyncio.sleep(0.05)
    ticking.cancel()
    assert (listener.lease_losses >= 2) is expected
    assert bool(listener.lease_losses) is expected


async def test_what_could_not_be_released_is_released_when_it_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the others wait for ever for the partitions that this gateway lost."""
    monkeypatch.setattr(background, "RESTART_PAUSE_S", 0)
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    fleet = fleet_with(True, ["own", "other"])
    drained: list[int] = []
    monkeypatch.setattr(Membership, "drained", lambda _membership, epoch, _now_ms: drained.append(epoch))
    fleet.subscribe(Listener(KeyError("once")))
    task = background.keep_running("fleet hand-over", fleet._keep_releasing)
    fleet._behind.set()
    async with asyncio.timeout(5):
        while not drained:
            await asyncio.sleep(0)
    assert drained == [1]
    task.cancel()
