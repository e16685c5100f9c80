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
    produce_answers,
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
from gateway.requests import api_routes as routes
from gateway.requests.call import Api, Call, at_once, awaited
from gateway.requests.group_topics import in_parts
from protocol.kafka.handwritten.produce_request import decode_produce
from protocol.kafka.messages import cluster, groups, login, records, security, topics, transactions


def _answer_api_versions(call: Call[cluster.ApiVersionsRequest]) -> cluster.ApiVersionsResponse:
    return api_versions.handle(call, APIS.values())


_ROWS = (
    Api(
        records.ProduceRequest, records.ProduceResponse, 0, 13, produce.handle,
        route=routes.PRODUCE, pipelined=True, decode=decode_produce, encode=produce_answers.encode,
    ),
    Api(records.FetchRequest, records.FetchResponse, 0, 18, fetch.handle),
    Api(
        records.ListOffsetsRequest, records.ListOffsetsResponse, 0, 10, list_offsets.handle,
        route=routes.LIST_OFFSETS, pipelined=True, encode=list_offsets.encode,
    ),
    Api(topics.MetadataRequest, topics.MetadataResponse, 0, 13, awaited(metadata_handler.handle)),
    Api(
        groups.OffsetCommitRequest, groups.OffsetCommitResponse, 0, 9, in_parts(offset_commit.handle),
        route=routes.BY_GROUP, pipelined=True,
    ),
    Api(groups.OffsetFetchRequest, groups.OffsetFetchResponse, 0, 9, offset_fetch.handle, route=routes.OFFSET_FETCH),
    Api(groups.FindCoordinatorRequest, groups.FindCoordinatorResponse, 0, 6, awaited(find_coordinator.handle)),
    Api(groups.JoinGroupRequest, groups.JoinGroupResponse, 0, 9, join_group.handle, route=routes.BY_GROUP),
    Api(groups.HeartbeatRequest, groups.HeartbeatResponse, 0, 4, at_once(heartbeat.handle), route=routes.BY_GROUP),
    Api(groups.LeaveGroupRequest, groups.LeaveGroupResponse, 0, 5, leave_group.handle, route=routes.BY_GROUP),
    Api(groups.SyncGroupRequest, groups.SyncGroupResponse, 0, 5, sync_group.handle, route=routes.BY_GROUP),
    Api(
        groups.DescribeGroupsRequest, groups.DescribeGroupsResponse, 0, 6, awaited(describe_groups.handle),
        route=routes.DESCRIBE_GROUPS,
    ),
    Api(
        groups.ListGroupsRequest, groups.ListGroupsResponse, 0, 5, awaited(list_groups.handle),
        route=routes.LIST_GROUPS,
    ),
    Api(cluster.ApiVersionsRequest, cluster.ApiVersionsResponse, 0, 4, at_once(_answer_api_versions)),
    Api(login.SaslHandshakeRequest, login.SaslHandshakeResponse, 0, 1, at_once(sasl_handshake.handle)),
    Api(login.SaslAuthenticateRequest, login.SaslAuthenticateResponse, 0, 2, at_once(sasl_authenticate.handle)),
    Api(topics.CreateTopicsRequest, topics.CreateTopicsResponse, 0, 7, awaited(create_topics.handle)),
    Api(topics.DeleteTopicsRequest, topics.DeleteTopicsResponse, 0, 6, awaited(delete_topics.handle)),
    Api(
        records.DeleteRecordsRequest, records.DeleteRecordsResponse, 0, 2, awaited(delete_records.handle),
        route=routes.DELETE_RECORDS,
    ),
    Api(
        transactions.InitProducerIdRequest, transactions.InitProducerIdResponse, 0, 5, init_producer_id.handle,
        route=routes.BY_TRANSACTIONAL_ID,
    ),
    Api(
        records.WriteTxnMarkersRequest, records.WriteTxnMarkersResponse, 1, 2, write_txn_markers.handle,
        route=routes.WRITE_TXN_MARKERS, pipelined=True,
    ),
    Api(
        records.OffsetForLeaderEpochRequest, records.OffsetForLeaderEpochResponse,
        0, 4, awaited(offset_for_leader_epoch.handle), route=routes.OFFSET_FOR_LEADER_EPOCH,
    ),
    Api(
        transactions.AddPartitionsToTxnRequest, transactions.AddPartitionsToTxnResponse,
        0, 5, add_partitions_to_txn.handle, route=routes.ADD_PARTITIONS_TO_TXN,
    ),
    Api(
        transactions.AddOffsetsToTxnRequest, transactions.AddOffsetsToTxnResponse, 0, 4, add_offsets_to_txn.handle,
        route=routes.BY_TRANSACTIONAL_ID,
    ),
    Api(
        transactions.EndTxnRequest, transactions.EndTxnResponse, 0, 5, end_txn.handle,
        route=routes.BY_TRANSACTIONAL_ID,
    ),
    Api(security.DescribeAclsRequest, security.DescribeAclsResponse, 0, 3, awaited(describe_acls.handle)),
    Api(security.CreateAclsRequest, security.CreateAclsResponse, 0, 3, awaited(create_acls.handle)),
    Api(security.DeleteAclsRequest, security.DeleteAclsResponse, 0, 3, awaited(delete_acls.handle)),
    Api(
        groups.TxnOffsetCommitRequest, groups.TxnOffsetCommitResponse, 0, 5, in_parts(txn_offset_commit.handle),
        route=routes.TXN_OFFSET_COMMIT,
    ),
    Api(cluster.DescribeConfigsRequest, cluster.DescribeConfigsResponse, 0, 4, awaited(describe_configs.handle)),
    Api(cluster.AlterConfigsRequest, cluster.AlterConfigsResponse, 0, 2, awaited(alter_configs.handle)),
    Api(
        cluster.DescribeLogDirsRequest, cluster.DescribeLogDirsResponse, 0, 4, awaited(describe_log_dirs.handle),
        route=routes.DESCRIBE_LOG_DIRS,
    ),
    Api(topics.CreatePartitionsRequest, topics.CreatePartitionsResponse, 0, 3, awaited(create_partitions.handle)),
    Api(
        groups.DeleteGroupsRequest, groups.DeleteGroupsResponse, 0, 2, delete_groups.handle,
        route=routes.DELETE_GROUPS,
    ),
    Api(topics.ElectLeadersRequest, topics.ElectLeadersResponse, 0, 2, awaited(elect_leaders.handle)),
    Api(
        cluster.IncrementalAlterConfigsRequest, cluster.IncrementalAlterConfigsResponse,
        0, 1, awaited(incremental_alter_configs.handle),
    ),
    Api(
        topics.AlterPartitionReassignmentsRequest, topics.AlterPartitionReassignmentsResponse,
        0, 1, awaited(alter_partition_reassignments.handle),
    ),
    Api(
        topics.ListPartitionReassignmentsRequest, topics.ListPartitionReassignmentsResponse,
        0, 0, at_once(list_partition_reassignments.handle),
    ),
    Api(
        groups.OffsetDeleteRequest, groups.OffsetDeleteResponse, 0, 0, in_parts(offset_delete.handle),
        route=routes.BY_GROUP,
    ),
    Api(
        security.DescribeClientQuotasRequest, security.DescribeClientQuotasResponse,
        0, 1, awaited(describe_client_quotas.handle),
    ),
    Api(
        security.AlterClientQuotasRequest, security.AlterClientQuotasResponse,
        0, 1, awaited(alter_client_quotas.handle),
    ),
    Api(
        security.DescribeUserScramCredentialsRequest, security.DescribeUserScramCredentialsResponse,
        0, 0, awaited(describe_user_scram_credentials.handle),
    ),
    Api(
        security.AlterUserScramCredentialsRequest, security.AlterUserScramCredentialsResponse,
        0, 0, awaited(alter_user_scram_credentials.handle),
    ),
    Api(cluster.DescribeClusterRequest, cluster.DescribeClusterResponse, 0, 2, at_once(describe_cluster.handle)),
    Api(
        records.DescribeProducersRequest, records.DescribeProducersResponse, 0, 0, awaited(describe_producers.handle),
        route=routes.DESCRIBE_PRODUCERS,
    ),
    Api(
        transactions.DescribeTransactionsRequest, transactions.DescribeTransactionsResponse,
        0, 0, awaited(describe_transactions.handle), route=routes.DESCRIBE_TRANSACTIONS,
    ),
    Api(
        transactions.ListTransactionsRequest, transactions.ListTransactionsResponse,
        0, 2, awaited(list_transactions.handle), route=routes.LIST_TRANSACTIONS,
    ),
    Api(
        groups.ConsumerGroupHeartbeatRequest, groups.ConsumerGroupHeartbeatResponse,
        0, 1, consumer_group_heartbeat.handle, route=routes.BY_GROUP,
    ),
    Api(
        groups.ConsumerGroupDescribeRequest, groups.ConsumerGroupDescribeResponse,
        0, 1, awaited(consumer_group_describe.handle), route=routes.CONSUMER_GROUP_DESCRIBE,
    ),
    Api(
        cluster.ListConfigResourcesRequest, cluster.ListConfigResourcesResponse,
        0, 1, awaited(list_config_resources.handle),
    ),
    Api(
        topics.DescribeTopicPartitionsRequest, topics.DescribeTopicPartitionsResponse,
        0, 0, awaited(describe_topic_partitions.handle),
    ),
)  # fmt: skip
APIS: dict[int, Api] = {api.key: api for api in _ROWS}
"""By API key."""
