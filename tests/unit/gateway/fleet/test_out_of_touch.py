"""To whom a gateway sends its clients when Pulsar confirms nothing to it: to who takes its place."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace
from typing import cast

import pytest

from coordinator.fleet.membership import Membership
from coordinator.fleet.placement import PartitionKey, Placement
from gateway.config import FleetSection
from gateway.fleet.fleet import Fleet
from gateway.pulsar.admin import AdminClient
from gateway.pulsar.client import PulsarClient

OWN, OTHERS = 1, (0, 2)
TOPIC, PARTITIONS = "t", 20


def fleet_of(client: SimpleNamespace, held: bool, node_ids: tuple[int, ...]) -> Fleet:
    """As gateway 1 knows it."""
    config = FleetSection(heartbeat_ms=10, lease_ms=100, dead_after_ms=200)
    fleet = Fleet(cast(PulsarClient, client), cast(AdminClient, None), "t/ns", config)
    members = {each: SimpleNamespace(incarnation=str(each), node_id=each) for each in node_ids}
    placement = Placement(node_ids)
    roster = SimpleNamespace(
        eligible=[*members.values()], leader=placement.leader,
        members={each: SimpleNamespace(member=member) for each, member in members.items()},
    )  # fmt: skip
    own = SimpleNamespace(incarnation=str(OWN))
    membership = SimpleNamespace(
        roster=roster, member=own, holds_lease=lambda _now_ms: held,
        leads=lambda key: placement.leader(key) == OWN,
    )  # fmt: skip
    fleet._membership = cast(Membership, membership)
    return fleet


async def leaders(fleet: Fleet) -> list[int | None]:
    ticking = asyncio.create_task(fleet._keep_ticking())
    await asyncio.sleep(0.02)
    ticking.cancel()
    found = [fleet.leader(TOPIC, number) for number in range(PARTITIONS)]
    return [None if member is None else member.node_id for member in found]


def placed(node_ids: tuple[int, ...]) -> list[int | None]:
    placement = Placement(node_ids)
    return [placement.leader(PartitionKey(TOPIC, number)) for number in range(PARTITIONS)]


@pytest.mark.parametrize(
    ("held", "silence_s", "expected"),
    [(True, math.inf, (0, OWN, 2)), (False, 0.0, (0, OWN, 2)), (False, 0.5, OTHERS), (False, math.inf, OTHERS)],
    ids=["it holds its lease", "others write", "nothing is confirmed", "nothing ever was"],
)
async def test_whom_it_names(held: bool, silence_s: float, expected: tuple[int, ...]) -> None:
    client = SimpleNamespace(last_receipt_s=asyncio.get_running_loop().time() - silence_s)
    assert await leaders(fleet_of(client, held, (0, OWN, 2))) == placed(expected)


async def test_what_it_did_lead_it_still_answers_for() -> None:
    """Plain reading and writing need no lease, if its clients stay."""
    fleet = fleet_of(SimpleNamespace(last_receipt_s=-math.inf), False, (0, OWN, 2))
    assert OWN not in await leaders(fleet)
    assert [number for number in range(PARTITIONS) if fleet.leads(TOPIC, number)]


async def test_it_names_itself_again_when_pulsar_confirms() -> None:
    client = SimpleNamespace(last_receipt_s=-math.inf)
    fleet = fleet_of(client, False, (0, OWN, 2))
    assert await leaders(fleet) == placed(OTHERS)
    client.last_receipt_s = asyncio.get_running_loop().time()
    assert await leaders(fleet) == placed((0, OWN, 2))


async def test_one_that_is_alone_waits_for_pulsar() -> None:
    fleet = fleet_of(SimpleNamespace(last_receipt_s=-math.inf), False, (OWN,))
    assert await leaders(fleet) == [OWN] * PARTITIONS
