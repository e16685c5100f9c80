"""Records of a KIP-848 consumer group in `__consumer_offsets`: key versions 3 to 8 and 16, all values at version 0.

3  group epoch                     6   epoch of the target assignment
4  subscribed topics' metadata     7   target assignment of a member
5  a member's subscription         8   what a member owns now, and what it must give back
                                   16  topics that match a regular expression (Kafka 4)
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from construct import Construct, Container, Int8sb, Int32sb, Int64sb

from coordinator.group.records.fields import (
    COMPACT_BYTES,
    COMPACT_NULLABLE_STRING,
    COMPACT_STRING,
    STRING,
    TAGGED_FIELDS,
    UUID,
    AsDataclass,
    RecordType,
    compact_array,
)


@dataclass(frozen=True)
class ConsumerGroupMetadataKey:
    group: str


@dataclass(frozen=True)
class ConsumerGroupMetadataValue:
    epoch: int
    tagged_fields: Sequence[Any] = ()


@dataclass(frozen=True)
class ConsumerGroupPartitionMetadataKey:
    group: str


@dataclass(frozen=True)
class PartitionMetadata:
    partition: int
    racks: Sequence[str]
    tagged_fields: Sequence[Any] = ()


@dataclass(frozen=True)
class TopicMetadata:
    """`partition_metadata` is empty when no partition has a known rack."""

    topic_id: bytes
    topic_name: str
    num_partitions: int
    partition_metadata: Sequence[PartitionMetadata] = ()
    tagged_fields: Sequence[Any] = ()


@dataclass(frozen=True)
class ConsumerGroupPartitionMetadataValue:
    topics: Sequence[TopicMetadata]
    tagged_fields: Sequence[Any] = ()


@dataclass(frozen=True)
class ConsumerGroupMemberMetadataKey:
    group: str
    member_id: str


@dataclass(frozen=True)
class ClassicProtocol:
    name: str
    metadata: bytes
    tagged_fields: Sequence[Any] = ()


@dataclass(frozen=True)
class ClassicMemberMetadata:
    """Of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: Sequence[ClassicProtocol]
    tagged_fields: Sequence[Any] = ()


@dataclass(frozen=True)
class ConsumerGroupMemberMetadataValue:
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicMemberMetadata | None = None


@dataclass(frozen=True)
class ConsumerGroupTargetAssignmentMetadataKey:
    group: str


@dataclass(frozen=True)
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: int
    tagged_fields: Sequence[Any] = ()


@dataclass(frozen=True)
class TopicPartitions:
    topic_id: bytes
    partitions: Sequence[int]
    tagged_fields: Sequence[Any] = ()


@dataclass(frozen=True)
class ConsumerGroupTargetAssignmentMemberKey:
    group: str
    member_id: str


@dataclass(frozen=True)
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: Sequence[TopicPartitions]
    tagged_fields: Sequence[Any] = ()


@dataclass(frozen=True)
class ConsumerGroupCurrentMemberAssignmentKey:
    group: str
    member_id: str


@dataclass(frozen=True)
class ConsumerGroupCurrentMemberAssignmentValue:
    """`state` is `consumer_member.MemberState`; `previous_member_epoch` allows to repeat a lost heartbeat response."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: Sequence[TopicPartitions]
    partitions_pending_revocation: Sequence[TopicPartitions]
    tagged_fields: Sequence[Any] = ()


@dataclass(frozen=True)
class ConsumerGroupRegularExpressionKey:
    group: str
    regex: str


@dataclass(frozen=True)
class ConsumerGroupRegularExpressionValue:
    """`version` and `timestamp_ms` are those of the metadata; with -1 the expression is resolved again."""

    topics: Sequence[str]
    version: int = -1
    timestamp_ms: int = -1
    tagged_fields: Sequence[Any] = ()


_TOPIC_PARTITIONS = compact_array(
    AsDataclass(TopicPartitions, topic_id=UUID, partitions=compact_array(Int32sb), tagged_fields=TAGGED_FIELDS)
)
_RACKS = AsDataclass(
    PartitionMetadata, partition=Int32sb, racks=compact_array(COMPACT_STRING), tagged_fields=TAGGED_FIELDS
)
_TOPIC = AsDataclass(
    TopicMetadata,
    topic_id=UUID,
    topic_name=COMPACT_STRING,
    num_partitions=Int32sb,
    partition_metadata=compact_array(_RACKS),
    tagged_fields=TAGGED_FIELDS,
)
_CLASSIC = AsDataclass(
    ClassicMemberMetadata,
    session_timeout_ms=Int32sb,
    protocols=compact_array(
        AsDataclass(ClassicProtocol, name=COMPACT_STRING, metadata=COMPACT_BYTES, tagged_fields=TAGGED_FIELDS)
    ),
    tagged_fields=TAGGED_FIELDS,
)
_CLASSIC_TAG = 0
_PRESENT = b"\x01"
"""The marker before a nullable struct."""


class _Member(AsDataclass):
    """The protocols of a member of the classic protocol are a tagged field."""

    def _decode(self, obj: Container[Any], context: Any, path: str) -> ConsumerGroupMemberMetadataValue:
        found = [bytes(each.data) for each in obj.pop("tagged_fields") if each.tag == _CLASSIC_TAG]
        value: ConsumerGroupMemberMetadataValue = super()._decode(obj, context, path)
        if not found or found[0][:1] != _PRESENT:
            return value
        return replace(value, classic=_CLASSIC.parse(found[0][1:]))

    def _encode(self, obj: ConsumerGroupMemberMetadataValue, context: Any, path: str) -> dict[str, Any]:
        fields = super()._encode(obj, context, path)
        classic = fields.pop("classic")
        tagged = [] if classic is None else [{"tag": _CLASSIC_TAG, "data": _PRESENT + _CLASSIC.build(classic)}]
        return fields | {"tagged_fields": tagged}


_MEMBER = _Member(
    ConsumerGroupMemberMetadataValue,
    instance_id=COMPACT_NULLABLE_STRING,
    rack_id=COMPACT_NULLABLE_STRING,
    client_id=COMPACT_STRING,
    client_host=COMPACT_STRING,
    subscribed_topic_names=compact_array(COMPACT_STRING),
    subscribed_topic_regex=COMPACT_NULLABLE_STRING,
    rebalance_timeout_ms=Int32sb,
    server_assignor=COMPACT_NULLABLE_STRING,
    tagged_fields=TAGGED_FIELDS,
)
_CURRENT = AsDataclass(
    ConsumerGroupCurrentMemberAssignmentValue,
    member_epoch=Int32sb,
    previous_member_epoch=Int32sb,
    state=Int8sb,
    assigned_partitions=_TOPIC_PARTITIONS,
    partitions_pending_revocation=_TOPIC_PARTITIONS,
    tagged_fields=TAGGED_FIELDS,
)
_REGEX = AsDataclass(
    ConsumerGroupRegularExpressionValue,
    topics=compact_array(COMPACT_STRING),
    version=Int64sb,
    timestamp_ms=Int64sb,
    tagged_fields=TAGGED_FIELDS,
)


def _of_group(cls: type, version: int, value: Construct) -> RecordType:
    return RecordType(cls, AsDataclass(cls, group=STRING), version, {0: value}, write_version=0)


def _of_member(cls: type, version: int, value: Construct) -> RecordType:
    return RecordType(cls, AsDataclass(cls, group=STRING, member_id=STRING), version, {0: value}, write_version=0)


CONSUMER_RECORDS = (
    _of_group(
        ConsumerGroupMetadataKey, 3, AsDataclass(ConsumerGroupMetadataValue, epoch=Int32sb, tagged_fields=TAGGED_FIELDS)
    ),
    _of_group(
        ConsumerGroupPartitionMetadataKey,
        4,
        AsDataclass(ConsumerGroupPartitionMetadataValue, topics=compact_array(_TOPIC), tagged_fields=TAGGED_FIELDS),
    ),
    _of_member(ConsumerGroupMemberMetadataKey, 5, _MEMBER),
    _of_group(
        ConsumerGroupTargetAssignmentMetadataKey,
        6,
        AsDataclass(ConsumerGroupTargetAssignmentMetadataValue, assignment_epoch=Int32sb, tagged_fields=TAGGED_FIELDS),
    ),
    _of_member(
        ConsumerGroupTargetAssignmentMemberKey,
        7,
        AsDataclass(
            ConsumerGroupTargetAssignmentMemberValue, topic_partitions=_TOPIC_PARTITIONS, tagged_fields=TAGGED_FIELDS
        ),
    ),
    _of_member(ConsumerGroupCurrentMemberAssignmentKey, 8, _CURRENT),
    RecordType(
        ConsumerGroupRegularExpressionKey,
        AsDataclass(ConsumerGroupRegularExpressionKey, group=STRING, regex=STRING),
        16,
        {0: _REGEX},
        write_version=0,
    ),
)
