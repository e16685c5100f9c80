"""The handler table: a row for each API. ApiVersions answers from it, dispatch and forwarding go by it."""

from __future__ import annotations

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
    txn_offset_commit,
)
from gateway.handlers.login import sasl_authenticate, sasl_handshake
from gateway.handlers.records import (
    delete_records,
    describe_producers,
    fetch,
    list_offsets,
    offset_for_leader_epoch,
    produce,
    write_txn_markers,
)
from gateway.handlers.security import (
    alter_client_quotas,
    alter_user_scram_credentials,
    create_acls,
    delete_acls,
    describe_acls,
    describe_client_quotas,
    describe_user_scram_credentials,
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
from gateway.handlers.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
)
from gateway.requests import routes
from gateway.requests.call import Api, Call, Right, at_once, awaited
from protocol.kafka.acl import AclOperation, ResourceType
from protocol.kafka.handwritten.produce_request import decode_produce
from protocol.kafka.messages import cluster, groups, login, records, security, topics, transactions

_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
_READ, _WRITE, _CREATE, _DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
_ALTER, _DESCRIBE = AclOperation.ALTER, AclOperation.DESCRIBE
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS


def _rights(*pairs: tuple[ResourceType, AclOperation]) -> tuple[Right, ...]:
    return tuple(Right(*pair) for pair in pairs)


def _answer_api_versions(call: Call[cluster.ApiVersionsRequest]) -> cluster.ApiVersionsResponse:
    return api_versions.handle(call, APIS.values())


_ROWS = (
    Api(
        records.ProduceRequest, records.ProduceResponse,
        0, 13, produce.handle,
        _rights((_TOPIC, _WRITE), (_TRANSACTIONAL_ID, _WRITE)), route=routes.PRODUCE, pipelined=True,
        decode=decode_produce, encode=produce.encode,
    ),
    Api(
        records.FetchRequest, records.FetchResponse,
        0, 18, fetch.handle,
        _rights((_TOPIC, _READ)),
    ),
    Api(
        records.ListOffsetsRequest, records.ListOffsetsResponse,
        0, 10, list_offsets.handle,
        _rights((_TOPIC, _DESCRIBE)), route=routes.BY_PARTITION_INDEX, pipelined=True, encode=list_offsets.encode,
    ),
    Api(
        topics.MetadataRequest, topics.MetadataResponse,
        0, 13, awaited(metadata_handler.handle),
        _rights((_TOPIC, _DESCRIBE)),
    ),
    Api(
        groups.OffsetCommitRequest, groups.OffsetCommitResponse,
        0, 9, offset_commit.handle,
        _rights((_GROUP, _READ), (_TOPIC, _READ)), route=routes.BY_GROUP, pipelined=True,
    ),
    Api(
        groups.OffsetFetchRequest, groups.OffsetFetchResponse,
        0, 9, offset_fetch.handle,
        _rights((_GROUP, _DESCRIBE), (_TOPIC, _DESCRIBE)), route=routes.OFFSET_FETCH,
    ),
    Api(
        groups.FindCoordinatorRequest, groups.FindCoordinatorResponse,
        0, 6, at_once(find_coordinator.handle),
        _rights((_GROUP, _DESCRIBE), (_TRANSACTIONAL_ID, _DESCRIBE)),
    ),
    Api(
        groups.JoinGroupRequest, groups.JoinGroupResponse,
        0, 9, join_group.handle,
        _rights((_GROUP, _READ)), route=routes.BY_GROUP,
    ),
    Api(
        groups.HeartbeatRequest, groups.HeartbeatResponse,
        0, 4, at_once(heartbeat.handle),
        _rights((_GROUP, _READ)), route=routes.BY_GROUP,
    ),
    Api(
        groups.LeaveGroupRequest, groups.LeaveGroupResponse,
        0, 5, at_once(leave_group.handle),
        _rights((_GROUP, _READ)), route=routes.BY_GROUP,
    ),
    Api(
        groups.SyncGroupRequest, groups.SyncGroupResponse,
        0, 5, sync_group.handle,
        _rights((_GROUP, _READ)), route=routes.BY_GROUP,
    ),
    Api(
        groups.DescribeGroupsRequest, groups.DescribeGroupsResponse,
        0, 6, at_once(describe_groups.handle),
        _rights((_GROUP, _DESCRIBE)), route=routes.DESCRIBE_GROUPS,
    ),
    Api(
        groups.ListGroupsRequest, groups.ListGroupsResponse,
        0, 5, awaited(list_groups.handle),
        _rights((_GROUP, _DESCRIBE)), route=routes.LIST_GROUPS,
    ),
    Api(
        cluster.ApiVersionsRequest, cluster.ApiVersionsResponse,
        0, 4, at_once(_answer_api_versions),
        _rights(),
    ),
    Api(
        login.SaslHandshakeRequest, login.SaslHandshakeResponse,
        0, 1, at_once(sasl_handshake.handle),
        _rights(),
    ),
    Api(
        login.SaslAuthenticateRequest, login.SaslAuthenticateResponse,
        0, 2, at_once(sasl_authenticate.handle),
        _rights(),
    ),
    Api(
        topics.CreateTopicsRequest, topics.CreateTopicsResponse,
        0, 7, awaited(create_topics.handle),
        _rights((_TOPIC, _CREATE)),
    ),
    Api(
        topics.DeleteTopicsRequest, topics.DeleteTopicsResponse,
        0, 6, awaited(delete_topics.handle),
        _rights((_TOPIC, _DELETE)),
    ),
    Api(
        records.DeleteRecordsRequest, records.DeleteRecordsResponse,
        0, 2, awaited(delete_records.handle),
        _rights((_TOPIC, _DELETE)), route=routes.BY_PARTITION_INDEX,
    ),
    Api(
        transactions.InitProducerIdRequest, transactions.InitProducerIdResponse,
        0, 5, init_producer_id.handle,
        _rights((_TRANSACTIONAL_ID, _WRITE), (_CLUSTER, AclOperation.IDEMPOTENT_WRITE)),
        route=routes.BY_TRANSACTIONAL_ID,
    ),
    Api(
        records.WriteTxnMarkersRequest, records.WriteTxnMarkersResponse,
        1, 2, write_txn_markers.handle,
        _rights((_CLUSTER, _ALTER)), route=routes.WRITE_TXN_MARKERS, pipelined=True,
    ),
    Api(
        records.OffsetForLeaderEpochRequest, records.OffsetForLeaderEpochResponse,
        0, 4, awaited(offset_for_leader_epoch.handle),
        _rights((_TOPIC, _DESCRIBE)), route=routes.OFFSET_FOR_LEADER_EPOCH,
    ),
    Api(
        transactions.AddPartitionsToTxnRequest, transactions.AddPartitionsToTxnResponse,
        0, 5, add_partitions_to_txn.handle,
        _rights((_TRANSACTIONAL_ID, _WRITE), (_TOPIC, _WRITE), (_CLUSTER, AclOperation.CLUSTER_ACTION)),
        route=routes.ADD_PARTITIONS_TO_TXN,
    ),
    Api(
        transactions.AddOffsetsToTxnRequest, transactions.AddOffsetsToTxnResponse,
        0, 4, add_offsets_to_txn.handle,
        _rights((_TRANSACTIONAL_ID, _WRITE), (_GROUP, _READ)), route=routes.BY_TRANSACTIONAL_ID,
    ),
    Api(
        transactions.EndTxnRequest, transactions.EndTxnResponse,
        0, 5, end_txn.handle,
        _rights((_TRANSACTIONAL_ID, _WRITE)), route=routes.BY_TRANSACTIONAL_ID,
    ),
    Api(
        security.DescribeAclsRequest, security.DescribeAclsResponse,
        1, 3, at_once(describe_acls.handle),
        _rights((_CLUSTER, _DESCRIBE)),
    ),
    Api(
        security.CreateAclsRequest, security.CreateAclsResponse,
        1, 3, awaited(create_acls.handle),
        _rights((_CLUSTER, _ALTER)),
    ),
    Api(
        security.DeleteAclsRequest, security.DeleteAclsResponse,
        1, 3, awaited(delete_acls.handle),
        _rights((_CLUSTER, _ALTER)),
    ),
    Api(
        groups.TxnOffsetCommitRequest, groups.TxnOffsetCommitResponse,
        0, 5, txn_offset_commit.handle,
        _rights((_TRANSACTIONAL_ID, _WRITE), (_GROUP, _READ), (_TOPIC, _READ)), route=routes.TXN_OFFSET_COMMIT,
    ),
    Api(
        cluster.DescribeConfigsRequest, cluster.DescribeConfigsResponse,
        0, 4, awaited(describe_configs.handle),
        _rights((_TOPIC, _DESCRIBE_CONFIGS), (_GROUP, _DESCRIBE_CONFIGS), (_CLUSTER, _DESCRIBE_CONFIGS)),
    ),
    Api(
        cluster.AlterConfigsRequest, cluster.AlterConfigsResponse,
        0, 2, awaited(alter_configs.handle),
        _rights((_TOPIC, _ALTER_CONFIGS), (_GROUP, _ALTER_CONFIGS), (_CLUSTER, _ALTER_CONFIGS)),
    ),
    Api(
        cluster.DescribeLogDirsRequest, cluster.DescribeLogDirsResponse,
        0, 4, awaited(describe_log_dirs.handle),
        _rights((_CLUSTER, _DESCRIBE)), route=routes.DESCRIBE_LOG_DIRS,
    ),
    Api(
        topics.CreatePartitionsRequest, topics.CreatePartitionsResponse,
        0, 3, awaited(create_partitions.handle),
        _rights((_TOPIC, _ALTER)),
    ),
    Api(
        groups.DeleteGroupsRequest, groups.DeleteGroupsResponse,
        0, 2, delete_groups.handle,
        _rights((_GROUP, _DELETE)), route=routes.DELETE_GROUPS,
    ),
    Api(
        topics.ElectLeadersRequest, topics.ElectLeadersResponse,
        0, 2, awaited(elect_leaders.handle),
        _rights((_CLUSTER, _ALTER)),
    ),
    Api(
        cluster.IncrementalAlterConfigsRequest, cluster.IncrementalAlterConfigsResponse,
        0, 1, awaited(incremental_alter_configs.handle),
        _rights((_TOPIC, _ALTER_CONFIGS), (_GROUP, _ALTER_CONFIGS), (_CLUSTER, _ALTER_CONFIGS)),
    ),
    Api(
        topics.AlterPartitionReassignmentsRequest, topics.AlterPartitionReassignmentsResponse,
        0, 1, awaited(alter_partition_reassignments.handle),
        _rights((_CLUSTER, _ALTER)),
    ),
    Api(
        topics.ListPartitionReassignmentsRequest, topics.ListPartitionReassignmentsResponse,
        0, 0, at_once(list_partition_reassignments.handle),
        _rights((_CLUSTER, _DESCRIBE)),
    ),
    Api(
        groups.OffsetDeleteRequest, groups.OffsetDeleteResponse,
        0, 0, offset_delete.handle,
        _rights((_GROUP, _DELETE), (_TOPIC, _READ)), route=routes.BY_GROUP,
    ),
    Api(
        security.DescribeClientQuotasRequest, security.DescribeClientQuotasResponse,
        0, 1, at_once(describe_client_quotas.handle),
        _rights((_CLUSTER, _DESCRIBE_CONFIGS)),
    ),
    Api(
        security.AlterClientQuotasRequest, security.AlterClientQuotasResponse,
        0, 1, awaited(alter_client_quotas.handle),
        _rights((_CLUSTER, _ALTER_CONFIGS)),
    ),
    Api(
        security.DescribeUserScramCredentialsRequest, security.DescribeUserScramCredentialsResponse,
        0, 0, at_once(describe_user_scram_credentials.handle),
        _rights((_CLUSTER, _DESCRIBE)),
    ),
    Api(
        security.AlterUserScramCredentialsRequest, security.AlterUserScramCredentialsResponse,
        0, 0, awaited(alter_user_scram_credentials.handle),
        _rights((_CLUSTER, _ALTER)),
    ),
    Api(
        cluster.DescribeClusterRequest, cluster.DescribeClusterResponse,
        0, 2, at_once(describe_cluster.handle),
        _rights((_CLUSTER, _DESCRIBE)),
    ),
    Api(
        records.DescribeProducersRequest, records.DescribeProducersResponse,
        0, 0, awaited(describe_producers.handle),
        _rights((_TOPIC, _READ)), route=routes.DESCRIBE_PRODUCERS,
    ),
    Api(
        transactions.DescribeTransactionsRequest, transactions.DescribeTransactionsResponse,
        0, 0, at_once(describe_transactions.handle),
        _rights((_TRANSACTIONAL_ID, _DESCRIBE), (_TOPIC, _DESCRIBE)), route=routes.DESCRIBE_TRANSACTIONS,
    ),
    Api(
        transactions.ListTransactionsRequest, transactions.ListTransactionsResponse,
        0, 2, awaited(list_transactions.handle),
        _rights((_TRANSACTIONAL_ID, _DESCRIBE)), route=routes.LIST_TRANSACTIONS,
    ),
    Api(
        groups.ConsumerGroupHeartbeatRequest, groups.ConsumerGroupHeartbeatResponse,
        0, 1, consumer_group_heartbeat.handle,
        _rights((_GROUP, _READ), (_TOPIC, _DESCRIBE)), route=routes.BY_GROUP,
    ),
    Api(
        groups.ConsumerGroupDescribeRequest, groups.ConsumerGroupDescribeResponse,
        0, 1, at_once(consumer_group_describe.handle),
        _rights((_GROUP, _DESCRIBE), (_TOPIC, _DESCRIBE)), route=routes.CONSUMER_GROUP_DESCRIBE,
    ),
    Api(
        cluster.ListConfigResourcesRequest, cluster.ListConfigResourcesResponse,
        0, 1, awaited(list_config_resources.handle),
        _rights((_CLUSTER, _DESCRIBE_CONFIGS)),
    ),
    Api(
        topics.DescribeTopicPartitionsRequest, topics.DescribeTopicPartitionsResponse,
        0, 0, awaited(describe_topic_partitions.handle),
        _rights((_TOPIC, _DESCRIBE)),
    ),
)  # fmt: skip
APIS: dict[int, Api] = {api.key: api for api in _ROWS}
"""By API key."""
