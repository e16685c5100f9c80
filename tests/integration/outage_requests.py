"""A request of each API, about a topic that the gateway knows and one that it does not know."""

from __future__ import annotations

import uuid
from typing import Any

from tests.conformance.records import Record, batch

Fields = dict[str, Any]

TOPIC = 2
KNOWN, UNKNOWN = NAMES = ["<known>", "<unknown>"]
"""Placeholders for the two topics."""
_SET = 0


def requests(api: str, known: str, unknown: str) -> list[tuple[int, Fields]]:
    """Version and fields of each request."""
    return [(version, _named(fields, known, unknown)) for version, fields in REQUESTS[api]]


def _named(value: Any, known: str, unknown: str) -> Any:
    match value:
        case str():
            return value.replace(KNOWN, known).replace(UNKNOWN, unknown)
        case list():
            return [_named(each, known, unknown) for each in value]
        case dict():
            return {name: _named(each, known, unknown) for name, each in value.items()}
    return value


def alteration(name: str, **configs: str) -> dict[str, Any]:
    entries = [
        {"name": key.replace("_", "."), "config_operation": _SET, "value": value} for key, value in configs.items()
    ]
    return {
        "resources": [{"resource_type": TOPIC, "resource_name": name, "configs": entries}],
        "validate_only": False,
    }


_RECORD = batch([Record(b"x")], 0)
_PRODUCER = {"producer_id": 7, "producer_epoch": 0}
_PARTITIONS = [{"name": name, "partitions": [0, 1]} for name in NAMES]
_ACL: Fields = {"resource_type": TOPIC, "resource_name": KNOWN, "resource_pattern_type": 3, "principal": "User:a",
    "host": "*", "operation": 3, "permission_type": 3}  # fmt: skip
_ACL_FILTER: Fields = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
    "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}  # fmt: skip
_QUOTA: Fields = {"entity": [{"entity_type": "user", "entity_name": "a"}],
    "ops": [{"key": "producer_byte_rate", "value": 1e6, "remove": False}]}  # fmt: skip

REQUESTS: dict[str, list[tuple[int, Fields]]] = {
    "Produce": [(9, {"transactional_id": None, "acks": -1, "timeout_ms": 5_000, "topic_data": [
        {"name": name, "partition_data": [{"index": 0, "records": _RECORD}]} for name in NAMES]})],
    "Fetch": [(11, {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1000, "isolation_level": 0,
        "session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": "", "topics": [
        {"topic": name, "partitions": [{"partition": 1, "fetch_offset": 0, "partition_max_bytes": 1000}]}
        for name in NAMES]})],
    "ListOffsets": [(6, {"replica_id": -1, "isolation_level": 0, "topics": [
        {"name": name, "partitions": [{"partition_index": 1, "timestamp": at}]}
        for name in NAMES for at in (-1, -2, 5)]})],
    "Metadata": [
        (9, {"topics": None}), (9, {"topics": [{"name": name} for name in NAMES]}),
        (12, {"topics": [{"topic_id": uuid.uuid4(), "name": None}]}),
    ],
    "OffsetCommit": [(8, {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "",
        "group_instance_id": None, "topics": [
        {"name": name, "partitions": [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]}
        for name in NAMES]})],
    "OffsetFetch": [(7, {"group_id": "g", "require_stable": False, "topics": [
        {"name": name, "partition_indexes": [0, 1]} for name in NAMES]})],
    "FindCoordinator": [(3, {"key": "g", "key_type": 0})],
    "JoinGroup": [(5, {"group_id": "g", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000,
        "member_id": "", "group_instance_id": None, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}]})],
    "Heartbeat": [(3, {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None})],
    "LeaveGroup": [(4, {"group_id": "g", "members": [{"member_id": "m", "group_instance_id": None}]})],
    "SyncGroup": [(4, {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None,
        "assignments": []})],
    "DescribeGroups": [(5, {"groups": ["g"], "include_authorized_operations": False})],
    "ListGroups": [(4, {"states_filter": []})],
    "ApiVersions": [(3, {"client_software_name": "x", "client_software_version": "1"})],
    "CreateTopics": [(5, {"timeout_ms": 5_000, "validate_only": False, "topics": [
        {"name": name + "-new", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        for name in NAMES]})],
    "DeleteTopics": [
        (5, {"topic_names": [UNKNOWN, KNOWN + "-other"], "timeout_ms": 5_000}),
        (6, {"topics": [{"name": None, "topic_id": uuid.uuid4()}], "timeout_ms": 5_000}),
    ],
    "DeleteRecords": [(2, {"timeout_ms": 5_000, "topics": [
        {"name": name, "partitions": [{"partition_index": 1, "offset": 0}]} for name in NAMES]})],
    "InitProducerId": [(2, {"transactional_id": None, "transaction_timeout_ms": 1000})],
    "OffsetForLeaderEpoch": [(3, {"replica_id": -1, "topics": [
        {"topic": name, "partitions": [{"partition": 1, "current_leader_epoch": -1, "leader_epoch": 0}]}
        for name in NAMES]})],
    "DescribeConfigs": [(1, {"include_synonyms": False, "resources": [
        {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        for kind, name in ((TOPIC, KNOWN), (TOPIC, UNKNOWN))]}),
        (4, {"include_synonyms": False, "include_documentation": False, "resources": [
        {"resource_type": 32, "resource_name": "g", "configuration_keys": None}]})],
    "AlterConfigs": [(1, {"validate_only": False, "resources": [
        {"resource_type": TOPIC, "resource_name": name, "configs": [{"name": "retention.ms", "value": "86400000"}]}
        for name in NAMES]})],
    "DescribeLogDirs": [(2, {"topics": None}),
        (2, {"topics": [{"topic": name, "partitions": [0, 1]} for name in NAMES]})],
    "CreatePartitions": [(1, {"timeout_ms": 5_000, "validate_only": False, "topics": [
        {"name": name, "count": 5, "assignments": None} for name in NAMES]})],
    "DeleteGroups": [(1, {"groups_names": ["g"]})],
    "ElectLeaders": [(1, {"election_type": 0, "timeout_ms": 5_000, "topic_partitions": wanted})
        for wanted in (None, [{"topic": name, "partitions": [0, 1]} for name in NAMES])],
    "IncrementalAlterConfigs": [
        *((0, alteration(name, retention_ms="86400000")) for name in NAMES),
        (0, {"validate_only": False, "resources": [{"resource_type": 32, "resource_name": "g", "configs": [
        {"name": "consumer.heartbeat.interval.ms", "config_operation": 0, "value": "7000"}]}]}),
    ],
    "AlterPartitionReassignments": [(0, {"timeout_ms": 5_000, "topics": [
        {"name": name, "partitions": [{"partition_index": 0, "replicas": [0]}]} for name in NAMES]})],
    "ListPartitionReassignments": [(0, {"timeout_ms": 5_000, "topics": None})],
    "OffsetDelete": [(0, {"group_id": "g", "topics": [
        {"name": name, "partitions": [{"partition_index": 0}]} for name in NAMES]})],
    "DescribeCluster": [(0, {"include_cluster_authorized_operations": False})],
    "DescribeProducers": [(0, {"topics": [{"name": name, "partition_indexes": [1]} for name in NAMES]})],
    "WriteTxnMarkers": [(1, {"markers": [{"producer_id": 7, "producer_epoch": 0, "transaction_result": True,
        "topics": [{"name": name, "partition_indexes": [1]} for name in NAMES], "coordinator_epoch": 0}]})],
    "ConsumerGroupHeartbeat": [(0, {"group_id": "new", "member_id": "", "member_epoch": 0, "instance_id": None,
        "rack_id": None, "rebalance_timeout_ms": 10_000, "subscribed_topic_names": NAMES,
        "server_assignor": None, "topic_partitions": []})],
    "ConsumerGroupDescribe": [(0, {"group_ids": ["new"], "include_authorized_operations": False})],
    "ListConfigResources": [(0, {}), (1, {"resource_types": []})],
    "DescribeTopicPartitions": [(0, {"topics": topics, "response_partition_limit": 100, "cursor": None})
        for topics in ([], [{"name": name} for name in NAMES])],
    "AddPartitionsToTxn": [(3, {"v3_and_below_transactional_id": "t", "v3_and_below_producer_id": 7,
        "v3_and_below_producer_epoch": 0, "v3_and_below_topics": _PARTITIONS})],
    "AddOffsetsToTxn": [(3, {"transactional_id": "t", "group_id": "g", **_PRODUCER})],
    "EndTxn": [(3, {"transactional_id": "t", "committed": True, **_PRODUCER})],
    "TxnOffsetCommit": [(3, {"transactional_id": "t", "group_id": "g", **_PRODUCER, "generation_id": -1,
        "member_id": "", "group_instance_id": None, "topics": [
        {"name": name, "partitions": [{"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1,
        "committed_metadata": ""}]} for name in NAMES]})],
    "DescribeTransactions": [(0, {"transactional_ids": ["t"]})],
    "ListTransactions": [(0, {"state_filters": [], "producer_id_filters": []})],
    "SaslHandshake": [(1, {"mechanism": "PLAIN"})],
    "SaslAuthenticate": [(1, {"auth_bytes": b""})],
    "DescribeAcls": [(1, _ACL_FILTER)],
    "CreateAcls": [(1, {"creations": [_ACL]})],
    "DeleteAcls": [(1, {"filters": [_ACL_FILTER]})],
    "DescribeClientQuotas": [(0, {"components": [], "strict": False})],
    "AlterClientQuotas": [(0, {"entries": [_QUOTA], "validate_only": False})],
    "DescribeUserScramCredentials": [(0, {"users": [{"name": "a"}]})],
    "AlterUserScramCredentials": [(0, {"deletions": [{"name": "a", "mechanism": 1}], "upsertions": []})],
}  # fmt: skip
