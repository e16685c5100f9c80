"""A fleet as one gateway knows it: a real membership, without Pulsar."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import cast

from coordinator.fleet.membership import Identity, Membership
from coordinator.fleet.messages import LogPosition, Member, MemberState, Snapshot
from gateway.config.gateway_config import FleetSection
from gateway.fleet.clock import lease_now_ms
from gateway.fleet.fleet import Fleet
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient

OWN = "own"
CONFIG = FleetSection(heartbeat_ms=10, lease_ms=5_000, dead_after_ms=6_000)


def member_of(incarnation: str, node_id: int) -> Member:
    return Member(
        node_id=node_id, incarnation=incarnation, instance=incarnation, addresses={}, lease_ms=CONFIG.lease_ms,
        started_ms=0,
    )  # fmt: skip


def fleet_of(
    members: Sequence[Member], *, held: bool, silence_s: float = 0.0, leaving: Collection[str] = (), own: str = OWN
) -> Fleet:
    """As the gateway with the incarnation ``own`` knows it. ``held`` is whether it has a lease."""
    client = SimpleNamespace(last_receipt_s=asyncio.get_running_loop().time() - silence_s)
    fleet = Fleet(cast(PulsarClient, client), cast(AdminClient, None), "t/ns", CONFIG)
    states = [
        MemberState(member=member, sequence=0, drained_epoch=1, leaving=member.incarnation in leaving)
        for member in members
    ]
    snapshot = Snapshot(epoch=1, position=None, members=tuple(states))
    now_ms = lease_now_ms()
    found = next((member for member in members if member.incarnation == own), member_of(own, 0))
    identity = Identity(None, own, found.addresses, found.started_ms, found.rack, clusters=found.clusters)
    membership = Membership(identity, CONFIG.times, lambda: own, now_ms, snapshot)
    if held:  # before that, it expired when it began
        membership.read(LogPosition(1, 1), membership.due(now_ms)[0], now_ms)
    fleet._membership = membership
    return fleet
