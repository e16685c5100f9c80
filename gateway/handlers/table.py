"""The handler table: which APIs and versions this gateway serves. ApiVersions answers from it, dispatch calls by it."""

from __future__ import annotations

from kafka.protocol import admin, consumer, metadata, producer

from gateway.handlers.cluster import (
    alter_configs,
    api_versions,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    incremental_alter_configs,
    list_config_resources,
)
from gateway.handlers.groups import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from gateway.handlers.records import (
    delete_records,
    describe_producers,
    fetch,
    init_producer_id,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from gateway.handlers.topics import (
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    describe_topic_partitions,
    elect_leaders,
    list_partition_reassignments,
)
from gateway.handlers.topics import metadata as metadata_handler
from gateway.requests.call import Api
from protocol.kafka import schemas
from protocol.kafka.produce_request import decode_produce

APIS: dict[int, Api] = {
    api.key: api
    for api in (
        Api(
            0, 0, 13, producer.ProduceRequest, producer.ProduceResponse, produce.handle, decode_produce, produce.encode,
        ),
        Api(1, 0, 18, consumer.FetchRequest, consumer.FetchResponse, fetch.handle),
        Api(
            2, 0, 10, consumer.ListOffsetsRequest, consumer.ListOffsetsResponse, list_offsets.handle,
            encode=list_offsets.encode,
        ),
        Api(3, 0, 13, metadata.MetadataRequest, metadata.MetadataResponse, metadata_handler.handle),
        Api(8, 0, 9, consumer.OffsetCommitRequest, consumer.OffsetCommitResponse, offset_commit.handle),
        Api(9, 0, 9, consumer.OffsetFetchRequest, consumer.OffsetFetchResponse, offset_fetch.handle),
        Api(10, 0, 6, metadata.FindCoordinatorRequest, metadata.FindCoordinatorResponse, find_coordinator.handle),
        Api(11, 0, 9, consumer.JoinGroupRequest, consumer.JoinGroupResponse, join_group.handle),
        Api(12, 0, 4, consumer.HeartbeatRequest, consumer.HeartbeatResponse, heartbeat.handle),
        Api(13, 0, 5, consumer.LeaveGroupRequest, consumer.LeaveGroupResponse, leave_group.handle),
        Api(14, 0, 5, consumer.SyncGroupRequest, consumer.SyncGroupResponse, sync_group.handle),
        Api(15, 0, 6, admin.DescribeGroupsRequest, admin.DescribeGroupsResponse, describe_groups.handle),
        Api(16, 0, 5, admin.ListGroupsRequest, admin.ListGroupsResponse, list_groups.handle),
        Api(18, 0, 4, metadata.ApiVersionsRequest, metadata.ApiVersionsResponse, api_versions.handle),
        Api(19, 0, 7, admin.CreateTopicsRequest, admin.CreateTopicsResponse, create_topics.handle),
        Api(20, 0, 6, admin.DeleteTopicsRequest, admin.DeleteTopicsResponse, delete_topics.handle),
        Api(21, 0, 2, admin.DeleteRecordsRequest, admin.DeleteRecordsResponse, delete_records.handle),
        Api(22, 0, 5, producer.InitProducerIdRequest, producer.InitProducerIdResponse, init_producer_id.handle),
        Api(
            23, 0, 4, consumer.OffsetForLeaderEpochRequest, consumer.OffsetForLeaderEpochResponse,
            offset_for_leader_epoch.handle,
        ),
        Api(32, 0, 4, admin.DescribeConfigsRequest, admin.DescribeConfigsResponse, describe_configs.handle),
        Api(33, 0, 2, admin.AlterConfigsRequest, admin.AlterConfigsResponse, alter_configs.handle),
        Api(35, 0, 4, admin.DescribeLogDirsRequest, admin.DescribeLogDirsResponse, describe_log_dirs.handle),
        Api(37, 0, 3, admin.CreatePartitionsRequest, admin.CreatePartitionsResponse, create_partitions.handle),
        Api(42, 0, 2, admin.DeleteGroupsRequest, admin.DeleteGroupsResponse, delete_groups.handle),
        Api(43, 0, 2, admin.ElectLeadersRequest, admin.ElectLeadersResponse, elect_leaders.handle),
        Api(
            44, 0, 1, admin.IncrementalAlterConfigsRequest, admin.IncrementalAlterConfigsResponse,
            incremental_alter_configs.handle,
        ),
        Api(
            45, 0, 1, admin.AlterPartitionReassignmentsRequest, admin.AlterPartitionReassignmentsResponse,
            alter_partition_reassignments.handle,
        ),
        Api(
            46, 0, 0, admin.ListPartitionReassignmentsRequest, admin.ListPartitionReassignmentsResponse,
            list_partition_reassignments.handle,
        ),
        Api(47, 0, 0, consumer.OffsetDeleteRequest, consumer.OffsetDeleteResponse, offset_delete.handle),
        Api(60, 0, 2, admin.DescribeClusterRequest, admin.DescribeClusterResponse, describe_cluster.handle),
        Api(61, 0, 0, admin.DescribeProducersRequest, admin.DescribeProducersResponse, describe_producers.handle),
        Api(
            68, 0, 1, schemas.ConsumerGroupHeartbeatRequest, schemas.ConsumerGroupHeartbeatResponse,
            consumer_group_heartbeat.handle,
        ),
        Api(
            69, 0, 1, schemas.ConsumerGroupDescribeRequest, schemas.ConsumerGroupDescribeResponse,
            consumer_group_describe.handle,
        ),
        Api(
            74, 0, 1, admin.ListConfigResourcesRequest, admin.ListConfigResourcesResponse,
            list_config_resources.handle,
        ),
        Api(
            75, 0, 0, admin.DescribeTopicPartitionsRequest, admin.DescribeTopicPartitionsResponse,
            describe_topic_partitions.handle,
        ),
    )
}  # fmt: skip
