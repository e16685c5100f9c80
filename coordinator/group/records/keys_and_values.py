"""Records of `__consumer_offsets`: Kafka's key and value formats, so that Kafka's own tools read the topic.

Every key and value starts with its int16 version. The key's version says what the record is:

    0, 1  a committed offset           2     a classic group's state (generation, members, assignment)
    3..8  a KIP-848 consumer group's   (group epoch, topics, members, target and current assignments)

A value of None (a tombstone) removes what the key names. Field by field: Kafka's OffsetCommitKey/Value,
GroupMetadataKey/Value here, ConsumerGroup*Key/Value in `consumer_records`. `record_codec` puts the version in front.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from construct import Construct, Container, Int32sb, Int64sb

from coordinator.group.records.fields import (
    BYTES,
    COMPACT_BYTES,
    COMPACT_NULLABLE_STRING,
    COMPACT_STRING,
    NULLABLE_STRING,
    STRING,
    TAGGED_FIELDS,
    AsDataclass,
    RecordType,
    array,
    compact_array,
)

TOPIC_ID_TAG = 0
"""Of OffsetCommitValue."""


@dataclass(frozen=True, slots=True)
class OffsetKey:
    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class OffsetValue:
    """`leader_epoch` and `expire_timestamp_ms` are -1 when not given; only v2-v4 commits of old clients expire so.

    `topic_id` (16 bytes) is that of the topic at the time of the commit, empty if it is not known. Kafka writes it
    since 4.1.
    """

    offset: int
    metadata: str
    commit_timestamp_ms: int
    leader_epoch: int = -1
    expire_timestamp_ms: int = -1
    topic_id: bytes = b""


@dataclass(frozen=True)
class GroupKey:
    group: str


@dataclass(frozen=True)
class MemberValue:
    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes
    rebalance_timeout_ms: int = -1
    group_instance_id: str | None = None
    tagged_fields: Sequence[Any] = ()


@dataclass(frozen=True)
class GroupValue:
    """A classic group as of one generation. `state_timestamp_ms` is -1 in records older than Kafka 2.1."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int = -1
    members: Sequence[MemberValue] = field(default_factory=tuple)
    tagged_fields: Sequence[Any] = ()


class _FlexibleOffset(AsDataclass):
    """The topic's id is a tagged field."""

    def _decode(self, obj: Container[Any], context: Any, path: str) -> OffsetValue:
        ids = [field.data for field in obj.pop("tagged_fields") if field.tag == TOPIC_ID_TAG and len(field.data) == 16]
        value: OffsetValue = super()._decode(obj, context, path)
        return replace(value, topic_id=bytes(ids[0])) if ids else value

    def _encode(self, obj: OffsetValue, context: Any, path: str) -> dict[str, Any]:
        tagged = [{"tag": TOPIC_ID_TAG, "data": obj.topic_id}] if obj.topic_id else []
        return super()._encode(obj, context, path) | {"tagged_fields": tagged}


_OFFSET_KEY = AsDataclass(OffsetKey, group=STRING, topic=STRING, partition=Int32sb)
_OFFSET_HEAD = {"offset": Int64sb}
_OFFSET_TAIL = {"metadata": STRING, "commit_timestamp_ms": Int64sb}
_OFFSET_VALUES = {
    0: AsDataclass(OffsetValue, **_OFFSET_HEAD, **_OFFSET_TAIL),
    1: AsDataclass(OffsetValue, **_OFFSET_HEAD, **_OFFSET_TAIL, expire_timestamp_ms=Int64sb),
    2: AsDataclass(OffsetValue, **_OFFSET_HEAD, **_OFFSET_TAIL),
    3: AsDataclass(OffsetValue, **_OFFSET_HEAD, leader_epoch=Int32sb, **_OFFSET_TAIL),
    4: _FlexibleOffset(
        OffsetValue,
        offset=Int64sb,
        leader_epoch=Int32sb,
        metadata=COMPACT_STRING,
        commit_timestamp_ms=Int64sb,
        tagged_fields=TAGGED_FIELDS,
    ),
}


def _member(version: int) -> Construct:
    instance = {"group_instance_id": NULLABLE_STRING} if version >= 3 else {}
    rebalance = {"rebalance_timeout_ms": Int32sb} if version >= 1 else {}
    return AsDataclass(
        MemberValue,
        member_id=STRING,
        **instance,
        client_id=STRING,
        client_host=STRING,
        **rebalance,
        session_timeout_ms=Int32sb,
        subscription=BYTES,
        assignment=BYTES,
    )


def _group(version: int) -> Construct:
    timestamp = {"state_timestamp_ms": Int64sb} if version >= 2 else {}
    return AsDataclass(
        GroupValue,
        protocol_type=STRING,
        generation=Int32sb,
        protocol=NULLABLE_STRING,
        leader=NULLABLE_STRING,
        **timestamp,
        members=array(_member(version)),
    )


_MEMBER_V4 = AsDataclass(
    MemberValue,
    member_id=COMPACT_STRING,
    group_instance_id=COMPACT_NULLABLE_STRING,
    client_id=COMPACT_STRING,
    client_host=COMPACT_STRING,
    rebalance_timeout_ms=Int32sb,
    session_timeout_ms=Int32sb,
    subscription=COMPACT_BYTES,
    assignment=COMPACT_BYTES,
    tagged_fields=TAGGED_FIELDS,
)
_GROUP_VALUES = {version: _group(version) for version in range(4)} | {
    4: AsDataclass(
        GroupValue,
        protocol_type=COMPACT_STRING,
        generation=Int32sb,
        protocol=COMPACT_NULLABLE_STRING,
        leader=COMPACT_NULLABLE_STRING,
        state_timestamp_ms=Int64sb,
        members=compact_array(_MEMBER_V4),
        tagged_fields=TAGGED_FIELDS,
    )
}


OFFSET_RECORD = RecordType(OffsetKey, _OFFSET_KEY, 1, _OFFSET_VALUES, write_version=3)
# The only version with an expiry of its own. Kafka writes it for the commits of old clients that ask for one.
EXPIRING_OFFSET_VERSION = 1
TOPIC_ID_OFFSET_VERSION = 4
GROUP_RECORD = RecordType(GroupKey, AsDataclass(GroupKey, group=STRING), 2, _GROUP_VALUES, write_version=3)
