"""Requests at random of all APIs, about a few topics, groups and transactional ids.

Nothing is changed: what a client may change is only validated, or does not exist. So the order of requests does not
matter, and both servers stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tests.conformance.acls import CREATE, DELETE, GROUP, READ, TOPIC, acl, acl_filter
from tests.conformance.conversation import LAST_VERSION
from tests.conformance.records import batch, records
from tests.conformance.requests import encode_records, fetch_fields, fetch_partition, native_magic, produce_fields
from tests.conformance.security.random_rights import (
    GROUPS,
    MISSING,
    NAMES,
    NO_GROUP,
    NO_TRANSACTION,
    TOPICS,
    TRANSACTIONS,
    Draw,
)

TRANSACTIONAL, UNKNOWN_PRODUCER = 16, 987_654_321
OFFSET: dict[str, Any] = {"committed_offset": 3, "committed_metadata": ""}
TOPIC_TYPE, BROKER_TYPE, LOGGER_TYPE, METRICS_TYPE, NO_TYPE = 2, 4, 8, 16, 99


def request(draw: Draw) -> tuple[str, int, dict[str, Any]]:
    """API, version and fields."""
    api = draw.random.choice([*MAKERS])
    version = draw.random.choice([*VERSIONS.get(api, range(LAST_VERSION.get(api, 0) + 1))])
    return api, version, MAKERS[api](draw, version)


def rows(names: Iterable[str], *partitions: dict[str, Any], name: str = "name") -> list[dict[str, Any]]:
    return [{name: each, "partitions": [*partitions]} for each in names]


def since(version: int, first: int, **fields: Any) -> dict[str, Any]:
    return fields if version >= first else {}


# Records


def produce(draw: Draw, version: int) -> dict[str, Any]:
    given = draw.random.choice([None, None, draw.one(TRANSACTIONS)]) if version >= 3 else None
    data = encode_records(records(1), native_magic(version))
    if version >= 3 and draw.is_drawn(0.7 if given else 0.2):
        data = batch(records(1), attributes=TRANSACTIONAL, producer=(UNKNOWN_PRODUCER, 0, 0))
    numbers = draw.random.choice([[5], [5, 7]])  # nothing is written
    topics: dict[str, dict[int, bytes | None]] = {name: dict.fromkeys(numbers, data) for name in draw.topics()}
    return produce_fields(version, topics, transactional_id=given)


def fetch(draw: Draw, version: int) -> dict[str, Any]:
    partitions = [fetch_partition(version, number, 0, 1) for number in (0, 5)]
    topics = [
        ({"topic_id": draw.id_of(name)} if version >= 13 else {"topic": name}) | {"partitions": partitions}
        for name in draw.topics()
    ]
    return fetch_fields(version, topics, session=draw.random.choice([(0, -1), (0, 0)]))


def list_offsets(draw: Draw, version: int) -> dict[str, Any]:
    row = {"timestamp": -1} | ({} if version else {"max_num_offsets": 1})
    topics = rows(draw.topics(), row | {"partition_index": 0}, row | {"partition_index": 4})
    return {"replica_id": -1, "topics": topics} | since(version, 2, isolation_level=0)


def offset_for_leader_epoch(draw: Draw, version: int) -> dict[str, Any]:
    row = {"leader_epoch": 0} | since(version, 2, current_leader_epoch=-1)
    topics = rows(draw.topics(), row | {"partition": 0}, row | {"partition": 6}, name="topic")
    return {"topics": topics} | since(version, 3, replica_id=-1)


def write_txn_markers(draw: Draw, version: int) -> dict[str, Any]:
    topics = [{"name": name, "partition_indexes": [9]} for name in draw.topics()]
    row = {"producer_id": 77, "producer_epoch": 0, "transaction_result": False, "coordinator_epoch": 0}
    return {"markers": [row | {"topics": topics}]}


# Topics


def metadata(draw: Draw, version: int) -> dict[str, Any]:
    kind, creates, names = draw.random.choice(["names", "all", "ids", "none"]), draw.is_drawn(), draw.some(NAMES[TOPIC])
    if (creates or version < 4) and draw.may_change(CREATE, draw.prefix + MISSING):
        names = draw.some(TOPICS)
    more = since(version, 4, allow_auto_topic_creation=creates)
    more |= since(version, 8, include_topic_authorized_operations=draw.is_drawn())
    if 8 <= version <= 10:
        more["include_cluster_authorized_operations"] = draw.is_drawn()
    topics: list[dict[str, Any]] | None = [{"name": name} for name in names]
    if kind == "all":
        topics = None if version else []
    elif kind == "none" and version:
        topics = []
    elif kind == "ids" and version >= 12:
        topics = [{"name": None, "topic_id": draw.id_of(name)} for name in names]
    return {"topics": topics} | more


def describe_topic_partitions(draw: Draw, version: int) -> dict[str, Any]:
    topics = [{"name": name} for name in draw.some(NAMES[TOPIC])] if draw.is_drawn(0.7) else []
    return {"topics": topics, "response_partition_limit": 2_000, "cursor": None}


def create_topics(draw: Draw, version: int) -> dict[str, Any]:
    row = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    topics = [{"name": name} | row for name in draw.some(NAMES[TOPIC])]
    wrong = {"num_partitions": 0}, {"configs": [{"name": "nonsense", "value": "1"}]}, {"name": "a name"}
    topics[0] |= draw.random.choice([{}, {}, *wrong])
    return {"topics": topics, "timeout_ms": 10_000, "validate_only": True}


def delete_topics(draw: Draw, version: int) -> dict[str, Any]:
    """Those that are there must not be deleted."""
    kept = [name for name in draw.some(NAMES[TOPIC]) if not draw.may_change(DELETE, name)]
    names = kept or [draw.prefix + MISSING]
    if version < 6:
        return {"topic_names": names, "timeout_ms": 10_000}
    by_id = [{"name": None, "topic_id": draw.id_of(name)} for name in names]
    return {"topics": by_id if draw.is_drawn() else [{"name": name} for name in names], "timeout_ms": 10_000}


def config_rows(draw: Draw, *types: int, **config: Any) -> list[dict[str, Any]]:
    pool = [(TOPIC_TYPE, draw.prefix + name) for name in NAMES[TOPIC]]
    pool += [(BROKER_TYPE, "77"), (LOGGER_TYPE, "77"), (METRICS_TYPE, "m"), *((each, "x") for each in types)]
    drawn = [draw.random.choice(pool) for _ in range(draw.random.choice([1, 2, 3]))]
    return [{"resource_type": kind, "resource_name": name} | config for kind, name in drawn]


def alter_configs(draw: Draw, version: int) -> dict[str, Any]:
    """If one is named twice, Kafka does not answer."""
    found = config_rows(draw, configs=[{"name": "retention.ms", "value": "-1"}])
    once = {(row["resource_type"], row["resource_name"]): row for row in found}
    return {"resources": [*once.values()], "validate_only": True}


def incremental_alter_configs(draw: Draw, version: int) -> dict[str, Any]:
    found = config_rows(draw, configs=[{"name": "retention.ms", "config_operation": 0, "value": "-1"}])
    return {"resources": found, "validate_only": True}


# Groups


def one_group(draw: Draw, **fields: Any) -> dict[str, Any]:
    return {"group_id": draw.one(GROUPS)} | fields


def join_group(draw: Draw, version: int) -> dict[str, Any]:
    more = since(version, 1, rebalance_timeout_ms=1)
    protocols = [{"name": "range", "metadata": b""}]
    return more | one_group(
        draw, session_timeout_ms=1, member_id="m", protocol_type="consumer", protocols=protocols
    )


def leave_group(draw: Draw, version: int) -> dict[str, Any]:
    member = {"member_id": "m"} if version < 3 else {"members": [{"member_id": "m", "group_instance_id": None}]}
    return one_group(draw, **member)


def delete_groups(draw: Draw, version: int) -> dict[str, Any]:
    """Those that are there must not be deleted."""
    kept = [name for name in draw.some(GROUPS) if not draw.may(DELETE, GROUP, name)]
    return {"groups_names": kept + ([] if kept and draw.is_drawn(0.7) else draw.some([NO_GROUP]))}


def offsets(*numbers: int) -> list[dict[str, Any]]:
    return [OFFSET | {"partition_index": number} for number in numbers]


def offset_commit(draw: Draw, version: int) -> dict[str, Any]:
    topics = rows(draw.topics(), *offsets(0, 9))
    return one_group(draw, topics=topics, generation_id_or_member_epoch=-1, member_id="")


def offset_fetch(draw: Draw, version: int) -> dict[str, Any]:
    topics = [{"name": name, "partition_indexes": [0, 3]} for name in draw.topics()]
    asked = None if version >= 2 and draw.is_drawn(0.4) else topics
    if version < 8:
        return one_group(draw, topics=asked)
    groups = [{"group_id": name, "topics": asked} for name in draw.each_once(GROUPS)]
    return {"groups": groups, "require_stable": False}


def offset_delete(draw: Draw, version: int) -> dict[str, Any]:
    """Nothing that is there must be deleted."""
    group, names = draw.one([NO_GROUP, *GROUPS]), draw.topics()
    if draw.may(DELETE, GROUP, group):
        names = [name for name in names if not draw.may(READ, TOPIC, name)] or [draw.prefix + MISSING]
    return {"group_id": group, "topics": rows(names, {"partition_index": 0})}


def consumer_group_heartbeat(draw: Draw, version: int) -> dict[str, Any]:
    return one_group(
        draw, member_id="m", member_epoch=draw.random.choice([5, -1]), instance_id=None, rack_id=None,
        rebalance_timeout_ms=30_000, subscribed_topic_names=[], server_assignor=None, topic_partitions=[],
    )  # fmt: skip


# Transactions


def find_coordinator(draw: Draw, version: int) -> dict[str, Any]:
    kind = draw.random.choice([0, 1]) if version else 0
    keys = draw.some(TRANSACTIONS if kind else GROUPS)
    return ({"key": keys[0]} if version < 4 else {"coordinator_keys": keys}) | since(version, 1, key_type=kind)


def init_producer_id(draw: Draw, version: int) -> dict[str, Any]:
    transactional_id, timeout_ms = draw.random.choice([None, draw.one(TRANSACTIONS)]), draw.random.choice([0, 10**9])
    more = since(version, 3, producer_id=-1, producer_epoch=-1)
    return {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms} | more


def of_transaction(draw: Draw, **fields: Any) -> dict[str, Any]:
    named = {"transactional_id": draw.one(TRANSACTIONS), "producer_id": UNKNOWN_PRODUCER, "producer_epoch": 0}
    return named | fields


def add_partitions_to_txn(draw: Draw, version: int) -> dict[str, Any]:
    topics = [{"name": name, "partitions": [0, 1, 8]} for name in draw.topics()]
    if version >= 4:
        return {"transactions": [of_transaction(draw, verify_only=True, topics=topics)]}
    return {f"v3_and_below_{name}": value for name, value in of_transaction(draw, topics=topics).items()}


MAKERS: dict[str, Callable[[Draw, int], dict[str, Any]]] = {
    "Produce": produce,
    "Fetch": fetch,
    "ListOffsets": list_offsets,
    "DeleteRecords": lambda draw, _: {
        "topics": rows(draw.topics(), *({"partition_index": number, "offset": 0} for number in (0, 7))),
        "timeout_ms": 5_000,
    },
    "OffsetForLeaderEpoch": offset_for_leader_epoch,
    "DescribeProducers": lambda draw, _: {
        "topics": [{"name": name, "partition_indexes": [1, 7]} for name in draw.topics()]
    },
    "WriteTxnMarkers": write_txn_markers,
    "Metadata": metadata,
    "DescribeTopicPartitions": describe_topic_partitions,
    "CreateTopics": create_topics,
    "DeleteTopics": delete_topics,
    "CreatePartitions": lambda draw, _: {
        "topics": [{"name": name, "count": 3, "assignments": None} for name in draw.some(NAMES[TOPIC])],
        "timeout_ms": 10_000, "validate_only": True,
    },
    "ElectLeaders": lambda draw, version: {
        "topic_partitions": [{"topic": name, "partitions": [0, 9]} for name in draw.topics()], "timeout_ms": 10_000,
    } | since(version, 1, election_type=0),
    "AlterPartitionReassignments": lambda draw, _: {
        "topics": rows(draw.topics(), {"partition_index": 0, "replicas": None}), "timeout_ms": 10_000,
    },
    "ListPartitionReassignments": lambda draw, _: {"timeout_ms": 1_000, "topics": None},
    "DescribeConfigs": lambda draw, _: {
        "resources": config_rows(draw, NO_TYPE, configuration_keys=["retention.ms"]),
    },
    "AlterConfigs": alter_configs,
    "IncrementalAlterConfigs": incremental_alter_configs,
    "ListConfigResources": lambda draw, _: {},
    "DescribeCluster": lambda draw, _: {"include_cluster_authorized_operations": draw.is_drawn()},
    "JoinGroup": join_group,
    "SyncGroup": lambda draw, version: one_group(draw, generation_id=1, member_id="m", assignments=[])
    | since(version, 5, protocol_type="consumer", protocol_name="range"),
    "Heartbeat": lambda draw, _: one_group(draw, generation_id=1, member_id="m"),
    "LeaveGroup": leave_group,
    "DescribeGroups": lambda draw, version: {"groups": draw.some(GROUPS)}
    | since(version, 3, include_authorized_operations=draw.is_drawn()),
    "ListGroups": lambda draw, version: since(version, 4, states_filter=[]) | since(version, 5, types_filter=[]),
    "DeleteGroups": delete_groups,
    "OffsetCommit": offset_commit,
    "OffsetFetch": offset_fetch,
    "OffsetDelete": offset_delete,
    "ConsumerGroupHeartbeat": consumer_group_heartbeat,
    "ConsumerGroupDescribe": lambda draw, _: {
        "group_ids": [draw.one(GROUPS)], "include_authorized_operations": draw.is_drawn(),
    },
    "FindCoordinator": find_coordinator,
    "InitProducerId": init_producer_id,
    "AddPartitionsToTxn": add_partitions_to_txn,
    "AddOffsetsToTxn": lambda draw, _: of_transaction(draw, group_id=draw.one(GROUPS)),
    "EndTxn": lambda draw, _: of_transaction(draw, committed=True),
    "TxnOffsetCommit": lambda draw, _: of_transaction(
        draw, group_id=draw.one(GROUPS), topics=rows(draw.topics(), *offsets(0, 9))
    ),
    "DescribeTransactions": lambda draw, _: {"transactional_ids": draw.some([*TRANSACTIONS, NO_TRANSACTION])},
    "ListTransactions": lambda draw, version: {"state_filters": [], "producer_id_filters": []}
    | since(version, 1, duration_filter=-1),
    "DescribeAcls": lambda draw, _: acl_filter(draw.prefix),
    "CreateAcls": lambda draw, _: {"creations": [acl("", READ)]},
    "DeleteAcls": lambda draw, _: {"filters": [acl_filter(draw.prefix), acl_filter(draw.prefix)]},
    "DescribeUserScramCredentials": lambda draw, _: {"users": [{"name": draw.prefix}]},
    "AlterUserScramCredentials": lambda draw, _: {
        "deletions": [{"name": draw.prefix, "mechanism": 1}], "upsertions": [],
    },
    "DescribeClientQuotas": lambda draw, _: {
        "components": [{"entity_type": "user", "match_type": 0, "match": draw.prefix}], "strict": True,
    },
    "AlterClientQuotas": lambda draw, _: {
        "entries": [
            {
                "entity": [{"entity_type": "user", "entity_name": draw.prefix}],
                "ops": [{"key": "producer_byte_rate", "value": 0.0, "remove": True}],
            }
        ],
        "validate_only": True,
    },
}  # fmt: skip
VERSIONS: dict[str, Sequence[int]] = {
    "CreateTopics": range(1, 8),
    "OffsetCommit": range(1, 10),
    "OffsetFetch": range(1, 10),
    "OffsetForLeaderEpoch": range(2, 5),
    "WriteTxnMarkers": [1],
    **{api: range(4) for api in ("DescribeAcls", "CreateAcls", "DeleteAcls")},
    **{api: range(2) for api in ("DescribeClientQuotas", "AlterClientQuotas")},
}
"""Of those that are not in `LAST_VERSION`, or of which the first ones differ in more than in rights."""
