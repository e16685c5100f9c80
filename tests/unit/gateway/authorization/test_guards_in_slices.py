"""Requests with very many rows are judged in slices: others have their turn in between. Here each row is a slice."""

from __future__ import annotations

import asyncio
import threading
import uuid
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from coordinator.group.consumer.validation import MAX_TOPIC_NAMES
from gateway import fan_out
from gateway.authorization import groups, records, topics, transactions
from gateway.authorization.guard import AT_ONCE, LARGE_ROWS, TopicRows
from gateway.requests.reply import Reply
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from protocol.kafka.messages.records import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.kafka.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    MetadataRequest,
    MetadataResponse,
)
from protocol.kafka.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

ROWS = 50
NAMES = [f"t{number}" for number in range(ROWS)]
IDS = [uuid.UUID(int=number) for number in range(1, ROWS)]
_GROUP = OffsetFetchRequest.OffsetFetchRequestGroup
_CASES: list[tuple[Any, int, Any, Any]] = [
    (
        topics.metadata, 9,
        MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in NAMES]), MetadataResponse(),
    ),
    (
        topics.create_topics, 4,
        CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name=name) for name in NAMES]),
        CreateTopicsResponse(),
    ),
    (topics.delete_topics, 4, DeleteTopicsRequest(topic_names=NAMES), DeleteTopicsResponse()),
    (
        topics.delete_topics, 6,
        DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(topic_id=each) for each in IDS]),
        DeleteTopicsResponse(),
    ),
    (
        groups.offset_fetch, 8, OffsetFetchRequest(groups=[_GROUP(group_id=name, topics=[]) for name in NAMES]),
        OffsetFetchResponse(),
    ),
    (
        groups.offset_fetch, 8,
        OffsetFetchRequest(
            groups=[_GROUP(group_id="g", topics=[_GROUP.OffsetFetchRequestTopics(name=name) for name in NAMES])]
        ),
        OffsetFetchResponse(),
    ),
    (
        transactions.add_partitions_to_txn, 3,
        AddPartitionsToTxnRequest(
            v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name) for name in NAMES]
        ),
        AddPartitionsToTxnResponse(),
    ),
]  # fmt: skip


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "SLICE_S", 0.0)
    monkeypatch.setattr(fan_out, "STEP_ITEMS", 1)


def call_of(request: Any, version: int, api: Any) -> Any:
    """Of a client that may see all groups, transactions and topics except t0."""
    policy = SimpleNamespace(allows=lambda operation, kind, name: name not in {"t0", "kafka-cluster"})
    catalog = SimpleNamespace(cached_name=lambda _: None, get_by_id=AsyncMock(return_value=None), cached=lambda _: None)
    return SimpleNamespace(
        request=request, version=version, api=api, context=SimpleNamespace(policy=policy),
        cluster=SimpleNamespace(topics=catalog), count_error=lambda _: None, count_denied=lambda *_: None,
        audit_denied=lambda *_: None, asking=lambda changed: call_of(changed, version, api),
    )  # fmt: skip


@pytest.mark.parametrize(("guard", "version", "request_", "response"), _CASES)
async def test_a_request(guard: Any, version: int, request_: Any, response: Any) -> None:
    call = call_of(request_, version, SimpleNamespace(response=type(response)))
    judging, turns = asyncio.create_task(guard(call, lambda _: Reply(response)).result()), 0
    async with asyncio.timeout(20):
        while not judging.done():
            turns += 1
            await asyncio.sleep(0)
    await judging
    assert turns >= len(IDS)


_ALL_OFFSETS = [OffsetFetchResponse.OffsetFetchResponseTopic(name=name) for name in NAMES]
_OFFSETS_OF_GROUP = OffsetFetchResponse.OffsetFetchResponseGroup
_GROUPS_OFFSETS = [_OFFSETS_OF_GROUP.OffsetFetchResponseTopics(name=name) for name in NAMES]
_ANSWERS: list[tuple[Any, int, Any, Any, Any]] = [
    (
        topics.metadata, 9, MetadataRequest(topics=None),
        MetadataResponse(topics=[MetadataResponse.MetadataResponseTopic(name=name) for name in NAMES]),
        lambda answer: [row.name for row in answer.topics],
    ),
    (
        groups.offset_fetch, 5, OffsetFetchRequest(group_id="g", topics=None), OffsetFetchResponse(topics=_ALL_OFFSETS),
        lambda answer: [row.name for row in answer.topics],
    ),
    (
        groups.offset_fetch, 8, OffsetFetchRequest(groups=[_GROUP(group_id="g", topics=None)]),
        OffsetFetchResponse(groups=[_OFFSETS_OF_GROUP(group_id="g", topics=_GROUPS_OFFSETS)]),
        lambda answer: [row.name for row in answer.groups[0].topics],
    ),
    (
        groups.list_groups, 5, ListGroupsRequest(),
        ListGroupsResponse(groups=[ListGroupsResponse.ListedGroup(group_id=name) for name in NAMES]),
        lambda answer: [row.group_id for row in answer.groups],
    ),
    (
        transactions.list_transactions, 0, ListTransactionsRequest(),
        ListTransactionsResponse(
            transaction_states=[ListTransactionsResponse.TransactionState(transactional_id=name) for name in NAMES]
        ),
        lambda answer: [row.transactional_id for row in answer.transaction_states],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("guard", "version", "request_", "response", "names"), _ANSWERS)
@pytest.mark.parametrize("comes_later", [True, False])
async def test_a_response_of_everything(
    guard: Any, version: int, request_: Any, response: Any, names: Any, comes_later: bool
) -> None:
    """Each row may need a decision by the ACLs."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_result(response)
    call = call_of(request_, version, SimpleNamespace(response=type(response)))
    reply = guard(call, lambda _: Reply.later(future) if comes_later else Reply(response))
    judging, turns = asyncio.create_task(reply.result()), 0
    async with asyncio.timeout(20):
        while not judging.done():
            turns += 1
            await asyncio.sleep(0)
    assert names(judging.result()) == NAMES[1:]
    assert turns >= len(NAMES)


_TOPIC = OffsetCommitRequest.OffsetCommitRequestTopic


def committing(group_id: str, name: str) -> OffsetCommitRequest:
    rows = [_TOPIC.OffsetCommitRequestPartition(partition_index=number) for number in range(LARGE_ROWS + 1)]
    return OffsetCommitRequest(group_id=group_id, topics=[_TOPIC(name=name, partitions=rows)])


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (committing("t0", "t1"), ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (committing("t1", "t0"), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
async def test_very_many_refusals_are_made_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, request_: OffsetCommitRequest, code: ErrorCode
) -> None:
    made: list[int] = []
    plain = TopicRows.refused

    def refused(self: TopicRows, row: Any, code: ErrorCode = ErrorCode.TOPIC_AUTHORIZATION_FAILED) -> Any:
        made.append(threading.get_ident())
        return plain(self, row, code)

    monkeypatch.setattr(TopicRows, "refused", refused)
    call = call_of(request_, 2, SimpleNamespace(response=OffsetCommitResponse))
    response: Any = await groups.OFFSET_COMMIT(call, Mock()).result()
    assert {row.error_code for row in response.topics[0].partitions} == {code}
    assert len(response.topics[0].partitions) == LARGE_ROWS + 1
    assert len(made) == 1
    assert made != [threading.get_ident()]


async def turns_of(guard: Any, call: Any, response: Any = None) -> tuple[int, Any]:
    """The turns of the loop that the guard gives to others, and its answer."""
    judging, turns = asyncio.create_task(guard(call, lambda _: Reply(response)).result()), 0
    async with asyncio.timeout(20):
        while not judging.done():
            turns += 1
            await asyncio.sleep(0)
    return turns, judging.result()


_SOME = list(range(LARGE_ROWS // 10))
"""Few partitions, but too many in 20 topics."""
_TOPICS = [f"x{number}" for number in range(20)]
_Listed = ListOffsetsRequest.ListOffsetsTopic
_Deleted = DeleteRecordsRequest.DeleteRecordsTopic
_Fetched = OffsetFetchRequest.OffsetFetchRequestTopic
_FetchedOfGroup = _GROUP.OffsetFetchRequestTopics
_Produced = ProduceRequest.TopicProduceData
_PARTS: list[tuple[Any, int, Any, Any]] = [
    (
        records.LIST_OFFSETS, 1,
        ListOffsetsRequest(topics=[
            _Listed(name=name, partitions=[_Listed.ListOffsetsPartition(partition_index=each) for each in _SOME])
            for name in _TOPICS
        ]),
        ListOffsetsResponse(),
    ),
    (
        records.DELETE_RECORDS, 1,
        DeleteRecordsRequest(topics=[
            _Deleted(name=name, partitions=[_Deleted.DeleteRecordsPartition(partition_index=each) for each in _SOME])
            for name in _TOPICS
        ]),
        DeleteRecordsResponse(),
    ),
    (
        groups.offset_fetch, 5,
        OffsetFetchRequest(group_id="g", topics=[_Fetched(name=name, partition_indexes=_SOME) for name in _TOPICS]),
        OffsetFetchResponse(),
    ),
    (
        groups.offset_fetch, 8,
        OffsetFetchRequest(groups=[
            _GROUP(group_id="g", topics=[_FetchedOfGroup(name=name, partition_indexes=_SOME) for name in _TOPICS])
        ]),
        OffsetFetchResponse(groups=[]),
    ),
    (
        records.produce, 8,
        ProduceRequest(acks=1, topic_data=[
            _Produced(name=name, partition_data=[_Produced.PartitionProduceData(index=each) for each in _SOME])
            for name in _TOPICS
        ]),
        ProduceResponse(),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("guard", "version", "request_", "response"), _PARTS)
async def test_few_denied_topics_with_many_partitions_altogether(
    monkeypatch: pytest.MonkeyPatch, guard: Any, version: int, request_: Any, response: Any
) -> None:
    monkeypatch.setattr(fan_out, "STEP_ITEMS", AT_ONCE)
    call = call_of(request_, version, SimpleNamespace(response=type(response)))
    call.context.policy.allows = lambda operation, kind, name: not name.startswith("x")
    turns, _ = await turns_of(guard, call, response)
    assert turns >= len(_TOPICS)


async def test_a_produce_request_for_many_topics() -> None:
    topics_ = [_Produced(name=f"t{number}") for number in range(AT_ONCE + 1)]
    call = call_of(ProduceRequest(acks=1, topic_data=topics_), 8, SimpleNamespace(response=ProduceResponse))
    turns, response = await turns_of(records.produce, call, ProduceResponse())
    assert turns >= AT_ONCE
    assert [row.name for row in response.responses] == ["t0"]


@pytest.mark.parametrize("name", ["t1", "t0"])
async def test_a_member_that_names_many_topics(name: str) -> None:
    request = ConsumerGroupHeartbeatRequest(group_id="g", subscribed_topic_names=[name] * (AT_ONCE + 1))
    call = call_of(request, 0, SimpleNamespace(response=ConsumerGroupHeartbeatResponse))
    turns, response = await turns_of(groups.CONSUMER_GROUP_HEARTBEAT, call, ConsumerGroupHeartbeatResponse())
    assert turns >= AT_ONCE
    assert response.error_code == (ErrorCode.TOPIC_AUTHORIZATION_FAILED if name == "t0" else ErrorCode.NONE)


async def test_a_member_that_names_too_many_topics_is_refused_without_a_decision_for_each() -> None:
    request = ConsumerGroupHeartbeatRequest(group_id="g", subscribed_topic_names=["t0"] * (MAX_TOPIC_NAMES + 1))
    refused = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST)
    call = call_of(request, 0, SimpleNamespace(response=ConsumerGroupHeartbeatResponse))
    call.context.policy.allows = Mock(return_value=True)
    assert await groups.CONSUMER_GROUP_HEARTBEAT(call, lambda _: Reply(refused)).result() is refused
    assert call.context.policy.allows.call_count == 1, "for the group"


_Marker = WriteTxnMarkersRequest.WritableTxnMarker
_MANY = list(range(LARGE_ROWS + 1))
_IN_THREADS: list[tuple[Any, int, Any, Any]] = [
    (
        records.write_txn_markers, 1,
        WriteTxnMarkersRequest(markers=[
            _Marker(topics=[_Marker.WritableTxnMarkerTopic(name="t", partition_indexes=_MANY)])
        ]),
        WriteTxnMarkersResponse(),
    ),
    (
        groups.offset_fetch, 8,
        OffsetFetchRequest(groups=[
            _GROUP(group_id="g", topics=[_FetchedOfGroup(name="t0", partition_indexes=_MANY)])
        ]),
        OffsetFetchResponse(groups=[]),
    ),
    (
        records.produce, 8,
        ProduceRequest(acks=1, topic_data=[
            _Produced(name="t0", partition_data=[_Produced.PartitionProduceData(index=each) for each in _MANY])
        ]),
        ProduceResponse(),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("guard", "version", "request_", "response"), _IN_THREADS)
async def test_a_denied_topic_with_very_many_partitions_is_refused_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, guard: Any, version: int, request_: Any, response: Any
) -> None:
    to_thread = AsyncMock(side_effect=lambda make: make())
    monkeypatch.setattr(asyncio, "to_thread", to_thread)
    call = call_of(request_, version, SimpleNamespace(response=type(response)))
    await turns_of(guard, call, response)
    assert to_thread.await_count == 1
