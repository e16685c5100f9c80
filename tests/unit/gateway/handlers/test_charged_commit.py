"""Both ways of an OffsetCommit request are charged alike, and throttle the client alike."""

from __future__ import annotations

import time
from typing import Any

import pytest

from coordinator.group.coordinator import GroupCoordinator
from gateway.coordination.partition.clock import WallClock
from gateway.handlers.groups.known_commit import KnownCommits
from gateway.security.quota_entities import PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from protocol.pulsar.pulsar_commands_pb2 import ServerError
from tests.support.raw_client import encode_request
from tests.unit.gateway.handlers.both_charged import BothCharged, set_quota
from tests.unit.gateway.handlers.both_ways import TOPIC, BothWays
from tests.unit.gateway.handlers.test_known_commit import commit, one

BUSY_S = 0.25


@pytest.fixture
async def both(monkeypatch: pytest.MonkeyPatch, sections: dict[str, Any]) -> BothCharged:
    """They lead the groups, and their connections know the request. Each commit is work of 250 ms."""
    monkeypatch.setattr(WallClock, "now_ms", lambda _: 1_700_000_000_000)
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)
    ways = BothWays(monkeypatch, KnownCommits, sections)
    for way in (ways.general, ways.straight):
        await way.scene.lead_groups()
    charged = BothCharged(ways, monkeypatch)
    await ways.ask(commit(2, {TOPIC: {0: 1}}))
    await charged.ask(one(8, 1), one(8, 2), one(8, 3), taken=1)
    charged.each_takes(monkeypatch, GroupCoordinator, "commit_offsets", BUSY_S)
    return charged


async def test_within_the_quota(both: BothCharged) -> None:
    both.set(REQUEST_PERCENTAGE, 10)
    assert await both.ask(*(one(8, offset) for offset in range(4)), taken=4) == []
    assert both.used()["c", REQUEST_PERCENTAGE] == 400 * BUSY_S


async def test_over_the_quota(both: BothCharged) -> None:
    both.set(REQUEST_PERCENTAGE, 10)
    assert await both.ask(*(one(8, offset) for offset in range(6)), taken=6) == [1_000, 1_000]
    assert both.used()["c", REQUEST_PERCENTAGE] == 600 * BUSY_S


async def test_a_quota_that_changes_while_a_request_waits(both: BothCharged) -> None:
    both.set(REQUEST_PERCENTAGE, 100)
    assert await both.run(lambda way: set_quota(way, REQUEST_PERCENTAGE, 1), one(8, 5), taken=1) == [1_000]
    assert await both.run(lambda way: set_quota(way, REQUEST_PERCENTAGE, 10), one(8, 6), taken=1) == []
    assert both.used()["c", REQUEST_PERCENTAGE] == 200 * BUSY_S
    assert await both.run(lambda way: set_quota(way, REQUEST_PERCENTAGE, None), one(8, 7), taken=1) == []


@pytest.mark.parametrize("percentage", [10, 1])
async def test_a_client_that_leaves_is_charged(both: BothCharged, percentage: float) -> None:
    both.set(REQUEST_PERCENTAGE, percentage)
    await both.run_and_leave(one(8, 5), one(8, 6), taken=2)
    assert both.used()["c", REQUEST_PERCENTAGE] == 200 * BUSY_S


async def test_refused_offsets_are_charged(both: BothCharged) -> None:
    both.set(REQUEST_PERCENTAGE, 10)
    both.ways.each(lambda way: setattr(way.broker, "error", ServerError.PersistenceError))
    assert await both.ask(one(8, 5), one(8, 6), taken=2) == []
    assert both.used()["c", REQUEST_PERCENTAGE] == 200 * BUSY_S


async def test_commits_that_are_refused_at_once_are_charged(both: BothCharged) -> None:
    both.set(REQUEST_PERCENTAGE, 10)
    for way in (both.ways.general, both.ways.straight):
        way.scene.cluster.groups.partitions[0]._resign()
    assert await both.ask(one(8, 5), one(8, 6), taken=2) == []


async def test_work_that_runs_beside_its_request_is_charged(
    both: BothCharged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OffsetFetch, which has no fast path."""
    both.each_takes(monkeypatch, GroupCoordinator, "fetch_offsets", BUSY_S)
    both.set(REQUEST_PERCENTAGE, 10)
    groups = [{"group_id": name, "topics": None, "member_id": None, "member_epoch": -1} for name in ("g", "h")]
    payload = encode_request("OffsetFetch", 9, {"groups": groups, "require_stable": False}, client_id="c")
    await both.ask(len(payload).to_bytes(4, "big") + payload, taken=0)
    assert both.used()["c", REQUEST_PERCENTAGE] == 200 * BUSY_S


async def test_bytes_are_free(both: BothCharged) -> None:
    both.set(PRODUCER_BYTE_RATE, 1)
    assert await both.ask(one(8, 5), taken=1) == []
