"""The guard of each API."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.authorization import cluster, groups, records, topics, transactions
from gateway.authorization.guard import nothing_needed
from gateway.requests.call import Guard
from protocol.kafka.api_key import ApiKey

GUARDS: Mapping[int, Guard] = {
    ApiKey.Produce: records.produce,
    ApiKey.Fetch: nothing_needed,  # the handler checks partitions, also those of its answer: `handlers/records/fetch`
    ApiKey.ListOffsets: records.LIST_OFFSETS,
    ApiKey.Metadata: topics.metadata,
    ApiKey.OffsetCommit: groups.OFFSET_COMMIT,
    ApiKey.OffsetFetch: groups.offset_fetch,
    ApiKey.FindCoordinator: groups.find_coordinator,
    ApiKey.JoinGroup: groups.JOIN_GROUP,
    ApiKey.Heartbeat: groups.MEMBER,
    ApiKey.LeaveGroup: groups.MEMBER,
    ApiKey.SyncGroup: groups.MEMBER,
    ApiKey.DescribeGroups: groups.DESCRIBE_GROUPS,
    ApiKey.ListGroups: groups.list_groups,
    ApiKey.SaslHandshake: nothing_needed,
    ApiKey.ApiVersions: nothing_needed,
    ApiKey.CreateTopics: topics.create_topics,
    ApiKey.DeleteTopics: topics.delete_topics,
    ApiKey.DeleteRecords: records.DELETE_RECORDS,
    ApiKey.InitProducerId: transactions.init_producer_id,
    ApiKey.OffsetForLeaderEpoch: records.offset_for_leader_epoch,
    ApiKey.AddPartitionsToTxn: transactions.add_partitions_to_txn,
    ApiKey.AddOffsetsToTxn: transactions.ADD_OFFSETS_TO_TXN,
    ApiKey.EndTxn: transactions.END_TXN,
    ApiKey.WriteTxnMarkers: records.write_txn_markers,
    ApiKey.TxnOffsetCommit: groups.TXN_OFFSET_COMMIT,
    ApiKey.DescribeAcls: cluster.DESCRIBE_ACLS,
    ApiKey.CreateAcls: cluster.CREATE_ACLS,
    ApiKey.DeleteAcls: cluster.DELETE_ACLS,
    ApiKey.DescribeConfigs: cluster.describe_configs,
    ApiKey.AlterConfigs: cluster.ALTER_CONFIGS,
    ApiKey.DescribeLogDirs: cluster.DESCRIBE_LOG_DIRS,
    ApiKey.SaslAuthenticate: nothing_needed,
    ApiKey.CreatePartitions: topics.create_partitions,
    ApiKey.DeleteGroups: groups.DELETE_GROUPS,
    ApiKey.ElectLeaders: topics.ELECT_LEADERS,
    ApiKey.IncrementalAlterConfigs: cluster.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.AlterPartitionReassignments: topics.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.ListPartitionReassignments: topics.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.OffsetDelete: groups.OFFSET_DELETE,
    ApiKey.DescribeClientQuotas: cluster.DESCRIBE_QUOTAS,
    ApiKey.AlterClientQuotas: cluster.ALTER_QUOTAS,
    ApiKey.DescribeUserScramCredentials: cluster.DESCRIBE_SCRAM,
    ApiKey.AlterUserScramCredentials: cluster.ALTER_SCRAM,
    ApiKey.DescribeCluster: nothing_needed,  # only the authorized operations in the answer depend on rights
    ApiKey.DescribeProducers: records.DESCRIBE_PRODUCERS,
    ApiKey.DescribeTransactions: transactions.DESCRIBE_TRANSACTIONS,
    ApiKey.ListTransactions: transactions.list_transactions,
    ApiKey.ConsumerGroupHeartbeat: groups.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.ConsumerGroupDescribe: groups.CONSUMER_GROUP_DESCRIBE,
    ApiKey.ListConfigResources: cluster.LIST_CONFIG_RESOURCES,
    ApiKey.DescribeTopicPartitions: topics.DESCRIBE_TOPIC_PARTITIONS,
}
"""By API key."""
