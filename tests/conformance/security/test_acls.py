"""ACLs: their APIs, and what they permit for topics, configurations and the cluster; see acls.py."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.conformance.acls import (
    ACL_VERSIONS,
    ALL,
    ALTER_CONFIGS,
    ANY,
    CLUSTER,
    CREATE,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    MATCH,
    ME,
    PREFIXED,
    READ,
    TRANSACTIONAL_ID,
    WRITE,
    acl,
    acl_filter,
    await_acls,
    create,
    deny_all_of_cluster,
    name_of,
    open_cluster,
    two_topics,
    without_acls,
)
from tests.conformance.conversation import Conversation, Pair, case


@pytest.fixture
def pair(pair_with_acls: Pair) -> Pair:
    return pair_with_acls


# The APIs of ACLs


def sorted_answer(conversation: Conversation) -> None:
    """The order of ACLs is not defined."""
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
        {"resource_pattern_type": MATCH}, {"operation": ANY}, {"permission_type": ANY}, {"principal": "no-type"},
        {"principal": ""}, {"principal": ":no-type"}, {"principal": "User:"}, {"host": ""},
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
            for some in (names, [kept, hidden, missing, hidden, missing]):
                conversation.call("DeleteTopics", version, topic_names=some, timeout_ms=10_000)
        else:
            no_id = uuid.UUID(int=0)
            rows = [{"name": name, "topic_id": no_id} for name in names]
            rows += [{"name": None, "topic_id": conversation.topic_id(kind)} for kind in kinds]
            for each in (rows[:3], rows[3:], rows[1:3] * 2, rows[4:] * 2):
                conversation.call("DeleteTopics", version, topics=each, timeout_ms=10_000)
    finally:
        open_cluster(conversation)
        for name in names:
            without_acls(conversation, name)


@case("Metadata", [12])
def test_names_beside_ids(conversation: Conversation, version: int) -> None:
    """Those without ids are not in the answer, whether they are denied or not."""
    ids = []
    for label in ("beside-allowed", "beside-denied"):
        conversation.topic(label)
        ids.append({"name": None, "topic_id": conversation.topic_id(label)})
    allowed, denied = two_topics(conversation, "beside")
    names = [{"name": allowed}, {"name": denied}, {"name": denied + "-unknown"}]
    try:
        for rows in ([*names, *ids], [*names, *ids[1:]], [*names, {"name": None, "topic_id": uuid.UUID(int=5)}]):
            conversation.call("Metadata", version, topics=rows, include_topic_authorized_operations=True)
    finally:
        without_acls(conversation, denied)


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
    """A client that may write to some topic may use an idempotent producer."""
    everything = acl("*", WRITE, DENY)
    create(conversation, deny_all_of_cluster(12))
    fields = {"transactional_id": None, "transaction_timeout_ms": 60_000}
    try:
        conversation.when_loaded("InitProducerId", version, **fields)
        create(conversation, everything)
        conversation.when_loaded("InitProducerId", version, **fields)
        denied = name_of(conversation, "transaction")
        create(conversation, acl(denied, READ, resource_type=TRANSACTIONAL_ID))
        conversation.when_loaded("InitProducerId", version, **(fields | {"transactional_id": denied}))
    finally:
        open_cluster(conversation)
        without_acls(conversation, "*")
