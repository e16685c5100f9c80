"""Requests are split by leader or coordinator, and the responses are merged."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from coordinator.fleet.messages import Member
from gateway import fan_out
from gateway.handlers.table import APIS
from gateway.requests import routes
from gateway.requests.routes import Leaders, Route
from protocol.kafka.handwritten.produce_request import ProducedPartition, ProducedTopic
from protocol.kafka.messages import cluster, groups, records, transactions

PRODUCE, LIST_OFFSETS, OFFSET_FETCH, LIST_GROUPS, LOG_DIRS, DELETE_GROUPS, DESCRIBE_PRODUCERS = 0, 2, 9, 16, 35, 42, 61
INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, WRITE_TXN_MARKERS = 22, 24, 27


def member(node_id: int) -> Member:
    return Member(
        node_id=node_id, incarnation=f"{node_id}", instance="", addresses={}, lease_ms=1, started_ms=0
    )  # fmt: skip


OTHERS = [member(1), member(2)]


def route(api_key: int) -> Route[Any, Any]:
    found = APIS[api_key].route
    assert found is not None
    return found


class ByNumber:
    """Partition 0 is led here, 1 and 2 by the others, and so on; for a group or an id, the last digit is the number."""

    epoch = 1
    others = OTHERS

    def of_partition(self, _topic: str, partition: int) -> Member | None:
        return (None, *OTHERS)[partition % 3]

    def of_group(self, group_id: str) -> Member | None:
        return self.of_partition("", int(group_id[-1]))

    def of_transactional_id(self, transactional_id: str) -> Member | None:
        return self.of_partition("", int(transactional_id[-1]))


LEADERS: Leaders = ByNumber()


def listed(*topics: tuple[str, list[int]]) -> Any:
    topic = records.ListOffsetsRequest.ListOffsetsTopic
    part = topic.ListOffsetsPartition
    rows = [
        topic(name=name, partitions=[part(partition_index=number, timestamp=-1) for number in numbers])
        for name, numbers in topics
    ]
    return records.ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=rows)


def named(request: Any) -> list[tuple[str, list[int]]]:
    return [(topic.name, [part.partition_index for part in topic.partitions]) for topic in request.topics]


def test_partitions_go_to_their_leaders() -> None:
    request = listed(("a", [0, 1, 3, 4]), ("b", [2]), ("c", [0]))
    shares = route(LIST_OFFSETS).split(request, 4, LEADERS)
    assert {leader: named(share) for leader, share in shares.items()} == {
        None: [("a", [0, 3]), ("c", [0])], OTHERS[0]: [("a", [1, 4])], OTHERS[1]: [("b", [2])],
    }  # fmt: skip
    assert {share.isolation_level for share in shares.values()} == {1}
    assert named(request) == [("a", [0, 1, 3, 4]), ("b", [2]), ("c", [0])]


@pytest.mark.parametrize(
    ("numbers", "leader"), [([1, 4], OTHERS[0]), ([0, 3], None), ([], None)], ids=["another", "this one", "nobody"]
)
def test_a_request_for_one_leader_stays_as_it_is(numbers: list[int], leader: Member | None) -> None:
    request = listed(("a", numbers))
    assert route(LIST_OFFSETS).split(request, 4, LEADERS) == {leader: request}


def test_answers_are_merged_by_topic() -> None:
    topic = records.ListOffsetsResponse.ListOffsetsTopicResponse
    part = topic.ListOffsetsPartitionResponse

    def answer(*topics: tuple[str, list[int]]) -> Any:
        return records.ListOffsetsResponse(
            topics=[
                topic(name=name, partitions=[part(partition_index=each) for each in numbers])
                for name, numbers in topics
            ]
        )

    merged = route(LIST_OFFSETS).merge([answer(("a", [0]), ("b", [3])), answer(("a", [1, 4])), answer(("c", [2]))])
    assert named(merged) == [("a", [0, 1, 4]), ("b", [3]), ("c", [2])]


def test_produced_records_are_split_without_a_copy() -> None:
    frame = memoryview(b"onetwo")
    rows = [ProducedPartition(index=0, records=frame[:3]), ProducedPartition(index=1, records=frame[3:])]
    request = records.ProduceRequest(topic_data=[ProducedTopic(name="a", partition_data=rows)])
    shares = route(PRODUCE).split(request, 9, LEADERS)
    assert {leader: share.topic_data for leader, share in shares.items()} == {
        None: [ProducedTopic(name="a", partition_data=rows[:1])],
        OTHERS[0]: [ProducedTopic(name="a", partition_data=rows[1:])],
    }  # fmt: skip


def test_rows_may_be_the_partitions_themselves() -> None:
    topic = records.DescribeProducersRequest.TopicRequest
    request = records.DescribeProducersRequest(topics=[topic(name="a", partition_indexes=[0, 1, 2])])
    shares = route(DESCRIBE_PRODUCERS).split(request, 0, LEADERS)
    assert {leader: share.topics[0].partition_indexes for leader, share in shares.items()} == {
        None: [0], OTHERS[0]: [1], OTHERS[1]: [2],
    }  # fmt: skip


def test_groups_go_to_their_coordinators() -> None:
    request = groups.DeleteGroupsRequest(groups_names=["a0", "b1", "c0"])
    shares = route(DELETE_GROUPS).split(request, 2, LEADERS)
    assert {leader: share.groups_names for leader, share in shares.items()} == {
        None: ["a0", "c0"], OTHERS[0]: ["b1"],
    }  # fmt: skip
    row = groups.DeleteGroupsResponse.DeletableGroupResult
    answers = [
        groups.DeleteGroupsResponse(results=[row(group_id=name) for name in share.groups_names])
        for share in shares.values()
    ]
    assert [each.group_id for each in route(DELETE_GROUPS).merge(answers).results] == ["a0", "c0", "b1"]


def test_transactions_go_to_their_coordinators() -> None:
    idempotent = transactions.InitProducerIdRequest(transactional_id=None)
    assert route(INIT_PRODUCER_ID).split(idempotent, 5, LEADERS) == {None: idempotent}
    transactional = transactions.InitProducerIdRequest(transactional_id="a1")
    assert route(INIT_PRODUCER_ID).split(transactional, 5, LEADERS) == {OTHERS[0]: transactional}
    one = transactions.AddPartitionsToTxnRequest(v3_and_below_transactional_id="a2")
    assert route(ADD_PARTITIONS_TO_TXN).split(one, 3, LEADERS) == {OTHERS[1]: one}
    row = transactions.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    several = transactions.AddPartitionsToTxnRequest(
        transactions=[row(transactional_id=name) for name in ("a0", "b1", "c0")]
    )
    shares = route(ADD_PARTITIONS_TO_TXN).split(several, 5, LEADERS)
    assert {leader: [each.transactional_id for each in share.transactions] for leader, share in shares.items()} == {
        None: ["a0", "c0"], OTHERS[0]: ["b1"],
    }  # fmt: skip
    result = transactions.AddPartitionsToTxnResponse.AddPartitionsToTxnResult
    answers = [
        transactions.AddPartitionsToTxnResponse(results_by_transaction=[result(transactional_id=name)])
        for name in ("a0", "b1")
    ]
    merged = route(ADD_PARTITIONS_TO_TXN).merge(answers)
    assert [each.transactional_id for each in merged.results_by_transaction] == ["a0", "b1"]


def test_offset_fetch_names_one_group_or_several() -> None:
    one = groups.OffsetFetchRequest(group_id="a2", topics=None)
    assert route(OFFSET_FETCH).split(one, 7, LEADERS) == {OTHERS[1]: one}
    row = groups.OffsetFetchRequest.OffsetFetchRequestGroup
    several = groups.OffsetFetchRequest(groups=[row(group_id="a0"), row(group_id="b1")])
    assert len(route(OFFSET_FETCH).split(several, 8, LEADERS)) == 2


def test_all_are_asked_for_lists() -> None:
    request = groups.ListGroupsRequest(states_filter=[], types_filter=[])
    assert route(LIST_GROUPS).split(request, 5, LEADERS) == dict.fromkeys([None, *OTHERS], request)
    row = groups.ListGroupsResponse.ListedGroup
    answers = [
        groups.ListGroupsResponse(error_code=code, groups=[row(group_id=name)]) for code, name in ((0, "a"), (15, "b"))
    ]
    merged = route(LIST_GROUPS).merge(answers)
    assert merged.error_code == 15
    assert [each.group_id for each in merged.groups] == ["a", "b"]


def test_there_is_one_log_directory() -> None:
    """With one row for each topic, although several gateways lead its partitions: clients take a later row for all."""
    result = cluster.DescribeLogDirsResponse.DescribeLogDirsResult
    topic = result.DescribeLogDirsTopic

    def answer(**partitions: list[int]) -> Any:
        topics = [
            topic(name=name, partitions=[topic.DescribeLogDirsPartition(partition_index=each) for each in rows])
            for name, rows in partitions.items()
        ]
        return cluster.DescribeLogDirsResponse(results=[result(log_dir="d", topics=topics)])

    merged = route(LOG_DIRS).merge([answer(a=[0, 2], b=[0]), answer(c=[0], a=[1])])
    (directory,) = merged.results
    found = {each.name: [row.partition_index for row in each.partitions] for each in directory.topics}
    assert (len(directory.topics), found) == (3, {"a": [0, 2, 1], "b": [0], "c": [0]})


def test_what_has_a_leader_has_a_route() -> None:
    """All APIs that return NOT_LEADER_OR_FOLLOWER or NOT_COORDINATOR, and lists; Fetch is forwarded differently."""
    routed = {api.name for api in APIS.values() if api.route is not None}
    assert routed == {
        "Produce", "ListOffsets", "OffsetCommit", "OffsetFetch", "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup",
        "DescribeGroups", "ListGroups", "DeleteRecords", "OffsetForLeaderEpoch", "DescribeLogDirs", "DeleteGroups",
        "OffsetDelete", "DescribeProducers", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "InitProducerId",
        "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "DescribeTransactions", "ListTransactions",
        "TxnOffsetCommit", "WriteTxnMarkers",
    }  # fmt: skip
    assert records.ProduceRequest.API_KEY == PRODUCE


def test_produced_topics_that_have_ids_are_merged_by_them() -> None:
    """The response of another gateway has no names, this gateway's own response has both."""
    topic = records.ProduceResponse.TopicProduceResponse
    row = topic.PartitionProduceResponse
    a, b = uuid.uuid4(), uuid.uuid4()

    def answer(*topics: tuple[str, uuid.UUID, list[int]]) -> Any:
        return records.ProduceResponse(
            responses=[
                topic(name=name, topic_id=topic_id, partition_responses=[row(index=number) for number in parts])
                for name, topic_id, parts in topics
            ]
        )

    merged = route(PRODUCE).merge([answer(("a", a, [0]), ("b", b, [1])), answer(("", b, [0]), ("", a, [2, 1]))])
    found = {each.topic_id: [row.index for row in each.partition_responses] for each in merged.responses}
    assert found == {a: [0, 2, 1], b: [1, 0]}


def marker(producer_id: int, *topics: tuple[str, list[int]]) -> Any:
    row = records.WriteTxnMarkersRequest.WritableTxnMarker
    return row(
        producer_id=producer_id, producer_epoch=0, transaction_result=True, coordinator_epoch=1,
        topics=[row.WritableTxnMarkerTopic(name=name, partition_indexes=numbers) for name, numbers in topics],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("api_key", "request_"),
    [
        (LIST_OFFSETS, listed(("a", [0, 1, 3, 4, 5, 7]), ("b", [2]), ("c", [0]))),
        (LIST_OFFSETS, listed(*((f"t{number}", [number]) for number in range(9)))),
        (DELETE_GROUPS, groups.DeleteGroupsRequest(groups_names=[f"g{number}" for number in range(9)])),
        (
            WRITE_TXN_MARKERS,
            records.WriteTxnMarkersRequest(
                markers=[marker(number, ("a", [number, number + 1])) for number in range(9)]
            ),
        ),
    ],
    ids=["partitions", "topics", "groups", "markers"],
)
async def test_large_requests_are_split_in_slices(
    monkeypatch: pytest.MonkeyPatch, api_key: int, request_: Any
) -> None:
    monkeypatch.setattr(routes, "AT_ONCE", 2)
    monkeypatch.setattr(fan_out, "SLICE_S", 0.0)
    splitting = asyncio.create_task(route(api_key).split_in_slices(request_, 4, LEADERS))
    turns = 0
    while not splitting.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 4
    assert splitting.result() == route(api_key).split(request_, 4, LEADERS)
    assert len(splitting.result()) == 3
