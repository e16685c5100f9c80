"""Metadata of very many topics: the work is done in slices, and the number of created topics is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count, pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator.fleet.leadership import LeadershipState
from coordinator.fleet.messages import Address, Member
from gateway import fan_out
from gateway.config.gateway_config import Config
from gateway.handlers.topics import metadata
from gateway.pulsar.admin.http import AdminError
from gateway.requests.context import Client, Listener, RequestContext
from gateway.requests.partition_rows import PartitionRows
from gateway.requests.policy import ALL_ALLOWED, AllAllowed, Policy
from gateway.topics.catalog import TopicCatalog
from gateway.topics.requested_topics import MIN_LOOKUPS, RequestedTopics
from protocol.kafka.acl import AclOperation, ResourceType
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.topics import MetadataRequest
from tests.unit.gateway.log.fake_admin import PREFIX, FakeTopics

MEMBER = Member(
    node_id=0, incarnation="i", instance="h:1", addresses={"default": Address(host="h", port=1)}, lease_ms=1,
    started_ms=0,
)  # fmt: skip
UNKNOWN, NOT_AVAILABLE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE


class Scene:
    def __init__(self, **kafka: Any) -> None:
        self.pulsar = FakeTopics()
        self.policy: Policy = ALL_ALLOWED
        self.denied: list[tuple[object, ...]] = []
        """The denials that are logged."""
        self.catalog = TopicCatalog(self.pulsar.client, "t/n", 60_000)
        config = Config.model_validate({"kafka": kafka})
        fleet = SimpleNamespace(
            members=[MEMBER], node_id=0, epoch=3, leader=lambda *_: MEMBER, state=LeadershipState.LEADING,
            listener="default",
        )  # fmt: skip
        self.cluster = SimpleNamespace(
            config=config, fleet=fleet, topics=self.catalog, cluster_id="c", partition_rows=PartitionRows()
        )

    async def rows(self, names: Sequence[str] | None, *, version: int = 9, create: bool = True) -> dict[str, Any]:
        wanted = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        client = Client("c:1")
        call = SimpleNamespace(
            request=request, version=version, cluster=self.cluster, topics=RequestedTopics(self.catalog), client_id="c",
            client=client,
            context=RequestContext(client, Listener("default"), cast(Any, self.cluster), policy=self.policy),
            count_error=lambda code: None, audit_denied=lambda *right: self.denied.append(right),
        )  # fmt: skip
        answer = await metadata.handle(cast(Any, call))
        self.answer = answer
        return {row.name or "": row for row in answer.topics}


def errors(rows: dict[str, Any]) -> set[int]:
    return {row.error_code for row in rows.values()}


class CreatesNothing(AllAllowed):
    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        return operation is not AclOperation.CREATE


async def test_each_topic_that_the_client_may_not_create_is_logged() -> None:
    scene = Scene()
    scene.policy = CreatesNothing()
    assert errors(await scene.rows(["a", "b"])) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert scene.denied == [(AclOperation.CREATE, ResourceType.TOPIC, name) for name in ("a", "b")]


async def test_so_many_topics_are_created_for_one_request() -> None:
    scene = Scene(max_auto_created_topics=7)
    names = [f"t{number}" for number in range(500)]
    rows = await scene.rows(names)
    assert list(rows) == names
    assert len(scene.pulsar.properties) == 7
    assert [row.error_code for row in rows.values()].count(NOT_AVAILABLE) == 493
    again = await scene.rows(names)
    assert [row.error_code for row in again.values()].count(0) == 14
    assert scene.pulsar.requests["partitioned"] < 100, "one listing tells which names there are not"


async def test_many_unknown_names_cost_one_listing() -> None:
    scene = Scene()
    scene.pulsar.properties[PREFIX + "there"] = {}
    rows = await scene.rows(["there", *(f"t{number}" for number in range(5_000))], create=False)
    assert rows.pop("there").error_code == 0
    assert errors(rows) == {UNKNOWN}
    assert scene.pulsar.requests == {"list_partitioned": 1, "list_topics": 1, "partitioned": MIN_LOOKUPS}


async def test_a_few_unknown_names_are_looked_up() -> None:
    """A topic that another client has just created is found."""
    scene = Scene()
    await scene.catalog.all()
    scene.pulsar.properties[PREFIX + "new"] = {}
    rows = await scene.rows(["new", "none"], create=False)
    assert (rows["new"].error_code, rows["none"].error_code) == (0, UNKNOWN)


@pytest.mark.parametrize("everything", [True, False])
async def test_others_have_their_turn(monkeypatch: pytest.MonkeyPatch, everything: bool) -> None:
    """Rows of known topics need no waiting: here, each look at the clock uses a part of a slice."""
    scene = Scene()
    scene.pulsar.partitions = 10
    for number in range(100):
        scene.pulsar.properties[f"{PREFIX}t{number}"] = {}
    await scene.catalog.all()
    clock, turns, partitions = count(step=0.6 * fan_out.SLICE_S), [0], 0
    monkeypatch.setattr(fan_out, "monotonic", lambda: next(clock))

    def leader(*_: object) -> Member:
        nonlocal partitions
        partitions += 1
        return MEMBER

    scene.cluster.fleet.leader = leader

    async def other() -> None:
        while partitions < 1_000:
            await asyncio.sleep(0)
            turns.append(partitions)

    watching = asyncio.create_task(other())
    assert len(await scene.rows(None if everything else [f"t{number}" for number in range(100)])) == 100
    await watching
    assert max(later - earlier for earlier, later in pairwise(turns)) < 100


@pytest.mark.parametrize("version", [9, 13])
async def test_nothing_was_ever_listed(version: int) -> None:
    """The response has no broker, as Kafka's when all of it fails: clients retry."""
    scene = Scene()

    async def fail(method: str, topic: str) -> None:
        raise AdminError(503, "not now")

    scene.pulsar.before = fail
    assert await scene.rows(None, version=version) == {}
    assert (scene.answer.brokers, scene.answer.controller_id) == ([], -1)
    assert scene.answer.error_code not in {0, ErrorCode.UNKNOWN_SERVER_ERROR}


async def test_partitions_are_placed_once_for_all_clients_until_the_fleet_changes() -> None:
    scene = Scene()
    scene.pulsar.partitions = 500
    scene.pulsar.properties[PREFIX + "t"] = {}
    placed = 0

    def leader(*_: object) -> Member:
        nonlocal placed
        placed += 1
        return MEMBER

    scene.cluster.fleet.leader = leader
    every = await asyncio.gather(*(scene.rows(["t"]) for _ in range(20)))
    assert placed == 500
    assert {len(rows["t"].partitions) for rows in every} == {500}
    scene.cluster.fleet.epoch += 1
    rows = await scene.rows(["t"])
    assert {each.leader_epoch for each in rows["t"].partitions} == {4}
    assert placed == 1000


async def test_rows_of_a_moment_without_acknowledged_writes_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """At that time the gateway advertises its successors as leaders, and there are none here."""
    scene = Scene()
    scene.pulsar.partitions = 150
    scene.pulsar.properties[PREFIX + "t"] = {}
    placed = 0
    monkeypatch.setattr(fan_out.Slices, "pause", lambda _: asyncio.sleep(0))

    def leader(*_: object) -> Member:
        nonlocal placed
        placed += 1
        if placed == 50:
            asyncio.get_running_loop().call_soon(setattr, scene.cluster.fleet, "state", LeadershipState.PRESUMED_DEAD)
        if placed == 100:
            asyncio.get_running_loop().call_soon(setattr, scene.cluster.fleet, "state", LeadershipState.LEADING)
        return MEMBER

    scene.cluster.fleet.leader = leader
    scene.cluster.fleet.key = lambda topic, partition: (topic, partition)
    await scene.rows(["t"])
    rows = await scene.rows(["t"])
    assert {each.error_code for each in rows["t"].partitions} == {0}
