"""Requests with very many rows: the handler's own work on them is done in slices. Here each row is a slice."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Coroutine
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from coordinator.group.messages import NO_OFFSET, FetchedOffset, FetchOffsetsRequest, FetchOffsetsResponse
from coordinator.group.offsets.group_offsets import GroupOffsets
from coordinator.group.records.offset_commit import OffsetCommitValue
from coordinator.topics import TopicPartition
from gateway import fan_out
from gateway.errors import KafkaError
from gateway.handlers.cluster import incremental_alter_configs
from gateway.handlers.cluster.incremental_alter_configs import Operation
from gateway.handlers.groups import join_group, offset_fetch
from gateway.handlers.records import write_txn_markers
from gateway.handlers.security import create_acls, delete_acls
from gateway.handlers.topics import create_topics, describe_topic_partitions
from gateway.handlers.transactions import add_partitions_to_txn
from gateway.requests.policy import ALL_ALLOWED
from gateway.requests.replica_assignment import check_replicas
from gateway.topics.topic import Topic
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.cluster import IncrementalAlterConfigsRequest
from protocol.kafka.messages.groups import JoinGroupRequest, JoinGroupResponse, OffsetFetchRequest, OffsetFetchResponse
from protocol.kafka.messages.records import WriteTxnMarkersRequest
from protocol.kafka.messages.security import CreateAclsRequest, DeleteAclsRequest
from protocol.kafka.messages.topics import CreateTopicsRequest, DescribeTopicPartitionsRequest
from protocol.kafka.messages.transactions import AddPartitionsToTxnRequest

ROWS = 20


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "SLICE_S", 0.0)
    monkeypatch.setattr(fan_out, "STEP_ITEMS", 1)


async def turns_of(work: Coroutine[Any, Any, Any]) -> tuple[int, Any]:
    """The turns of the event loop that the work needed, and its result."""
    task, turns = asyncio.create_task(work), 0
    async with asyncio.timeout(20):
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
    return turns, task.result()


CONFIG = SimpleNamespace(kafka=SimpleNamespace(default_partitions=1))


def call_of(request: Any, version: int, **cluster: Any) -> Any:
    return SimpleNamespace(
        request=request, version=version, cluster=SimpleNamespace(**cluster), topics=cluster.get("topics"),
        count_error=lambda code: None,
        context=SimpleNamespace(policy=ALL_ALLOWED, requester=None),
    )  # fmt: skip


class Offsets:
    """A coordinator. The offset of a partition is its number; from the given part on, it loads."""

    def __init__(self, loads_at: int = -1) -> None:
        self.parts: list[FetchOffsetsRequest] = []
        self._loads_at = loads_at

    def fetch_offsets(self, asked: FetchOffsetsRequest) -> FetchOffsetsResponse:
        self.parts.append(asked)
        if len(self.parts) == self._loads_at:
            return FetchOffsetsResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        found = {each: FetchedOffset(each.partition) for each in asked.partitions or ()}
        return FetchOffsetsResponse(ErrorCode.NONE, found)


def offsets_call(coordinator: Offsets, version: int) -> Any:
    """For one topic with ROWS partitions, and as many topics with one partition."""
    named = [("t", [*range(ROWS)]), *((f"t{number}", [number]) for number in range(ROWS))]
    if version < offset_fetch.SEVERAL_VERSION:
        topic = OffsetFetchRequest.OffsetFetchRequestTopic
        topics = [topic(name=name, partition_indexes=numbers) for name, numbers in named]
        request = OffsetFetchRequest(group_id="g", topics=topics)
    else:
        group = OffsetFetchRequest.OffsetFetchRequestGroup
        rows = [group.OffsetFetchRequestTopics(name=name, partition_indexes=numbers) for name, numbers in named]
        request = OffsetFetchRequest(groups=[group(group_id="g", topics=rows)])
    return call_of(
        request, version, topics=None, group_service=SimpleNamespace(subscribed_offsets=AsyncMock(return_value={})),
        groups=SimpleNamespace(run=lambda group_id, ask: ask(coordinator, 0)),
    )  # fmt: skip


def answered(response: OffsetFetchResponse, version: int) -> Any:
    return response if version < offset_fetch.SEVERAL_VERSION else response.groups[0]


@pytest.mark.parametrize("version", [5, 8])
async def test_offset_fetch(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    monkeypatch.setattr(offset_fetch, "PART_ROWS", 7)
    coordinator = Offsets()
    turns, response = await turns_of(offset_fetch.handle(offsets_call(coordinator, version)).result())
    assert turns > 4 * ROWS, "to read the request, and to make the rows"
    assert [len(part.partitions or ()) for part in coordinator.parts] == [7, 7, 7, 7, 7, 5]
    found = {
        topic.name: [(row.partition_index, row.committed_offset) for row in topic.partitions]
        for topic in answered(response, version).topics
    }
    assert found == {"t": [(n, n) for n in range(ROWS)], **{f"t{n}": [(n, n)] for n in range(ROWS)}}


@pytest.mark.parametrize("version", [5, 8])
async def test_offset_fetch_of_a_group_that_is_loaded_meanwhile(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    monkeypatch.setattr(offset_fetch, "PART_ROWS", 7)
    coordinator = Offsets(loads_at=3)
    _, response = await turns_of(offset_fetch.handle(offsets_call(coordinator, version)).result())
    assert answered(response, version).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert answered(response, version).topics == []
    assert len(coordinator.parts) == 3


async def test_create_topics_with_too_many_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(create_topics, "MAX_TOPICS", 2)
    names = [f"t{number % (ROWS - 1)}" for number in range(ROWS)]
    topics = [CreateTopicsRequest.CreatableTopic(name=name) for name in names]
    request = CreateTopicsRequest(topics=topics, timeout_ms=1_000)
    turns, response = await turns_of(create_topics.handle(call_of(request, 7, config=CONFIG)))
    assert turns > 4 * ROWS
    assert [row.error_code for row in response.topics] == [ErrorCode.POLICY_VIOLATION] * ROWS


async def test_describe_topic_partitions() -> None:
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=f"t{number}") for number in range(ROWS)]
    )
    absent = SimpleNamespace(get=AsyncMock(return_value=None))
    turns, response = await turns_of(describe_topic_partitions.handle(call_of(request, 0, topics=absent)))
    assert turns > 1.5 * ROWS, "to look the topics up, and to make the rows"
    assert [row.error_code for row in response.topics] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * ROWS


async def test_write_txn_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_txn_markers, "_write_in_time", AsyncMock(return_value=ErrorCode.NONE))
    row = WriteTxnMarkersRequest.WritableTxnMarker
    topics = [row.WritableTxnMarkerTopic(name="t", partition_indexes=[*range(ROWS)])]
    request = WriteTxnMarkersRequest(markers=[row(producer_id=1, topics=topics)])
    cluster: Any = None
    turns, response = await turns_of(write_txn_markers.write_markers(cluster, request))
    assert turns > 2 * ROWS
    [marker] = response.markers
    assert [each.partition_index for each in marker.topics[0].partitions] == [*range(ROWS)]


class Security:
    has_acls = True

    def __init__(self) -> None:
        self.state = SimpleNamespace(acls=set[Any]())
        self.change, self.catch_up = AsyncMock(), AsyncMock()


async def test_create_acls() -> None:
    security = Security()
    row = CreateAclsRequest.AclCreation
    request = CreateAclsRequest(
        creations=[
            row(
                resource_type=2, resource_name=f"t{number}", resource_pattern_type=3, principal="User:a", host="*",
                operation=3, permission_type=3,
            )
            for number in range(ROWS)
        ]
    )  # fmt: skip
    turns, response = await turns_of(create_acls.handle(call_of(request, 3, security=security)))
    assert turns > 5 * ROWS
    assert [each.error_code for each in response.results] == [0] * ROWS
    assert len(security.change.call_args.args[0]) == ROWS


async def test_delete_acls() -> None:
    row = DeleteAclsRequest.DeleteAclsFilter
    wanted = row(
        resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=None,
        host_filter=None, operation=1, permission_type=1,
    )  # fmt: skip
    request = DeleteAclsRequest(filters=[wanted] * ROWS)
    turns, response = await turns_of(delete_acls.handle(call_of(request, 3, security=Security())))
    assert turns > 2 * ROWS
    assert [each.error_code for each in response.filter_results] == [0] * ROWS


async def test_add_partitions_to_txn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The highest partition of a topic counts, wherever it is named."""
    monkeypatch.setattr(add_partitions_to_txn, "TOPICS_AT_ONCE", 2)
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    topics = [topic(name=f"t{number % 5}", partitions=[number]) for number in range(ROWS)]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x", v3_and_below_producer_id=1, v3_and_below_topics=topics
    )
    known = Topic("t", "t", uuid.UUID(int=1), ROWS - 1, True, {}, 0)
    look_up = AsyncMock(return_value=known)
    call = call_of(
        request, 3, topics=SimpleNamespace(with_partition=look_up, cached=lambda name: known),
        producer_connections=SimpleNamespace(record_use=lambda *_: True),
    )  # fmt: skip
    call.client, call.check_age = SimpleNamespace(number=1), lambda: None
    turns, response = await turns_of(add_partitions_to_txn.handle(call).result())
    assert turns > 3 * ROWS, "to read the request, to check the partitions, and to make the rows"
    unknown, not_attempted = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    topics = response.results_by_topic_v3_and_below
    found = Counter(row.partition_error_code for topic in topics for row in topic.results_by_partition)
    assert found == {not_attempted: ROWS - 1, unknown: 1}
    assert look_up.call_count == 5, "each topic once"


@pytest.mark.parametrize("version", [0, 4, 9])
async def test_join_group_with_too_many_protocols(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    monkeypatch.setattr(join_group, "MAX_PROTOCOLS", 2)
    protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name=f"p{number}", metadata=b"") for number in range(3)]
    call = call_of(JoinGroupRequest(group_id="g", member_id="m", protocols=protocols), version)
    response = join_group.handle(call).response
    assert isinstance(response, JoinGroupResponse)
    assert (response.error_code, response.member_id, response.members) == (ErrorCode.INVALID_REQUEST, "m", [])


async def all_offsets(coordinator: Any) -> tuple[int, list[tuple[str, int, int]]]:
    """The turns of the event loop for a request for all offsets of a group, and the offsets."""
    call = offsets_call(coordinator, 5)
    call.request = OffsetFetchRequest(group_id="g", topics=None, require_stable=True)
    call.cluster.topics = SimpleNamespace(cached_name=lambda topic_id: "t")
    turns, response = await turns_of(offset_fetch.handle(call).result())
    rows = [(topic.name, row) for topic in response.topics for row in topic.partitions]
    return turns, [(name, row.partition_index, row.committed_offset) for name, row in rows]


async def test_offset_fetch_of_all_offsets() -> None:
    offsets = GroupOffsets()
    for number in range(ROWS):
        offsets.replay(TopicPartition("t", number), OffsetCommitValue(number, "", 0, topic_id=uuid.uuid4().bytes))
    coordinator: Any = SimpleNamespace(
        fetch_offsets=lambda asked: FetchOffsetsResponse(
            ErrorCode.NONE, offsets.fetch(asked.partitions, asked.require_stable)
        )
    )
    turns, found = await all_offsets(coordinator)
    assert turns > 4.5 * ROWS, "to read the offsets, and their topics' ids, to look them up, and to make the rows"
    assert found == [("t", number, number) for number in range(ROWS)]


def test_all_offsets_are_those_of_one_moment() -> None:
    offsets, changed, unstable, added = GroupOffsets(), *(TopicPartition("t", number) for number in range(3))
    for partition in (changed, unstable):
        offsets.replay(partition, OffsetCommitValue(7, "", 0))
    offsets.prepare({unstable: OffsetCommitValue(8, "", 0)})
    found = offsets.fetch(None, require_stable=True)
    offsets.replay(changed, OffsetCommitValue(9, "", 0))
    offsets.replay(added, OffsetCommitValue(9, "", 0))
    assert [(partition, each.offset, each.error) for partition, each in found.items()] == [
        (changed, 7, ErrorCode.NONE), (unstable, NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    ]  # fmt: skip


async def test_offsets_are_fetched_in_parts_with_a_pause_between_two_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part has many rows: other work has its turn after each, not after STEP_ITEMS parts."""
    monkeypatch.setattr(offset_fetch, "PART_ROWS", 1)
    monkeypatch.setattr(fan_out, "STEP_ITEMS", 1_000)
    turns, _ = await turns_of(offset_fetch.handle(offsets_call(Offsets(), 5)).result())
    assert turns > 1.5 * ROWS


@pytest.mark.parametrize("count", [1_000, 1_001])
async def test_configurations_of_one_resource(count: int) -> None:
    row = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [row.AlterableConfig(name=f"c{number}", value="1", config_operation=0) for number in range(count)]
    request = IncrementalAlterConfigsRequest(resources=[row(resource_type=16, resource_name="x", configs=configs)])
    response = await incremental_alter_configs.handle(call_of(request, 1))
    [answered] = response.responses
    assert answered.error_code == ErrorCode.INVALID_REQUEST
    assert ("At most 1000" in (answered.error_message or "")) == (count > 1_000)


async def test_a_list_that_is_too_long() -> None:
    with pytest.raises(KafkaError, match="maximum value size of 32767 bytes") as refused:
        incremental_alter_configs.changed_list({}, "cleanup.policy", Operation.APPEND, "x" * 32_768)
    assert refused.value.code == ErrorCode.INVALID_CONFIG


async def test_an_assignment_of_too_many_partitions() -> None:
    row = CreateTopicsRequest.CreatableTopic
    assignments = [row.CreatableReplicaAssignment(partition_index=number, broker_ids=[0]) for number in range(10_001)]
    wanted = row(name="t", num_partitions=-1, replication_factor=-1, assignments=assignments)
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=1_000)
    response = await create_topics.handle(call_of(request, 7, config=CONFIG))
    assert [row.error_code for row in response.topics] == [ErrorCode.POLICY_VIOLATION]


@pytest.mark.parametrize(
    ("replicas", "fault"),
    [([0, 1, 2], ""), ([0, 1, 2, 0], "named twice"), ([5] * 9, "no broker 5"), ([0, 0, 0, 0, 9], "named twice")],
)
def test_replicas_of_a_partition(replicas: list[int], fault: str) -> None:
    with pytest.raises(KafkaError, match=fault) if fault else nullcontext():
        check_replicas({0, 1, 2}, [replicas])
