"""Requests that name very many topics that do not exist: one listing, whichever API it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.config.gateway_config import Config
from gateway.handlers.table import APIS
from gateway.observability.metrics import Metrics
from gateway.requests import group_topics
from gateway.requests.call import Call
from gateway.requests.context import Client, Listener, RequestContext
from gateway.requests.group_topics import PartitionCounts, in_parts, with_counts
from gateway.requests.policy import ALL_ALLOWED
from gateway.requests.reply import Reply
from gateway.topics.catalog import TopicCatalog
from gateway.topics.requested_topics import MIN_LOOKUPS
from protocol.kafka.api_key import ApiKey
from protocol.kafka.errors import ErrorCode
from protocol.kafka.handwritten.produce_request import ProducedPartition, ProducedTopic
from protocol.kafka.messages.cluster import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    IncrementalAlterConfigsRequest,
)
from protocol.kafka.messages.groups import OffsetDeleteRequest, OffsetDeleteResponse
from protocol.kafka.messages.records import (
    DeleteRecordsRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)
from protocol.kafka.messages.topics import (
    CreatePartitionsRequest,
    DeleteTopicsRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
)
from tests.unit.gateway.log.fake_admin import FakeTopics

NAMES = [f"absent{number}" for number in range(300)]
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
TOPIC = 2
"""Kind of a resource."""


class Scene:
    def __init__(self) -> None:
        self.pulsar = FakeTopics()
        cluster = SimpleNamespace(
            topics=TopicCatalog(self.pulsar.client, "t/n", 60_000), config=Config(), metrics=Metrics(),
            fleet=SimpleNamespace(members=[], node_id=0, epoch=0, listener="default"), cluster_id="c",
        )  # fmt: skip
        self._context = RequestContext(Client("192.0.2.1:1"), Listener("default"), cast(Any, cluster))
        assert self._context.policy is ALL_ALLOWED

    def call(self, key: ApiKey, request: Any) -> Call[Any]:
        api = APIS[key]
        return Call(api, api.max_version, 1, "c", request, self._context)

    @property
    def requests(self) -> dict[str, int]:
        return dict(self.pulsar.requests)


def listed_offsets() -> ListOffsetsRequest:
    topic = ListOffsetsRequest.ListOffsetsTopic
    rows = [topic.ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=-1)]
    return ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic(name=n, partitions=rows) for n in NAMES])


def epochs() -> OffsetForLeaderEpochRequest:
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    rows = [topic.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)]
    return OffsetForLeaderEpochRequest(topics=[topic(topic=name, partitions=rows) for name in NAMES])


def deleted_records() -> DeleteRecordsRequest:
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    rows = [topic.DeleteRecordsPartition(partition_index=0, offset=1)]
    return DeleteRecordsRequest(topics=[topic(name=name, partitions=rows) for name in NAMES], timeout_ms=1000)


def errors_of_partitions(topics: Iterable[Any]) -> list[int]:
    return [row.error_code for topic in topics for row in topic.partitions]


def altered(request: Any, resource: Any) -> Any:
    return request(
        resources=[resource(resource_type=TOPIC, resource_name=name, configs=[]) for name in NAMES], validate_only=False
    )


CASES: dict[ApiKey, tuple[Callable[[], Any], Callable[[Any], list[int]]]] = {
    ApiKey.Metadata: (
        lambda: MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in NAMES], allow_auto_topic_creation=False
        ),
        lambda response: [row.error_code for row in response.topics],
    ),
    ApiKey.ListOffsets: (listed_offsets, lambda response: errors_of_partitions(response.topics)),
    ApiKey.OffsetForLeaderEpoch: (epochs, lambda response: errors_of_partitions(response.topics)),
    ApiKey.DeleteRecords: (deleted_records, lambda response: errors_of_partitions(response.topics)),
    ApiKey.DescribeTopicPartitions: (
        lambda: DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in NAMES],
            response_partition_limit=2000,
        ),
        lambda response: [row.error_code for row in response.topics],
    ),
    ApiKey.DeleteTopics: (
        lambda: DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=None) for name in NAMES],
            timeout_ms=1000,
        ),
        lambda response: [row.error_code for row in response.responses],
    ),
    ApiKey.CreatePartitions: (
        lambda: CreatePartitionsRequest(
            topics=[CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=3) for name in NAMES],
            timeout_ms=1000,
        ),
        lambda response: [row.error_code for row in response.results],
    ),
    ApiKey.DescribeConfigs: (
        lambda: DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.DescribeConfigsResource(resource_type=TOPIC, resource_name=name)
                for name in NAMES
            ]
        ),
        lambda response: [row.error_code for row in response.results],
    ),
    ApiKey.AlterConfigs: (
        lambda: altered(AlterConfigsRequest, AlterConfigsRequest.AlterConfigsResource),
        lambda response: [row.error_code for row in response.responses],
    ),
    ApiKey.IncrementalAlterConfigs: (
        lambda: altered(IncrementalAlterConfigsRequest, IncrementalAlterConfigsRequest.AlterConfigsResource),
        lambda response: [row.error_code for row in response.responses],
    ),
}


@pytest.mark.parametrize("key", CASES, ids=lambda key: key.name)
async def test_very_many_absent_topics(key: ApiKey) -> None:
    scene, (request, errors) = Scene(), CASES[key]
    response = await APIS[key].handle(scene.call(key, request())).result()
    assert errors(response) == [UNKNOWN] * len(NAMES)
    assert scene.requests == {"partitioned": MIN_LOOKUPS, "list_partitioned": 1, "list_topics": 1}


async def test_log_dirs() -> None:
    scene = Scene()
    topics = [DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=[0]) for name in NAMES]
    call = scene.call(ApiKey.DescribeLogDirs, DescribeLogDirsRequest(topics=topics))
    response: Any = await APIS[ApiKey.DescribeLogDirs].handle(call).result()
    assert [row.topics for row in response.results] == [[]]
    assert scene.requests == {"partitioned": MIN_LOOKUPS, "list_partitioned": 1, "list_topics": 1}


async def test_produce() -> None:
    scene = Scene()
    topics = [ProducedTopic(name=name, partition_data=[ProducedPartition(index=0)]) for name in NAMES]
    call = scene.call(ApiKey.Produce, ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=cast(Any, topics)))
    call.version = 9
    response: Any = await APIS[ApiKey.Produce].handle(call).result()
    assert [row.error_code for each in response.responses for row in each.partition_responses] == [UNKNOWN] * len(NAMES)
    assert scene.requests == {"partitioned": MIN_LOOKUPS, "list_partitioned": 1, "list_topics": 1}


async def test_offsets_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of a request are one request."""
    monkeypatch.setattr(group_topics, "PART_ROWS", 10)
    scene, row = Scene(), OffsetDeleteRequest.OffsetDeleteRequestTopic.OffsetDeleteRequestPartition
    counted: dict[str, int | None] = {}

    def count(counts: PartitionCounts) -> Reply:
        counted.update(counts.by_topic)
        return Reply(OffsetDeleteResponse())

    topics = [
        OffsetDeleteRequest.OffsetDeleteRequestTopic(name=name, partitions=[row(partition_index=0)]) for name in NAMES
    ]
    call = scene.call(ApiKey.OffsetDelete, OffsetDeleteRequest(group_id="g", topics=topics))
    await in_parts(lambda part: with_counts(part, part.request.topics, count))(call).result()
    assert counted == dict.fromkeys(NAMES, 0)
    assert scene.requests == {"partitioned": MIN_LOOKUPS, "list_partitioned": 1, "list_topics": 1}
