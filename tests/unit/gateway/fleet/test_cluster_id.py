"""The id of a namespace's Kafka cluster: the same for all gateways, also for a topic that is older than cluster ids."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from gateway.fleet.fleet_log import CLUSTER_ID, read_cluster_id
from gateway.pulsar.admin.client import AdminClient

TOPIC = "persistent://public/kafka/~gateways"


class FakeTopics:
    """Each request takes this number of turns of the event loop."""

    def __init__(self, stored: dict[str, str], turns: int) -> None:
        self._stored, self._turns = stored, turns

    async def properties(self, topic: str) -> dict[str, str]:
        found = dict(self._stored)
        for _ in range(self._turns):
            await asyncio.sleep(0)
        return found

    async def put_properties(self, topic: str, properties: dict[str, str]) -> None:
        for _ in range(self._turns):
            await asyncio.sleep(0)
        self._stored |= properties


@pytest.mark.parametrize("turns", [(1, 1), (1, 3), (1, 10), (3, 2)])
async def test_gateways_that_start_at_the_same_time_have_the_same(turns: tuple[int, int]) -> None:
    """Like the worker processes of one machine, perhaps the first ones of a new version."""
    stored: dict[str, str] = {}
    admins = [cast(AdminClient, SimpleNamespace(topics=FakeTopics(stored, each))) for each in turns]
    first, second = await asyncio.gather(*(read_cluster_id(admin, TOPIC) for admin in admins))
    assert first == second == stored[CLUSTER_ID]
    assert len(first) == 22


async def test_what_is_stored_stays() -> None:
    stored = {CLUSTER_ID: "abc"}
    assert await read_cluster_id(cast(AdminClient, SimpleNamespace(topics=FakeTopics(stored, 1))), TOPIC) == "abc"
