"""ACLs: their APIs, and what they let a client do with every other API, on servers with an authorizer.

Both servers leave open what has no ACL (`allow.everyone.if.no.acl.found`), so that the one client that there is,
`User:ANONYMOUS`, can make the topics and the ACLs of the cases.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from deploy.local.kafka import KafkaBroker
from deploy.local.standalone import PulsarStandalone
from tests.conformance.conversation import READY_WITHIN_S, Conversation, Pair, Server, case
from tests.conformance.records import records
from tests.conformance.requests import encode_records, fetch_fields, fetch_partition, native_magic, produce_fields
from tests.integration.servers import gateway_on, running

ME = "User:ANONYMOUS"
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS = range(2, 12)
DENY, ALLOW = 2, 3
CLUSTER_DENIED_CODE = 31
ACL_VERSIONS = range(4)
KAFKA_SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:root",
    "group.coordinator.rebalance.protocols": "classic,consumer",
}


@pytest.fixture(scope="module")
def pair(pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    authorization = {"authorizer": "acl", "allow_everyone_if_no_acl_found": True, "super_users": ["User:root"]}
    run = uuid.uuid4().hex[:6]
    with (
        running(KafkaBroker(tmp_path_factory.mktemp("kafka"), settings=KAFKA_SETTINGS)) as kafka,
        running(
            gateway_on(
                pulsar, tmp_path_factory.mktemp("gateway"), pulsar={"namespace": f"acls-{run}"},
                authorization=authorization,
            )
        ) as gateway,
    ):  # fmt: skip
        yield Pair(
            Server("kafka", kafka.bootstrap, f"c{run}k-"), Server("gateway", gateway.bootstrap, f"c{run}g-"),
            apply_table=False,
        )  # fmt: skip


def acl(name: str, operation: int, permission: int = ALLOW, **more: Any) -> dict[str, Any]:
    """Of a topic, if nothing else is said."""
    return {
        "resource_type": TOPIC, "resource_name": name, "resource_pattern_type": LITERAL, "principal": ME, "host": "*",
        "operation": operation, "permission_type": permission,
    } | more  # fmt: skip


def acl_filter(name: str | None = None, **more: Any) -> dict[str, Any]:
    """All ACLs of all resources, if nothing else is said."""
    return {
        "resource_type_filter": ANY, "resource_name_filter": name, "pattern_type_filter": ANY,
        "principal_filter": None, "host_filter": None, "operation": ANY, "permission_type": ANY,
    } | more  # fmt: skip


def create(conversation: Conversation, *wanted: dict[str, Any]) -> None:
    """Not compared. Kafka's broker hears from its controller a moment later that there is a new ACL."""
    answer = conversation.client.call("CreateAcls", 3, creations=list(wanted))
    assert not any(row["error_code"] for row in answer["results"]), answer
    for each in wanted:
        await_acls(conversation, each["resource_name"], {each["operation"]}.issubset)


def await_acls(conversation: Conversation, name: str, holds: Callable[[set[int]], bool]) -> None:
    """Until the operations of a resource's ACLs are these."""
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        answer = conversation.client.call("DescribeAcls", 3, **acl_filter(name))
        if answer["error_code"] == CLUSTER_DENIED_CODE and name == "kafka-cluster":
            return  # it may not be looked at any more
        if holds({row["operation"] for resource in answer["resources"] for row in resource["acls"]}):
            return
        time.sleep(0.02)
    raise AssertionError(answer)


def name_of(conversation: Conversation, kind: str) -> str:
    """One that nobody else uses."""
    return f"{conversation.names.prefix}{kind}-{uuid.uuid4()}"


# The APIs of ACLs


def sorted_answer(conversation: Conversation) -> None:
    """ACLs come in any order."""
    answer = conversation.answers[-1]
    for row in answer.get("DescribeAcls", {}).get("resources", []):
        row["acls"].sort(key=repr)
    answer.get("DescribeAcls", {}).get("resources", []).sort(key=repr)
    for row in answer.get("DeleteAcls", {}).get("filter_results", []):
        row["matching_acls"].sort(key=repr)


@case("CreateAcls", ACL_VERSIONS)
def test_acls_are_made_described_and_deleted(conversation: Conversation, version: int) -> None:
    name = name_of(conversation, "acl")
    wanted = [
        acl(name, READ), acl(name, WRITE, DENY, host="10.0.0.1"), acl(name, READ),
        acl(name, ALL, resource_pattern_type=PREFIXED, principal="User:ann"),
        acl(name, DESCRIBE, resource_type=GROUP, principal="User:*"),
        acl(name, WRITE, resource_type=TRANSACTIONAL_ID),
    ]  # fmt: skip
    conversation.call("CreateAcls", version, creations=wanted)
    await_acls(conversation, name, lambda found: len(found) == 4)
    more = name + "-and-more"
    filters = [
        acl_filter(name), acl_filter(more, pattern_type_filter=MATCH), acl_filter(name, resource_type_filter=GROUP),
        acl_filter(name, pattern_type_filter=PREFIXED), acl_filter(name, principal_filter=ME),
        acl_filter(name, host_filter="10.0.0.1"), acl_filter(name, operation=READ),
        acl_filter(name, permission_type=DENY), acl_filter(more), acl_filter(name, principal_filter=""),
    ]  # fmt: skip
    for each in filters:
        conversation.call("DescribeAcls", version, **each)
        sorted_answer(conversation)
    conversation.call("DeleteAcls", version, filters=filters[2:5])
    sorted_answer(conversation)
    await_acls(conversation, name, lambda found: ALL not in found)
    conversation.call("DescribeAcls", version, **filters[0])
    sorted_answer(conversation)
    conversation.call("DeleteAcls", version, filters=[acl_filter(name), acl_filter(name)])
    sorted_answer(conversation)
    conversation.call("DeleteAcls", version, filters=[])
    conversation.call("CreateAcls", version, creations=[])


@case("CreateAcls", ACL_VERSIONS)
@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_name": ""}, {"resource_type": CLUSTER}, {"resource_type": 99}, {"resource_pattern_type": 99},
        {"operation": 99}, {"permission_type": 99}, {"resource_type": 0}, {"resource_pattern_type": 0},
        {"operation": 0}, {"permission_type": 0}, {"resource_type": ANY}, {"resource_pattern_type": ANY},
        {"resource_pattern_type": MATCH}, {"operation": ANY}, {"permission_type": ANY},
    ],
    ids=str,
)  # fmt: skip
def test_acls_that_are_none(conversation: Conversation, version: int, wrong: dict[str, Any]) -> None:
    name = name_of(conversation, "wrong")
    conversation.call("CreateAcls", version, creations=[acl(name, READ) | wrong, acl(name, WRITE) | wrong])


@case("DescribeAcls", ACL_VERSIONS)
@pytest.mark.parametrize("field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"])
@pytest.mark.parametrize("code", [0, 99])
def test_filters_of_nothing_known(conversation: Conversation, version: int, field: str, code: int) -> None:
    conversation.call("DescribeAcls", version, **acl_filter("x", **{field: code}))


@case("DeleteAcls", ACL_VERSIONS)
@pytest.mark.parametrize("field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"])
@pytest.mark.parametrize("code", [0, 99])
def test_deletions_of_nothing_known(conversation: Conversation, version: int, field: str, code: int) -> None:
    conversation.call("DeleteAcls", version, filters=[acl_filter("x", **{field: code})])


# Records


def two_topics(conversation: Conversation, kind: str) -> tuple[str, str]:
    """One where all is allowed, and one where all is denied."""
    allowed, denied = conversation.topic(f"{kind}-allowed"), conversation.topic(f"{kind}-denied")
    conversation.start_here(allowed)
    create(conversation, acl(denied, ALL, DENY))
    return allowed, denied


def without_acls(conversation: Conversation, name: str) -> None:
    """So that the next case may prepare the topic."""
    conversation.client.call("DeleteAcls", 3, filters=[acl_filter(name)])
    await_acls(conversation, name, lambda found: not found)


@case("Produce")
@pytest.mark.parametrize("acks", [-1, 0])
def test_produce(conversation: Conversation, version: int, acks: int) -> None:
    allowed, denied = two_topics(conversation, "produce")
    data = encode_records(records(2), native_magic(version))
    try:
        fields = produce_fields(version, {denied: {0: data, 5: data}, allowed: {0: data}}, acks=acks)
        if acks:
            conversation.call("Produce", version, **fields)
            conversation.call("Produce", version, **produce_fields(version, {denied: {0: data}}))
        else:
            conversation.client.send("Produce", version, **fields)
            conversation.outcome()
    finally:
        conversation.client = conversation.connect()
        without_acls(conversation, denied)


@case("Produce", [3, 11])
def test_produce_of_a_topic_that_is_not_there(conversation: Conversation, version: int) -> None:
    name = name_of(conversation, "nothing")
    create(conversation, acl(name, READ))
    data = encode_records(records(1), 2)
    conversation.call("Produce", version, **produce_fields(version, {name: {0: data}}))


def fetched(conversation: Conversation, version: int, *names: str, **more: Any) -> None:
    topics = [
        ({"topic_id": conversation.topic_id(name)} if version >= 13 else {"topic": conversation.names.prefix + name})
        | {"partitions": [fetch_partition(version, 0, 0)]}
        for name in names
    ]
    conversation.call("Fetch", version, **fetch_fields(version, topics, **more))


@case("Fetch")
def test_fetch(conversation: Conversation, version: int) -> None:
    names = ("fetch-allowed", "fetch-denied")
    for name in names:
        conversation.topic(name)
        conversation.topic_id(name)
    _, denied = two_topics(conversation, "fetch")
    conversation.names.start_offset = 0
    try:
        fetched(conversation, version, *names)
        fetched(conversation, version, "fetch-denied", max_wait_ms=100, min_bytes=1)
        if version >= 7:
            fetched(conversation, version, *names, session=(0, 0))
    finally:
        without_acls(conversation, denied)


@case("ListOffsets")
def test_list_offsets(conversation: Conversation, version: int) -> None:
    allowed, denied = two_topics(conversation, "offsets")
    rows = [{"partition_index": number, "timestamp": -1} for number in (0, 3)]
    if version == 0:
        rows = [row | {"max_num_offsets": 1} for row in rows]
    asked = [{"name": name, "partitions": rows} for name in (denied, allowed)]
    try:
        more = {"isolation_level": 0} if version >= 2 else {}
        conversation.call("ListOffsets", version, replica_id=-1, topics=asked, **more)
        conversation.call("ListOffsets", version, replica_id=-1, topics=asked[:1], **more)
    finally:
        without_acls(conversation, denied)


def by_partition(conversation: Conversation, kind: str, api: str, version: int, **row: Any) -> None:
    allowed, denied = two_topics(conversation, kind)
    asked = [{"name": name, "partitions": [row]} for name in (denied, allowed)]
    try:
        conversation.call(api, version, topics=asked, timeout_ms=5_000)
        conversation.call(api, version, topics=asked[:1], timeout_ms=5_000)
    finally:
        without_acls(conversation, denied)


@case("DeleteRecords")
def test_delete_records(conversation: Conversation, version: int) -> None:
    by_partition(conversation, "records", "DeleteRecords", version, partition_index=0, offset=0)


@case("OffsetForLeaderEpoch", range(2, 5))
def test_offset_for_leader_epoch(conversation: Conversation, version: int) -> None:
    _, denied = two_topics(conversation, "epochs")
    row = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    more = {"replica_id": -1} if version >= 3 else {}
    try:
        conversation.call("OffsetForLeaderEpoch", version, topics=[{"topic": denied, "partitions": [row]}], **more)
    finally:
        without_acls(conversation, denied)


@case("DescribeProducers")
def test_describe_producers(conversation: Conversation, version: int) -> None:
    allowed, denied = two_topics(conversation, "producers")
    asked = [{"name": name, "partition_indexes": [0, 7]} for name in (denied, allowed)]
    try:
        conversation.call("DescribeProducers", version, topics=asked)
    finally:
        without_acls(conversation, denied)


# Topics


def only_of(conversation: Conversation, kind: str) -> None:
    for api in ("Metadata", "DescribeTopicPartitions"):
        if api in conversation.answers[-1]:
            noted = conversation.answers[-1][api]
            noted["topics"] = [row for row in noted["topics"] if (row["name"] or "").startswith(f"<run>{kind}")]


@case("Metadata")
def test_metadata(conversation: Conversation, version: int) -> None:
    for name in ("metadata-allowed", "metadata-denied"):
        conversation.topic(name)
        conversation.topic_id(name)
    allowed, denied = two_topics(conversation, "metadata")
    missing = name_of(conversation, "missing")
    create(conversation, acl(missing, READ), deny_all_of_cluster(CREATE))
    more: dict[str, Any] = {"allow_auto_topic_creation": True} if version >= 4 else {}
    if version >= 8:
        more["include_topic_authorized_operations"] = True
    if 8 <= version <= 10:
        more["include_cluster_authorized_operations"] = True
    try:
        conversation.call("Metadata", version, topics=[{"name": each} for each in (denied, allowed, missing)], **more)
        conversation.call("Metadata", version, topics=[{"name": denied}], **more)
        conversation.call("Metadata", version, topics=[] if version == 0 else None, **more)
        only_of(conversation, "metadata")
        if version >= 12:
            ids = [
                {"name": None, "topic_id": conversation.topic_id(f"metadata-{each}")} for each in ("denied", "allowed")
            ]
            conversation.call("Metadata", version, topics=ids, **more)
    finally:
        open_cluster(conversation)
        without_acls(conversation, denied)


@case("DescribeTopicPartitions")
def test_describe_topic_partitions(conversation: Conversation, version: int) -> None:
    for name in ("pages-allowed", "pages-denied"):
        conversation.topic(name)
        conversation.topic_id(name)
    allowed, denied = two_topics(conversation, "pages")
    try:
        for names in ([denied, allowed], [denied], []):
            conversation.call(
                "DescribeTopicPartitions", version, topics=[{"name": name} for name in names],
                response_partition_limit=2_000, cursor=None,
            )  # fmt: skip
            only_of(conversation, "pages")
    finally:
        without_acls(conversation, denied)


@case("CreateTopics")
def test_create_topics(conversation: Conversation, version: int) -> None:
    denied, undescribed, twice = (name_of(conversation, kind) for kind in ("denied", "undescribed", "twice"))
    create(conversation, acl(denied, READ), acl(twice, READ), acl(undescribed, CREATE), deny_all_of_cluster(CREATE))
    wanted = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    try:
        topics = [{"name": name} | wanted for name in (denied, undescribed, twice, twice)]
        conversation.call("CreateTopics", version, topics=topics, timeout_ms=10_000)
        conversation.call("CreateTopics", version, topics=topics[:1], timeout_ms=10_000)
    finally:
        open_cluster(conversation)


def deny_all_of_cluster(operation: int) -> dict[str, Any]:
    return acl("kafka-cluster", operation, DENY, resource_type=CLUSTER)


ALL_OF_CLUSTER = acl("kafka-cluster", ALL, resource_type=CLUSTER)
"""An ACL of the cluster takes all other rights in it: also Kafka's own, whose broker and controller are anonymous."""


@pytest.fixture(scope="module", autouse=True)
def _cluster_is_open(pair: Pair) -> None:
    for server in (pair.kafka, pair.gateway):
        conversation = Conversation(server)
        deadline = time.monotonic() + READY_WITHIN_S
        while True:
            answer = conversation.client.call("CreateAcls", 3, creations=[ALL_OF_CLUSTER])
            if not answer["results"][0]["error_code"] or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        await_acls(conversation, "kafka-cluster", lambda found: ALL in found)
        conversation.settle("FindCoordinator", 0, key="group")
        conversation.settle("OffsetFetch", 5, group_id="group", topics=[])
        conversation.close()


def open_cluster(conversation: Conversation) -> None:
    denials = acl_filter("kafka-cluster", permission_type=DENY)
    conversation.client.call("DeleteAcls", 3, filters=[denials])
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        answer = conversation.client.call("DescribeAcls", 3, **acl_filter("kafka-cluster"))
        if not answer["error_code"] and sum(len(row["acls"]) for row in answer["resources"]) == 1:
            return
        time.sleep(0.02)
    raise AssertionError(answer)


@case("DeleteTopics")
def test_delete_topics(conversation: Conversation, version: int) -> None:
    kinds = ("kept", "hidden")
    for kind in kinds:
        conversation.topic(kind)
        conversation.topic_id(kind)
    kept, hidden = (conversation.names.prefix + kind for kind in kinds)
    create(conversation, acl(kept, DESCRIBE), acl(hidden, CREATE), deny_all_of_cluster(DELETE))
    missing = name_of(conversation, "missing")
    create(conversation, acl(missing, CREATE))
    names = [kept, hidden, missing]
    try:
        if version < 6:
            conversation.call("DeleteTopics", version, topic_names=names, timeout_ms=10_000)
        else:
            no_id = uuid.UUID(int=0)
            rows = [{"name": name, "topic_id": no_id} for name in names]
            rows += [{"name": None, "topic_id": conversation.topic_id(kind)} for kind in kinds]
            for each in (rows[:3], rows[3:]):
                conversation.call("DeleteTopics", version, topics=each, timeout_ms=10_000)
    finally:
        open_cluster(conversation)
        for name in names:
            without_acls(conversation, name)


@case("CreatePartitions")
def test_create_partitions(conversation: Conversation, version: int) -> None:
    _, denied = two_topics(conversation, "partitions")
    rows = [{"name": name, "count": 3, "assignments": None} for name in (denied, denied + "-other")]
    create(conversation, acl(denied + "-other", READ))
    try:
        conversation.call("CreatePartitions", version, topics=rows, timeout_ms=10_000, validate_only=False)
    finally:
        without_acls(conversation, denied)


# Configurations and the cluster


@case("DescribeConfigs")
def test_describe_configs(conversation: Conversation, version: int) -> None:
    _, denied = two_topics(conversation, "configs")
    create(conversation, deny_all_of_cluster(DESCRIBE_CONFIGS))
    rows = [{"resource_type": kind, "resource_name": name, "configuration_keys": None} for kind, name in (
        (2, denied), (4, "7"), (4, ""), (8, "7"), (16, "x"),
    )]  # fmt: skip
    try:
        conversation.call("DescribeConfigs", version, resources=rows)
    finally:
        open_cluster(conversation)
        without_acls(conversation, denied)


@case("AlterConfigs")
def test_alter_configs(conversation: Conversation, version: int) -> None:
    _, denied = two_topics(conversation, "altered")
    create(conversation, deny_all_of_cluster(ALTER_CONFIGS))
    config = [{"name": "retention.ms", "value": "100000"}]
    rows = [{"resource_type": kind, "resource_name": name, "configs": config} for kind, name in ((2, denied), (4, ""))]
    try:
        conversation.call("AlterConfigs", version, resources=rows, validate_only=False)
    finally:
        open_cluster(conversation)
        without_acls(conversation, denied)


@case("IncrementalAlterConfigs")
def test_incremental_alter_configs(conversation: Conversation, version: int) -> None:
    _, denied = two_topics(conversation, "incremental")
    create(conversation, deny_all_of_cluster(ALTER_CONFIGS))
    config = [{"name": "retention.ms", "config_operation": 0, "value": "100000"}]
    rows = [{"resource_type": kind, "resource_name": name, "configs": config} for kind, name in ((2, denied), (4, ""))]
    try:
        conversation.call("IncrementalAlterConfigs", version, resources=rows, validate_only=False)
    finally:
        open_cluster(conversation)
        without_acls(conversation, denied)


CLUSTER_DENIED: list[tuple[str, int, list[int], dict[str, Any]]] = [
    ("DescribeLogDirs", DESCRIBE, [0, 1, 2, 3, 4], {"topics": None}),
    ("ListPartitionReassignments", DESCRIBE, [0], {"timeout_ms": 1_000, "topics": None}),
    ("DescribeCluster", DESCRIBE, [0, 1], {"include_cluster_authorized_operations": True}),
    ("Metadata", DESCRIBE, [8, 9, 10], {"topics": [], "include_cluster_authorized_operations": True}),
    ("ListConfigResources", DESCRIBE_CONFIGS, [0], {}),
]


@pytest.mark.parametrize(
    ("api", "operation", "version", "fields"),
    [(api, operation, version, fields) for api, operation, versions, fields in CLUSTER_DENIED for version in versions],
    ids=[f"{api}-v{version}" for api, _, versions, _ in CLUSTER_DENIED for version in versions],
)
def test_what_concerns_the_cluster(pair: Pair, api: str, operation: int, version: int, fields: dict[str, Any]) -> None:
    def script(conversation: Conversation) -> None:
        create(conversation, deny_all_of_cluster(operation))
        asked = dict(fields)
        if api == "Metadata":
            asked["allow_auto_topic_creation"] = False
        try:
            conversation.call(api, version, **asked)
        finally:
            open_cluster(conversation)

    pair.check(f"{api} v{version}", script)


@case("InitProducerId")
def test_init_producer_id(conversation: Conversation, version: int) -> None:
    """Who may write to some topic may be idempotent."""
    everything = acl("*", WRITE, DENY)
    create(conversation, deny_all_of_cluster(12))
    fields = {"transactional_id": None, "transaction_timeout_ms": 60_000}
    try:
        conversation.settle("InitProducerId", version, **fields)
        create(conversation, everything)
        conversation.settle("InitProducerId", version, **fields)
        denied = name_of(conversation, "transaction")
        create(conversation, acl(denied, READ, resource_type=TRANSACTIONAL_ID))
        conversation.settle("InitProducerId", version, **(fields | {"transactional_id": denied}))
    finally:
        open_cluster(conversation)
        without_acls(conversation, "*")


# Groups


def denied_group(conversation: Conversation, operation: int = CREATE) -> str:
    """A group with this right alone; Create means nothing to groups."""
    group = name_of(conversation, f"group-{operation}")
    create(conversation, acl(group, operation, resource_type=GROUP))
    return group


@case("FindCoordinator")
def test_find_coordinator(conversation: Conversation, version: int) -> None:
    group = denied_group(conversation)
    transactional_id = name_of(conversation, "transaction")
    create(conversation, acl(transactional_id, READ, resource_type=TRANSACTIONAL_ID, permission_type=DENY))
    for key_type, key in ((0, group), (1, transactional_id)):
        if version == 0 and key_type:
            continue
        asked: dict[str, Any] = {"key": key} if version < 4 else {"coordinator_keys": [key]}
        conversation.call("FindCoordinator", version, **(asked | ({"key_type": key_type} if version else {})))


@case("JoinGroup")
def test_join_group(conversation: Conversation, version: int) -> None:
    fields: dict[str, Any] = {
        "group_id": denied_group(conversation), "session_timeout_ms": 30_000, "member_id": "m",
        "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}],
    }  # fmt: skip
    if version >= 1:
        fields["rebalance_timeout_ms"] = 30_000
    conversation.call("JoinGroup", version, **fields)


@case("SyncGroup")
def test_sync_group(conversation: Conversation, version: int) -> None:
    group = denied_group(conversation)
    more = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    conversation.call("SyncGroup", version, group_id=group, generation_id=1, member_id="m", assignments=[], **more)


@case("Heartbeat")
def test_heartbeat(conversation: Conversation, version: int) -> None:
    conversation.call("Heartbeat", version, group_id=denied_group(conversation), generation_id=1, member_id="m")


@case("LeaveGroup")
def test_leave_group(conversation: Conversation, version: int) -> None:
    group = denied_group(conversation)
    member = {"member_id": "m"} if version < 3 else {"members": [{"member_id": "m", "group_instance_id": None}]}
    conversation.call("LeaveGroup", version, group_id=group, **member)


@case("DescribeGroups")
def test_describe_groups(conversation: Conversation, version: int) -> None:
    more = {"include_authorized_operations": True} if version >= 3 else {}
    groups = [denied_group(conversation), denied_group(conversation, DESCRIBE)]
    conversation.settle("DescribeGroups", version, groups=groups, **more)


@case("DeleteGroups")
def test_delete_groups(conversation: Conversation, version: int) -> None:
    conversation.settle(
        "DeleteGroups", version, groups_names=[denied_group(conversation, READ), denied_group(conversation, DELETE)]
    )


@case("OffsetCommit", range(1, 10))
def test_offset_commit(conversation: Conversation, version: int) -> None:
    allowed, denied = two_topics(conversation, "commits")
    partition: dict[str, Any] = {"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}
    topics = [{"name": name, "partitions": [partition]} for name in (denied, allowed)]
    member = {"generation_id_or_member_epoch": -1, "member_id": ""} if version >= 1 else {}
    group = denied_group(conversation, READ)
    try:
        conversation.settle("OffsetCommit", version, group_id=denied_group(conversation), topics=topics, **member)
        conversation.settle("OffsetCommit", version, group_id=group, topics=topics, **member)
        conversation.settle("OffsetCommit", version, group_id=group, topics=topics[:1], **member)
    finally:
        without_acls(conversation, denied)


@case("OffsetFetch", range(1, 10))
def test_offset_fetch(conversation: Conversation, version: int) -> None:
    allowed, denied = two_topics(conversation, "fetched")
    groups = [denied_group(conversation), denied_group(conversation, READ)]
    partition = {"partition_index": 0, "committed_offset": 3, "committed_metadata": "m"}
    committed = [{"name": name, "partitions": [partition]} for name in (allowed, denied)]
    without_acls(conversation, denied)
    conversation.settle("OffsetCommit", 2, group_id=groups[1], topics=committed,
                        generation_id_or_member_epoch=-1, member_id="")  # fmt: skip
    create(conversation, acl(denied, ALL, DENY))
    named = [{"name": name, "partition_indexes": [0, 1]} for name in (denied, allowed)]
    try:
        for topics in (named, named[:1], None):
            if topics is None and version < 2:
                continue
            if version >= 8:
                rows = [{"group_id": group, "topics": topics} for group in groups]
                conversation.settle("OffsetFetch", version, groups=rows, require_stable=False)
                continue
            for group in groups:
                conversation.settle("OffsetFetch", version, group_id=group, topics=topics)
    finally:
        without_acls(conversation, denied)


@case("OffsetDelete")
def test_offset_delete(conversation: Conversation, version: int) -> None:
    allowed, denied = two_topics(conversation, "deleted")
    group = denied_group(conversation, DELETE)
    create(conversation, acl(group, READ, resource_type=GROUP))
    partition = {"partition_index": 0, "committed_offset": 3, "committed_metadata": "m"}
    conversation.settle("OffsetCommit", 2, group_id=group, topics=[{"name": allowed, "partitions": [partition]}],
                        generation_id_or_member_epoch=-1, member_id="")  # fmt: skip
    topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in (denied, allowed)]
    try:
        conversation.settle("OffsetDelete", version, group_id=denied_group(conversation, READ), topics=topics)
        conversation.settle("OffsetDelete", version, group_id=group, topics=topics)
    finally:
        without_acls(conversation, denied)


@case("ConsumerGroupHeartbeat")
def test_consumer_group_heartbeat(conversation: Conversation, version: int) -> None:
    conversation.call(
        "ConsumerGroupHeartbeat", version, group_id=denied_group(conversation), member_id="", member_epoch=0,
        instance_id=None, rack_id=None, rebalance_timeout_ms=30_000, subscribed_topic_names=["t"],
        server_assignor=None, topic_partitions=[],
    )  # fmt: skip


@case("ConsumerGroupDescribe")
def test_consumer_group_describe(conversation: Conversation, version: int) -> None:
    groups = [denied_group(conversation)]
    conversation.call("ConsumerGroupDescribe", version, group_ids=groups, include_authorized_operations=True)


# Transactions


def denied_transaction(conversation: Conversation, operation: int = CREATE) -> str:
    """A transactional id with this right alone; Create means nothing to it."""
    transactional_id = name_of(conversation, f"transaction-{operation}")
    create(conversation, acl(transactional_id, operation, resource_type=TRANSACTIONAL_ID))
    return transactional_id


@case("AddPartitionsToTxn", range(4))
def test_add_partitions_to_txn(conversation: Conversation, version: int) -> None:
    allowed, denied = two_topics(conversation, "added")
    topics = [{"name": name, "partitions": [0, 1]} for name in (denied, allowed)]
    try:
        for transactional_id in (denied_transaction(conversation), denied_transaction(conversation, WRITE)):
            conversation.call(
                "AddPartitionsToTxn", version, v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=1, v3_and_below_producer_epoch=0, v3_and_below_topics=topics,
            )  # fmt: skip
    finally:
        without_acls(conversation, denied)


@case("AddOffsetsToTxn", range(4))
def test_add_offsets_to_txn(conversation: Conversation, version: int) -> None:
    group = denied_group(conversation)
    for transactional_id in (denied_transaction(conversation), denied_transaction(conversation, WRITE)):
        conversation.call(
            "AddOffsetsToTxn", version, transactional_id=transactional_id, producer_id=1, producer_epoch=0,
            group_id=group,
        )  # fmt: skip


@case("EndTxn", range(4))
def test_end_txn(conversation: Conversation, version: int) -> None:
    transactional_id = denied_transaction(conversation)
    conversation.call(
        "EndTxn", version, transactional_id=transactional_id, producer_id=1, producer_epoch=0, committed=True
    )


@case("TxnOffsetCommit", range(4))
def test_txn_offset_commit(conversation: Conversation, version: int) -> None:
    _, denied = two_topics(conversation, "pending")
    partition = {"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}
    topics = [{"name": denied, "partitions": [partition]}]
    group, readable = denied_group(conversation), denied_group(conversation, READ)
    writable = denied_transaction(conversation, WRITE)
    try:
        for transactional_id, group_id in (
            (denied_transaction(conversation), readable), (writable, group), (writable, readable),
        ):  # fmt: skip
            conversation.call(
                "TxnOffsetCommit", version, transactional_id=transactional_id, group_id=group_id, producer_id=1,
                producer_epoch=0, topics=topics,
            )  # fmt: skip
    finally:
        without_acls(conversation, denied)


@case("DescribeTransactions", [0])
def test_describe_transactions(conversation: Conversation, version: int) -> None:
    conversation.call("DescribeTransactions", version, transactional_ids=[denied_transaction(conversation)])
