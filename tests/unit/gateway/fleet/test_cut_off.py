"""A gateway advertises its successors when Pulsar acknowledges none of its writes, and there are other gateways."""

from __future__ import annotations

import math

import pytest

from gateway.config.gateway_config import FleetSection
from gateway.pulsar.producer import STALLED_S
from tests.unit.gateway.fleet.fleet_scene import OWN, fleet_of, member_of

CUT_OFF_S = FleetSection().cut_off_ms / 1000


@pytest.mark.parametrize(
    ("members", "silence_s", "expected"),
    [(2, 0.0, False), (2, CUT_OFF_S - 1, False), (2, CUT_OFF_S + 1, True), (1, math.inf, False), (0, math.inf, False)],
)
async def test_cut_off(members: int, silence_s: float, expected: bool) -> None:
    known = [member_of(each, number) for number, each in enumerate([OWN, "other"][:members])]
    fleet = fleet_of(known, held=False, silence_s=silence_s)
    assert fleet.state.permissions.is_ready is not expected


def test_writes_are_answered_before_connections_end() -> None:
    assert CUT_OFF_S >= STALLED_S
