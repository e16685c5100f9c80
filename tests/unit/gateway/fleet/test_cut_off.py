"""When a gateway sends its clients away: Pulsar confirms nothing that it writes, and there are others to go to."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace
from typing import cast

import pytest

from coordinator.fleet.membership import Membership
from gateway.config import FleetSection
from gateway.fleet.fleet import CUT_OFF_S, Fleet
from gateway.log.partition_log import STALLED_S
from gateway.pulsar.admin import AdminClient
from gateway.pulsar.client import PulsarClient


@pytest.mark.parametrize(
    ("members", "silence_s", "expected"),
    [(2, 0.0, False), (2, CUT_OFF_S - 1, False), (2, CUT_OFF_S + 1, True), (1, math.inf, False), (0, math.inf, False)],
)
def test_cut_off(members: int, silence_s: float, expected: bool) -> None:
    async def ask() -> bool:
        client = SimpleNamespace(last_receipt_s=asyncio.get_running_loop().time() - silence_s)
        fleet = Fleet(cast(PulsarClient, client), cast(AdminClient, None), "t/ns", FleetSection())
        roster = SimpleNamespace(eligible=[*range(members)])
        fleet._membership = cast(Membership, SimpleNamespace(roster=roster))
        return fleet.is_cut_off

    assert asyncio.run(ask()) is expected


def test_writes_are_answered_before_connections_end() -> None:
    assert CUT_OFF_S >= STALLED_S
