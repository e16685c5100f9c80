"""Kafka's OffsetCommitKey and OffsetCommitValue: the committed offset of a group in one partition.

Key versions 0 and 1 are the same. Value versions 0 to 4: 1 has an expiry, 3 the leader epoch, 4 (Kafka 4.1) is flexible
and has the topic's id. `offset_commit_codec` reads and writes the frequent versions faster.
"""

from dataclasses import dataclass, replace
from typing import Any

from construct import Container, Int32sb, Int64sb

from coordinator.group.records.fields import COMPACT_STRING, STRING, TAGGED_FIELDS, AsDataclass, RecordType

EXPIRING_VALUE_VERSION = 1
"""The only version with an expiry. Kafka writes it for commits of old clients that ask for one."""
TOPIC_ID_VALUE_VERSION = 4
TOPIC_ID_TAG = 0
"""Of OffsetCommitValue."""


@dataclass(frozen=True, slots=True)
class OffsetCommitKey:
    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class OffsetCommitValue:
    """`leader_epoch` and `expire_timestamp_ms` are -1 when not given; only v2-v4 commits of old clients have an expiry.

    `topic_id` (16 bytes) is the id of the topic at the time of the commit, empty if it is not known. Kafka writes it
    since 4.1.
    """

    offset: int
    metadata: str
    commit_timestamp_ms: int
    leader_epoch: int = -1
    expire_timestamp_ms: int = -1
    topic_id: bytes = b""


class _FlexibleOffset(AsDataclass):
    """The topic's id is a tagged field."""

    def _decode(self, obj: Container[Any], context: Any, path: str) -> OffsetCommitValue:
        ids = [field.data for field in obj.pop("tagged_fields") if field.tag == TOPIC_ID_TAG and len(field.data) == 16]
        value: OffsetCommitValue = super()._decode(obj, context, path)
        return replace(value, topic_id=bytes(ids[0])) if ids else value

    def _encode(self, obj: OffsetCommitValue, context: Any, path: str) -> dict[str, Any]:
        tagged = [{"tag": TOPIC_ID_TAG, "data": obj.topic_id}] if obj.topic_id else []
        return super()._encode(obj, context, path) | {"tagged_fields": tagged}


_OFFSET_KEY = AsDataclass(OffsetCommitKey, group=STRING, topic=STRING, partition=Int32sb)
_OFFSET_HEAD = {"offset": Int64sb}
_OFFSET_TAIL = {"metadata": STRING, "commit_timestamp_ms": Int64sb}
_OFFSET_VALUES = {
    0: AsDataclass(OffsetCommitValue, **_OFFSET_HEAD, **_OFFSET_TAIL),
    1: AsDataclass(OffsetCommitValue, **_OFFSET_HEAD, **_OFFSET_TAIL, expire_timestamp_ms=Int64sb),
    2: AsDataclass(OffsetCommitValue, **_OFFSET_HEAD, **_OFFSET_TAIL),
    3: AsDataclass(OffsetCommitValue, **_OFFSET_HEAD, leader_epoch=Int32sb, **_OFFSET_TAIL),
    4: _FlexibleOffset(
        OffsetCommitValue,
        offset=Int64sb,
        leader_epoch=Int32sb,
        metadata=COMPACT_STRING,
        commit_timestamp_ms=Int64sb,
        tagged_fields=TAGGED_FIELDS,
    ),
}

OFFSET_COMMIT = RecordType(OffsetCommitKey, _OFFSET_KEY, 1, _OFFSET_VALUES, write_version=3)
