"""The routes of the APIs that have one. Fetch has none (see `forwarding/forwarded_fetch`): its answers are awaited in
another way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coordinator.fleet.messages import Member
from gateway.requests.routes import Answered, Asked, AskedByKey, Leaders, Request, Route, Shares, Steps, concatenated
from protocol.kafka.messages.cluster import DescribeLogDirsRequest, DescribeLogDirsResponse
from protocol.kafka.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)
from protocol.kafka.messages.message import Message
from protocol.kafka.messages.records import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    ProduceRequest,
    ProduceResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.kafka.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

# Routes by the leaders of partitions

_Produced = ProduceRequest.TopicProduceData
_Written = ProduceResponse.TopicProduceResponse
PRODUCE = Route(
    Asked[ProduceRequest, _Produced, _Produced.PartitionProduceData](
        lambda request: request.topic_data, lambda topic: topic.name, lambda topic: topic.partition_data,
        lambda row: row.index, lambda request, topics: replace(request, topic_data=topics),
        lambda topic, rows: replace(topic, partition_data=rows),
    ).split,
    Answered[ProduceResponse, _Written, _Written.PartitionProduceResponse](
        lambda response: response.responses, lambda topic: topic.topic_id or topic.name,
        lambda topic: topic.partition_responses, lambda response, topics: replace(response, responses=topics),
    ).merge,
)  # fmt: skip

_Listed = ListOffsetsRequest.ListOffsetsTopic
_Found = ListOffsetsResponse.ListOffsetsTopicResponse
LIST_OFFSETS = Route(
    Asked[ListOffsetsRequest, _Listed, _Listed.ListOffsetsPartition](
        lambda request: request.topics, lambda topic: topic.name, lambda topic: topic.partitions,
        lambda row: row.partition_index, lambda request, topics: replace(request, topics=topics),
        lambda topic, rows: replace(topic, partitions=rows),
    ).split,
    Answered[ListOffsetsResponse, _Found, _Found.ListOffsetsPartitionResponse](
        lambda response: response.topics, lambda topic: topic.name, lambda topic: topic.partitions,
        lambda response, topics: replace(response, topics=topics),
    ).merge,
)  # fmt: skip

_Deleted = DeleteRecordsRequest.DeleteRecordsTopic
_Left = DeleteRecordsResponse.DeleteRecordsTopicResult
DELETE_RECORDS = Route(
    Asked[DeleteRecordsRequest, _Deleted, _Deleted.DeleteRecordsPartition](
        lambda request: request.topics, lambda topic: topic.name, lambda topic: topic.partitions,
        lambda row: row.partition_index, lambda request, topics: replace(request, topics=topics),
        lambda topic, rows: replace(topic, partitions=rows),
    ).split,
    Answered[DeleteRecordsResponse, _Left, _Left.DeleteRecordsPartitionResult](
        lambda response: response.topics, lambda topic: topic.name, lambda topic: topic.partitions,
        lambda response, topics: replace(response, topics=topics),
    ).merge,
)  # fmt: skip

_Epochs = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
_Ends = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
OFFSET_FOR_LEADER_EPOCH = Route(
    Asked[OffsetForLeaderEpochRequest, _Epochs, _Epochs.OffsetForLeaderPartition](
        lambda request: request.topics, lambda topic: topic.topic, lambda topic: topic.partitions,
        lambda row: row.partition, lambda request, topics: replace(request, topics=topics),
        lambda topic, rows: replace(topic, partitions=rows),
    ).split,
    Answered[OffsetForLeaderEpochResponse, _Ends, _Ends.EpochEndOffset](
        lambda response: response.topics, lambda topic: topic.topic, lambda topic: topic.partitions,
        lambda response, topics: replace(response, topics=topics),
    ).merge,
)  # fmt: skip

_OfTopic = DescribeProducersRequest.TopicRequest
_Producers = DescribeProducersResponse.TopicResponse
DESCRIBE_PRODUCERS = Route(
    Asked[DescribeProducersRequest, _OfTopic, int](
        lambda request: request.topics, lambda topic: topic.name, lambda topic: topic.partition_indexes,
        lambda row: row, lambda request, topics: replace(request, topics=topics),
        lambda topic, rows: replace(topic, partition_indexes=rows),
    ).split,
    Answered[DescribeProducersResponse, _Producers, _Producers.PartitionResponse](
        lambda response: response.topics, lambda topic: topic.name, lambda topic: topic.partitions,
        lambda response, topics: replace(response, topics=topics),
    ).merge,
)  # fmt: skip

_Marker = WriteTxnMarkersRequest.WritableTxnMarker
_Marked = WriteTxnMarkersResponse.WritableTxnMarkerResult
_OF_MARKER = Asked[_Marker, _Marker.WritableTxnMarkerTopic, int](
    lambda marker: marker.topics, lambda topic: topic.name, lambda topic: topic.partition_indexes, lambda row: row,
    lambda marker, topics: replace(marker, topics=topics), lambda topic, rows: replace(topic, partition_indexes=rows),
)  # fmt: skip
_OF_MARKED = Answered[
    _Marked, _Marked.WritableTxnMarkerTopicResult, _Marked.WritableTxnMarkerTopicResult.WritableTxnMarkerPartitionResult
](
    lambda result: result.topics, lambda topic: topic.name, lambda topic: topic.partitions,
    lambda result, topics: replace(result, topics=topics),
)  # fmt: skip


def _markers_split(
    request: WriteTxnMarkersRequest, version: int, leaders: Leaders
) -> Steps[WriteTxnMarkersRequest]:
    """WriteTxnMarkers has partitions inside topics, and topics inside markers."""
    by_leader: Shares[list[_Marker]] = {}
    for marker in request.markers:
        yield
        shares = yield from _OF_MARKER.split(marker, version, leaders)
        for leader, share in shares.items():
            by_leader.setdefault(leader, []).append(share)
    if len(by_leader) <= 1:
        return dict.fromkeys(by_leader or {None: []}, request)
    return {leader: replace(request, markers=markers) for leader, markers in by_leader.items()}


def _markers_merged(responses: Sequence[WriteTxnMarkersResponse]) -> WriteTxnMarkersResponse:
    by_producer: dict[int, list[_Marked]] = {}
    for result in concatenated(responses, lambda response: response.markers):
        by_producer.setdefault(result.producer_id, []).append(result)
    return replace(responses[0], markers=[_OF_MARKED.merge(results) for results in by_producer.values()])


WRITE_TXN_MARKERS = Route(_markers_split, _markers_merged)

# Routes by coordinators

GroupRequest = (
    OffsetCommitRequest
    | JoinGroupRequest
    | HeartbeatRequest
    | LeaveGroupRequest
    | SyncGroupRequest
    | OffsetDeleteRequest
    | ConsumerGroupHeartbeatRequest
    | TxnOffsetCommitRequest
)
TransactionRequest = InitProducerIdRequest | AddOffsetsToTxnRequest | EndTxnRequest


def _by_group(request: GroupRequest, _version: int, leaders: Leaders) -> Steps[GroupRequest]:
    yield
    return {leaders.of_group(request.group_id): request}


def _by_transactional_id(request: TransactionRequest, _version: int, leaders: Leaders) -> Steps[TransactionRequest]:
    """Any gateway can give an idempotent producer its id."""
    yield
    name = request.transactional_id
    return {None if name is None else leaders.of_transactional_id(name): request}


def _of_group(leaders: Leaders, group_id: str) -> Member | None:
    return leaders.of_group(group_id)


def _of_transactional_id(leaders: Leaders, transactional_id: str) -> Member | None:
    return leaders.of_transactional_id(transactional_id)


def _only(responses: Sequence[Message]) -> Message:
    return responses[0]


BY_GROUP = Route[GroupRequest, Message](_by_group, _only)
TXN_OFFSET_COMMIT = Route[GroupRequest, Message](_by_group, _only, only_with_lease=True)
BY_TRANSACTIONAL_ID = Route[TransactionRequest, Message](_by_transactional_id, _only, only_with_lease=True)

_OFFSETS_OF_GROUPS = AskedByKey[OffsetFetchRequest, OffsetFetchRequest.OffsetFetchRequestGroup](
    lambda request: request.groups, lambda row: row.group_id, _of_group,
    lambda request, groups: replace(request, groups=groups),
)  # fmt: skip
_BATCHED_TRANSACTIONS = AskedByKey[
    AddPartitionsToTxnRequest, AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
](
    lambda request: request.transactions, lambda row: row.transactional_id, _of_transactional_id,
    lambda request, rows: replace(request, transactions=rows),
)  # fmt: skip


def _by_group_or_groups(request: OffsetFetchRequest, version: int, leaders: Leaders) -> Steps[OffsetFetchRequest]:
    """OffsetFetch names several groups from v8 on."""
    if version < 8:
        return {leaders.of_group(request.group_id): request}
    return (yield from _OFFSETS_OF_GROUPS.split(request, version, leaders))


def _by_transactions(
    request: AddPartitionsToTxnRequest, version: int, leaders: Leaders
) -> Steps[AddPartitionsToTxnRequest]:
    """AddPartitionsToTxn names several transactions from v4 on."""
    if version < 4:
        return {leaders.of_transactional_id(request.v3_and_below_transactional_id): request}
    return (yield from _BATCHED_TRANSACTIONS.split(request, version, leaders))


def _offsets_fetched(responses: Sequence[OffsetFetchResponse]) -> OffsetFetchResponse:
    return replace(responses[0], groups=concatenated(responses, lambda response: response.groups))


def _partitions_added(responses: Sequence[AddPartitionsToTxnResponse]) -> AddPartitionsToTxnResponse:
    results = concatenated(responses, lambda response: response.results_by_transaction)
    return replace(responses[0], results_by_transaction=results)


def _groups_described(responses: Sequence[DescribeGroupsResponse]) -> DescribeGroupsResponse:
    return replace(responses[0], groups=concatenated(responses, lambda response: response.groups))


def _consumer_groups_described(responses: Sequence[ConsumerGroupDescribeResponse]) -> ConsumerGroupDescribeResponse:
    return replace(responses[0], groups=concatenated(responses, lambda response: response.groups))


def _groups_deleted(responses: Sequence[DeleteGroupsResponse]) -> DeleteGroupsResponse:
    return replace(responses[0], results=concatenated(responses, lambda response: response.results))


def _transactions_described(responses: Sequence[DescribeTransactionsResponse]) -> DescribeTransactionsResponse:
    states = concatenated(responses, lambda response: response.transaction_states)
    return replace(responses[0], transaction_states=states)


OFFSET_FETCH = Route(_by_group_or_groups, _offsets_fetched)
ADD_PARTITIONS_TO_TXN = Route(_by_transactions, _partitions_added, only_with_lease=True)
DESCRIBE_GROUPS = Route(
    AskedByKey[DescribeGroupsRequest, str](
        lambda request: request.groups, str, _of_group, lambda request, names: replace(request, groups=names)
    ).split,
    _groups_described,
)
CONSUMER_GROUP_DESCRIBE = Route(
    AskedByKey[ConsumerGroupDescribeRequest, str](
        lambda request: request.group_ids, str, _of_group, lambda request, names: replace(request, group_ids=names)
    ).split,
    _consumer_groups_described,
)
DELETE_GROUPS = Route(
    AskedByKey[DeleteGroupsRequest, str](
        lambda request: request.groups_names, str, _of_group,
        lambda request, names: replace(request, groups_names=names),
    ).split,
    _groups_deleted,
)  # fmt: skip
DESCRIBE_TRANSACTIONS = Route(
    AskedByKey[DescribeTransactionsRequest, str](
        lambda request: request.transactional_ids, str, _of_transactional_id,
        lambda request, names: replace(request, transactional_ids=names),
    ).split,
    _transactions_described,
)  # fmt: skip

# Routes to all gateways


def _by_all(request: Request, _version: int, leaders: Leaders) -> Steps[Request]:
    """Each gateway knows a part of the answer."""
    yield
    return dict.fromkeys([None, *leaders.others], request)


def _groups_listed(responses: Sequence[ListGroupsResponse]) -> ListGroupsResponse:
    first = next((response for response in responses if response.error_code), responses[0])
    return replace(first, groups=concatenated(responses, lambda response: response.groups))


def _transactions_listed(responses: Sequence[ListTransactionsResponse]) -> ListTransactionsResponse:
    first = next((response for response in responses if response.error_code), responses[0])
    return replace(first, transaction_states=concatenated(responses, lambda response: response.transaction_states))


_Directory = DescribeLogDirsResponse.DescribeLogDirsResult
_InDirectory = _Directory.DescribeLogDirsTopic
_IN_A_DIRECTORY = Answered[_Directory, _InDirectory, _InDirectory.DescribeLogDirsPartition](
    lambda directory: directory.topics, lambda topic: topic.name, lambda topic: topic.partitions,
    lambda directory, topics: replace(directory, topics=topics),
)  # fmt: skip


def _log_dirs(responses: Sequence[DescribeLogDirsResponse]) -> DescribeLogDirsResponse:
    """There is one directory; each gateway returns the partitions in it that it leads. Clients take the last row of a
    topic for all of it."""
    first = next((response for response in responses if response.error_code), responses[0])
    results = concatenated(responses, lambda response: response.results)
    if first.error_code or not results:
        return first
    return replace(first, results=[_IN_A_DIRECTORY.merge(results)])


LIST_GROUPS = Route[ListGroupsRequest, ListGroupsResponse](_by_all, _groups_listed)
LIST_TRANSACTIONS = Route[ListTransactionsRequest, ListTransactionsResponse](_by_all, _transactions_listed)
DESCRIBE_LOG_DIRS = Route[DescribeLogDirsRequest, DescribeLogDirsResponse](_by_all, _log_dirs)
