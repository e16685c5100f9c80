"""Pulsar's admin API fails, its brokers do not: every request is answered in time, and what is configured is applied.

A failing part is a row with an error, or an answer with one; no connection is closed for it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from deploy.local.standalone import PulsarStandalone
from gateway.handlers.table import APIS
from tests.conformance.records import Record, batch
from tests.integration.admin_proxy import AdminProxy
from tests.integration.native import Admin, wait_for
from tests.integration.servers import gateway_on, running
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import RawClient

TOPIC, TIMEOUT_S = 2, 20.0
METADATA_TIMEOUT_MS = 500
REQUEST_TIMED_OUT, TOPIC_ALREADY_EXISTS = 7, 36
_SET = 0


class Scene(NamedTuple):
    gateway: GatewayProcess
    proxy: AdminProxy
    admin: Admin


@pytest.fixture(scope="module")
def scene(pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    namespace, work_dir = unique_topic("outage"), tmp_path_factory.mktemp("outage")
    with AdminProxy(pulsar.admin_url).running() as proxy:
        sections: dict[str, dict[str, Any]] = {
            "pulsar": {"namespace": namespace, "admin_url": proxy.url, "operation_timeout_ms": 3_000,
                "request_timeout_ms": 2_000, "connect_timeout_ms": 1_000},
            "limits": {"metadata_timeout_ms": METADATA_TIMEOUT_MS, "metadata_max_age_ms": 100},
        }
        with running(gateway_on(pulsar, work_dir, **sections)) as gateway:
            yield Scene(gateway, proxy, Admin(pulsar, f"kafka/{namespace}"))


@pytest.fixture
def client(scene: Scene) -> Iterator[RawClient]:
    client = RawClient(scene.gateway.bootstrap, timeout_s=TIMEOUT_S)
    yield client
    client.close()
    scene.proxy.passes = lambda method, path: True


def create(client: RawClient, name: str, **configs: str) -> None:
    topic = {
        "name": name, "num_partitions": 2, "replication_factor": 1, "assignments": [],
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }  # fmt: skip


    def is_created() -> bool:
        """The gateway waits half a second for Pulsar, which a busy machine may need: asked again, the topic exists."""
        (row,) = client.call("CreateTopics", 5, topics=[topic], timeout_ms=5_000, validate_only=False)["topics"]
        assert row["error_code"] in {0, REQUEST_TIMED_OUT, TOPIC_ALREADY_EXISTS}, row
        return bool(row["error_code"] != REQUEST_TIMED_OUT)

    wait_for(is_created, "the topic is created")


def alteration(name: str, **configs: str) -> dict[str, Any]:
    entries = [
        {"name": key.replace("_", "."), "config_operation": _SET, "value": value} for key, value in configs.items()
    ]
    return {
        "resources": [{"resource_type": TOPIC, "resource_name": name, "configs": entries}],
        "validate_only": False,
    }


def requests(known: str, unknown: str) -> dict[str, list[tuple[int, dict[str, Any]]]]:
    """Of each API, about a topic that the gateway knows and one that it does not."""
    names = [known, unknown]
    group, member = "g", ""
    record = batch([Record(b"x")], 0)
    alter = [alteration(name, retention_ms="86400000") for name in names]
    return {
        "Produce": [(9, {"transactional_id": None, "acks": -1, "timeout_ms": 5_000, "topic_data": [
            {"name": name, "partition_data": [{"index": 0, "records": record}]} for name in names]})],
        "Fetch": [(11, {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1000, "isolation_level": 0,
            "session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": "", "topics": [
            {"topic": name, "partitions": [{"partition": 1, "fetch_offset": 0, "partition_max_bytes": 1000}]}
            for name in names]})],
        "ListOffsets": [(6, {"replica_id": -1, "isolation_level": 0, "topics": [
            {"name": name, "partitions": [{"partition_index": 1, "timestamp": at}]}
            for name in names for at in (-1, -2, 5)]})],
        "Metadata": [
            (9, {"topics": None}), (9, {"topics": [{"name": name} for name in names]}),
            (12, {"topics": [{"topic_id": uuid.uuid4(), "name": None}]}),
        ],
        "OffsetCommit": [(8, {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "",
            "group_instance_id": None, "topics": [
            {"name": name, "partitions": [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]}
            for name in names]})],
        "OffsetFetch": [(7, {"group_id": group, "require_stable": False, "topics": [
            {"name": name, "partition_indexes": [0, 1]} for name in names]})],
        "FindCoordinator": [(3, {"key": group, "key_type": 0})],
        "JoinGroup": [(5, {"group_id": group, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000,
            "member_id": member, "group_instance_id": None, "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}]})],
        "Heartbeat": [(3, {"group_id": group, "generation_id": 1, "member_id": "m", "group_instance_id": None})],
        "LeaveGroup": [(4, {"group_id": group, "members": [{"member_id": "m", "group_instance_id": None}]})],
        "SyncGroup": [(4, {"group_id": group, "generation_id": 1, "member_id": "m", "group_instance_id": None,
            "assignments": []})],
        "DescribeGroups": [(5, {"groups": [group], "include_authorized_operations": False})],
        "ListGroups": [(4, {"states_filter": []})],
        "ApiVersions": [(3, {"client_software_name": "x", "client_software_version": "1"})],
        "CreateTopics": [(5, {"timeout_ms": 5_000, "validate_only": False, "topics": [
            {"name": name + "-new", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
            for name in names]})],
        "DeleteTopics": [
            (5, {"topic_names": [unknown, known + "-other"], "timeout_ms": 5_000}),
            (6, {"topics": [{"name": None, "topic_id": uuid.uuid4()}], "timeout_ms": 5_000}),
        ],
        "DeleteRecords": [(2, {"timeout_ms": 5_000, "topics": [
            {"name": name, "partitions": [{"partition_index": 1, "offset": 0}]} for name in names]})],
        "InitProducerId": [(2, {"transactional_id": None, "transaction_timeout_ms": 1000})],
        "OffsetForLeaderEpoch": [(3, {"replica_id": -1, "topics": [
            {"topic": name, "partitions": [{"partition": 1, "current_leader_epoch": -1, "leader_epoch": 0}]}
            for name in names]})],
        "DescribeConfigs": [(1, {"include_synonyms": False, "resources": [
            {"resource_type": kind, "resource_name": name, "configuration_keys": None}
            for kind, name in ((TOPIC, known), (TOPIC, unknown))]}),
            (4, {"include_synonyms": False, "include_documentation": False, "resources": [
            {"resource_type": 32, "resource_name": "g", "configuration_keys": None}]})],
        "AlterConfigs": [(1, {"validate_only": False, "resources": [
            {"resource_type": TOPIC, "resource_name": name, "configs": [{"name": "retention.ms", "value": "86400000"}]}
            for name in names]})],
        "DescribeLogDirs": [(2, {"topics": None}),
            (2, {"topics": [{"topic": name, "partitions": [0, 1]} for name in names]})],
        "CreatePartitions": [(1, {"timeout_ms": 5_000, "validate_only": False, "topics": [
            {"name": name, "count": 5, "assignments": None} for name in names]})],
        "DeleteGroups": [(1, {"groups_names": [group]})],
        "ElectLeaders": [(1, {"election_type": 0, "timeout_ms": 5_000, "topic_partitions": wanted})
            for wanted in (None, [{"topic": name, "partitions": [0, 1]} for name in names])],
        "IncrementalAlterConfigs": [(0, each) for each in alter] + [(0, {"validate_only": False, "resources": [
            {"resource_type": 32, "resource_name": "g", "configs": [
            {"name": "consumer.heartbeat.interval.ms", "config_operation": 0, "value": "7000"}]}]})],
        "AlterPartitionReassignments": [(0, {"timeout_ms": 5_000, "topics": [
            {"name": name, "partitions": [{"partition_index": 0, "replicas": [0]}]} for name in names]})],
        "ListPartitionReassignments": [(0, {"timeout_ms": 5_000, "topics": None})],
        "OffsetDelete": [(0, {"group_id": group, "topics": [
            {"name": name, "partitions": [{"partition_index": 0}]} for name in names]})],
        "DescribeCluster": [(0, {"include_cluster_authorized_operations": False})],
        "DescribeProducers": [(0, {"topics": [{"name": name, "partition_indexes": [1]} for name in names]})],
        "WriteTxnMarkers": [(1, {"markers": [{"producer_id": 7, "producer_epoch": 0, "transaction_result": True,
            "topics": [{"name": name, "partition_indexes": [1]} for name in names], "coordinator_epoch": 0}]})],
        "ConsumerGroupHeartbeat": [(0, {"group_id": "new", "member_id": "", "member_epoch": 0, "instance_id": None,
            "rack_id": None, "rebalance_timeout_ms": 10_000, "subscribed_topic_names": names,
            "server_assignor": None, "topic_partitions": []})],
        "ConsumerGroupDescribe": [(0, {"group_ids": ["new"], "include_authorized_operations": False})],
        "ListConfigResources": [(0, {}), (1, {"resource_types": []})],
        "DescribeTopicPartitions": [(0, {"topics": topics, "response_partition_limit": 100, "cursor": None})
            for topics in ([], [{"name": name} for name in names])],
    }  # fmt: skip


def requests_of_transactions(known: str, unknown: str) -> dict[str, list[tuple[int, dict[str, Any]]]]:
    names, producer = [known, unknown], {"producer_id": 7, "producer_epoch": 0}
    topics = [{"name": name, "partitions": [0, 1]} for name in names]
    return {
        "AddPartitionsToTxn": [(3, {"v3_and_below_transactional_id": "t", "v3_and_below_producer_id": 7,
            "v3_and_below_producer_epoch": 0, "v3_and_below_topics": topics})],
        "AddOffsetsToTxn": [(3, {"transactional_id": "t", "group_id": "g", **producer})],
        "EndTxn": [(3, {"transactional_id": "t", "committed": True, **producer})],
        "TxnOffsetCommit": [(3, {"transactional_id": "t", "group_id": "g", **producer, "generation_id": -1,
            "member_id": "", "group_instance_id": None, "topics": [
            {"name": name, "partitions": [{"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1,
            "committed_metadata": ""}]} for name in names]})],
        "DescribeTransactions": [(0, {"transactional_ids": ["t"]})],
        "ListTransactions": [(0, {"state_filters": [], "producer_id_filters": []})],
    }  # fmt: skip


def requests_of_rights(known: str) -> dict[str, list[tuple[int, dict[str, Any]]]]:
    acl = {"resource_type": TOPIC, "resource_name": known, "resource_pattern_type": 3, "principal": "User:a",
        "host": "*", "operation": 3, "permission_type": 3}  # fmt: skip
    acl_filter = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
        "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}  # fmt: skip
    quota = {"entity": [{"entity_type": "user", "entity_name": "a"}],
        "ops": [{"key": "producer_byte_rate", "value": 1e6, "remove": False}]}  # fmt: skip
    return {
        "SaslHandshake": [(1, {"mechanism": "PLAIN"})],
        "SaslAuthenticate": [(1, {"auth_bytes": b""})],
        "DescribeAcls": [(1, acl_filter)],
        "CreateAcls": [(1, {"creations": [acl]})],
        "DeleteAcls": [(1, {"filters": [acl_filter]})],
        "DescribeClientQuotas": [(0, {"components": [], "strict": False})],
        "AlterClientQuotas": [(0, {"entries": [quota], "validate_only": False})],
        "DescribeUserScramCredentials": [(0, {"users": [{"name": "a"}]})],
        "AlterUserScramCredentials": [(0, {"deletions": [{"name": "a", "mechanism": 1}], "upsertions": []})],
    }


@pytest.mark.parametrize("api", [api.name for api in APIS.values()])
def test_every_request_is_answered_in_time(scene: Scene, client: RawClient, api: str) -> None:
    """On the connection that it came by, which then goes on."""
    known, unknown = unique_topic("known"), unique_topic("unknown")
    create(client, known)
    client.call("Metadata", 9, topics=None)
    scene.proxy.passes = lambda method, path: False
    asked = requests(known, unknown) | requests_of_transactions(known, unknown) | requests_of_rights(known)
    for version, fields in asked[api]:
        client.call(api, version, **fields)
    client.call("ApiVersions", 0)


def test_all_topics_are_as_they_were_listed(scene: Scene, client: RawClient) -> None:
    names = {unique_topic("listed") for _ in range(3)}
    for name in names:
        create(client, name)
    scene.proxy.passes = lambda method, path: False
    for _ in range(2):
        listed = client.call("Metadata", 9, topics=None)["topics"]
        assert names <= {row["name"] for row in listed if row["error_code"] == 0}


def test_one_topic_that_fails_is_one_row(scene: Scene, client: RawClient) -> None:
    """A topic that the gateway has not seen before."""
    bad, good = unique_topic("bad"), unique_topic("good")
    scene.proxy.passes = lambda method, path: bad not in path
    for name in (bad, good):
        scene.admin.create_partitioned(name, 2)

    def rows() -> dict[str, int]:
        return {row["name"]: row["error_code"] for row in client.call("Metadata", 9, topics=None)["topics"]}

    wait_for(lambda: good in rows(), "the topic is listed")
    assert (rows()[good], rows()[bad]) == (0, 5)
    scene.proxy.passes = lambda method, path: True
    wait_for(lambda: rows()[bad] == 0, "the topic can be looked up")


def test_configurations_are_applied_when_pulsar_is_back(scene: Scene, client: RawClient) -> None:
    """The client was told of a failure, or left; a gateway that was killed in between is replaced by another one."""
    topic = unique_topic("configured")
    create(client, topic)
    scene.proxy.passes = lambda method, path: not path.endswith("/retention")
    answer = client.call("IncrementalAlterConfigs", 0, **alteration(topic, retention_ms="86400000"))
    assert answer["responses"][0]["error_code"] != 0
    scene.gateway.kill()
    scene.proxy.passes = lambda method, path: True
    assert scene.admin.topic("GET", topic, "/retention") is None
    scene.gateway.start()
    scene.gateway.wait_ready()
    again = RawClient(scene.gateway.bootstrap)
    try:
        again.call("Metadata", 9, topics=[{"name": topic}])
        expected = {"retentionTimeInMinutes": 1440, "retentionSizeInMB": -1}
        wait_for(lambda: scene.admin.topic("GET", topic, "/retention") == expected, "the policy is that of the topic")
        wait_for(lambda: scene.admin.topic("GET", topic, "/messageTTL") == 86_400, "so is the other one")
        wait_for(lambda: not any("pending" in key for key in properties(scene, topic)), "nothing is left to be done")
    finally:
        again.close()


def properties(scene: Scene, topic: str) -> dict[str, str]:
    found: dict[str, str] = scene.admin.topic("GET", topic, "/partitions")["properties"]
    return found
