"""Every loop of a handler over the rows of a request gives others their turn. Here each row is a slice.

The number of loops says how often the handler goes over all rows: one that does so in a single step has fewer turns.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from coordinator.group.messages import LeaveResponse, ListResponse
from gateway import fan_out
from gateway.handlers.cluster import alter_configs, describe_configs, describe_log_dirs, incremental_alter_configs
from gateway.handlers.groups import delete_groups, find_coordinator, leave_group, list_groups
from gateway.handlers.records import delete_records, describe_producers, list_offsets, offset_for_leader_epoch
from gateway.handlers.security import (
    alter_client_quotas,
    alter_user_scram_credentials,
    describe_user_scram_credentials,
)
from gateway.handlers.topics import (
    alter_partition_reassignments,
    create_partitions,
    delete_topics,
    describe_topic_partitions,
    elect_leaders,
    metadata,
)
from gateway.handlers.transactions import list_transactions
from gateway.requests.group_topics import look_up_counts
from gateway.requests.policy import ALL_ALLOWED
from gateway.requests.reply import Reply
from protocol.kafka.errors import ErrorCode

ROWS = 40
NAMES = [f"n{number}" for number in range(ROWS)]
Handle = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "SLICE_S", 0.0)
    monkeypatch.setattr(fan_out, "STEP_ITEMS", 1)
    monkeypatch.setattr(leave_group, "AT_ONCE", 1)


class Coordinators:
    """Of groups and transactions: everything succeeds."""

    def __init__(self) -> None:
        self.partitions = [SimpleNamespace(run=lambda ask: ask(self, 0))]

    def run(self, key: str, ask: Callable[[Any, int], Any]) -> Any:
        return ask(self, 0)

    def ask(self, key: str, ask: Any, respond: Callable[[Any], Any]) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        future.set_result({key: ErrorCode.NONE})
        return future

    def partition_of(self, key: str) -> None:
        return None

    def leads(self, number: int) -> bool:
        return True

    def group_ids(self) -> list[str]:
        return []

    def list_groups(self, states: Any, types: Any, among: Any) -> ListResponse:
        return ListResponse(ErrorCode.NONE, [])

    def leave(self, asked: Any, now_ms: int) -> LeaveResponse:
        return LeaveResponse(ErrorCode.NONE, [ErrorCode.NONE] * len(asked.members))


def call_of(version: int, **fields: Any) -> Any:
    """To a cluster without topics."""
    topics = SimpleNamespace(
        get=AsyncMock(return_value=None), with_partition=AsyncMock(return_value=None),
        get_by_id=AsyncMock(return_value=None), cached=lambda name: None,
    )  # fmt: skip
    config = SimpleNamespace(pulsar=SimpleNamespace(full_namespace="t/n"))
    fleet = SimpleNamespace(node_id=0, members=(), transaction_version=2, address=None)
    listener = SimpleNamespace(name="default", single_address=False, host=None)
    state = SimpleNamespace(scram={}, quotas={})
    security = SimpleNamespace(state=state, change=AsyncMock(), catch_up=AsyncMock())
    return SimpleNamespace(
        request=SimpleNamespace(**fields), version=version, count_error=lambda code: None,
        cluster=SimpleNamespace(
            topics=topics, fleet=fleet, groups=Coordinators(), cluster_id="c", config=config, security=security,
            transactions=SimpleNamespace(partitions=[]),
        ),
        topics=topics, client=SimpleNamespace(listing=None), started=0.0,
        context=SimpleNamespace(policy=ALL_ALLOWED, requester=None, listener=listener),
    )  # fmt: skip


def partitions_of(**fields: str) -> list[Any]:
    """A topic with ROWS partitions. `fields` are the names of the fields of the topic's name and of an index."""
    name, index = fields["name"], fields["index"]
    rows = [
        SimpleNamespace(
            **{index: number}, current_leader_epoch=-1, leader_epoch=0, timestamp=-1, max_num_offsets=1, offset=0,
            replicas=None,
        )
        for number in range(ROWS)
    ]  # fmt: skip
    return [SimpleNamespace(**{name: "t"}, partitions=rows)]


def resources(kind: int) -> list[Any]:
    row = SimpleNamespace
    return [row(resource_type=kind, resource_name=name, configuration_keys=None, configs=[]) for name in NAMES]


TOPIC = [SimpleNamespace(name="t", topic="t", partition_indexes=[*range(ROWS)], partitions=[*range(ROWS)])]
USER = partial(SimpleNamespace, entity_type="user")
OF_PARTITIONS = {"name": "name", "index": "partition_index"}


CASES: list[tuple[Handle, int, dict[str, Any], int]] = [
    (describe_configs.handle, 4, {"resources": resources(99)}, 2),
    (describe_configs.handle, 4, {"resources": resources(16)}, 6),
    (alter_configs.handle, 2, {"resources": resources(4), "validate_only": True}, 2),
    (incremental_alter_configs.handle, 1, {"resources": resources(4), "validate_only": True}, 2),
    (create_partitions.handle, 3, {"topics": [SimpleNamespace(name=name, count=1) for name in NAMES]}, 4),
    (delete_topics.handle, 5, {"topic_names": NAMES}, 7),
    (delete_topics.handle, 6, {"topics": [SimpleNamespace(name=None, topic_id=uuid.uuid4()) for _ in NAMES]}, 7),
    (delete_records.handle, 2, {"topics": partitions_of(**OF_PARTITIONS)}, 3),
    (describe_producers.handle, 0, {"topics": TOPIC}, 6),
    (offset_for_leader_epoch.handle, 4, {"topics": partitions_of(name="topic", index="partition")}, 3),
    (list_offsets.handle, 6, {"topics": partitions_of(**OF_PARTITIONS), "isolation_level": 0}, 5),
    (elect_leaders.handle, 2, {"election_type": 0, "topic_partitions": TOPIC}, 2),
    (elect_leaders.handle, 2, {"election_type": 7, "topic_partitions": TOPIC}, 1),
    (
        alter_partition_reassignments.handle, 1,
        {"topics": partitions_of(**OF_PARTITIONS), "allow_replication_factor_change": True}, 3,
    ),
    (find_coordinator.handle, 4, {"key_type": 0, "coordinator_keys": NAMES}, 2),
    (delete_groups.handle, 2, {"groups_names": NAMES}, 3),
    (leave_group.handle, 5, {
        "group_id": "g", "members": [SimpleNamespace(member_id=n, group_instance_id=None, reason="") for n in NAMES],
    }, 1),
    (list_groups.handle, 5, {"states_filter": NAMES, "types_filter": NAMES}, 2),
    (metadata.handle, 10, {
        "topics": [SimpleNamespace(name=name, topic_id=uuid.uuid4()) for name in NAMES],
        "include_topic_authorized_operations": False,
    }, 1),
    (lambda call: look_up_counts(call, dict.fromkeys(NAMES, 0)), 0, {}, 2),
    (describe_topic_partitions.handle, 0, {
        "topics": [SimpleNamespace(name=name) for name in NAMES], "cursor": None, "response_partition_limit": 9,
    }, 4),
    (describe_user_scram_credentials.handle, 0, {"users": [SimpleNamespace(name=name) for name in NAMES]}, 2),
    (alter_user_scram_credentials.handle, 0, {
        "deletions": [SimpleNamespace(name=name, mechanism=7) for name in NAMES], "upsertions": [],
    }, 2),
    (alter_client_quotas.handle, 1, {
        "entries": [SimpleNamespace(entity=[USER(entity_name=name)], ops=[]) for name in NAMES],
        "validate_only": True,
    }, 2),
    (list_transactions.handle, 0, {
        "producer_id_filters": [], "state_filters": NAMES, "duration_filter": -1, "transactional_id_pattern": None,
    }, 2),
    (describe_log_dirs.handle, 4, {"topics": [SimpleNamespace(topic=name, partitions=[0]) for name in NAMES]}, 3),
]  # fmt: skip


@pytest.mark.parametrize(("handle", "version", "fields", "loops"), CASES)
async def test_a_request(handle: Handle, version: int, fields: dict[str, Any], loops: int) -> None:
    begun = handle(call_of(version, **({"timeout_ms": 1_000} | fields)))
    task, turns = asyncio.create_task(begun.result() if isinstance(begun, Reply) else begun), 0
    async with asyncio.timeout(20):
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
    assert task.result() is not None
    assert turns > (loops - 0.5) * ROWS
