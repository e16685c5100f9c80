"""Handwritten encoder for the records of consumer groups that are long, or written for all members at once: by a new
target, or an upgrade.

Keys:                  int16 version | string group | string member id
Member v0:             int16 0 | compact strings: instance id, rack id (nullable), client id, client host
                       | [compact string topic] | compact nullable string regex | int32 rebalance timeout, ms
                       | compact nullable string assignor | tagged fields: 0 the protocols of a classic member
Target assignment v0:  int16 0 | topics | tagged fields
Current assignment v0: int16 0 | int32 epoch | int32 previous epoch | int8 state | assigned topics | topics to revoke
                       | tagged fields
Topics of a group v0:  int16 0 | [16 bytes id | compact string name | int32 partitions | no racks | tagged fields]
                       | tagged fields
Expression v0:         int16 0 | [compact string topic] | int64 version | int64 timestamp | tagged fields

Topics are a compact array of 16 bytes, a compact array of int32 partitions, and tagged fields. No tagged fields are one
byte, 0. `consumer_group` declares these records, and reads them.
"""

from collections.abc import Sequence
from struct import Struct, pack
from typing import TypeGuard

from coordinator.group.records.consumer_group import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartitions,
)
from coordinator.group.records.offset_commit_codec import encode_string, encode_varint

MemberKey = (
    ConsumerGroupMemberMetadataKey | ConsumerGroupTargetAssignmentMemberKey | ConsumerGroupCurrentMemberAssignmentKey
)
MemberValue = (
    ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
)
GroupValue = ConsumerGroupPartitionMetadataValue | ConsumerGroupRegularExpressionValue
KEY_VERSIONS: dict[type, bytes] = {
    ConsumerGroupMemberMetadataKey: b"\x00\x05",
    ConsumerGroupTargetAssignmentMemberKey: b"\x00\x07",
    ConsumerGroupCurrentMemberAssignmentKey: b"\x00\x08",
}
_VALUE_VERSION = b"\x00\x00"
_NULL = b"\x00"
_NO_TAGGED_FIELDS = b"\x00"
_PRESENT = b"\x01"
"""The marker before a nullable struct."""
_INT32 = Struct(">i")
_VERSION_AND_TIMESTAMP = Struct(">qq")
_NO_RACKS = b"\x01"
_CURRENT_HEAD = Struct(">2siib")


# All of these raise struct.error or ValueError if a field does not fit.


def encode_member_key(key: MemberKey) -> bytes:
    return KEY_VERSIONS[type(key)] + encode_string(key.group) + encode_string(key.member_id)


def encode_member_value(value: MemberValue) -> bytes:
    match value:
        case ConsumerGroupMemberMetadataValue():
            return _member(value)
        case ConsumerGroupTargetAssignmentMemberValue():
            return _VALUE_VERSION + _topics(value.topic_partitions) + _NO_TAGGED_FIELDS
        case ConsumerGroupCurrentMemberAssignmentValue():
            epochs = value.member_epoch, value.previous_member_epoch, value.state
            topics = _topics(value.assigned_partitions) + _topics(value.partitions_pending_revocation)
            return _CURRENT_HEAD.pack(_VALUE_VERSION, *epochs) + topics + _NO_TAGGED_FIELDS


def is_by_hand(value: object) -> TypeGuard[GroupValue]:
    """Whether `encode_group_value` knows all that the value has: the racks of partitions are never known here."""
    if isinstance(value, ConsumerGroupPartitionMetadataValue):
        has_more = any(each.partition_metadata or each.tagged_fields for each in value.topics)
        return not has_more and not value.tagged_fields
    return isinstance(value, ConsumerGroupRegularExpressionValue) and not value.tagged_fields


def encode_group_value(value: GroupValue) -> bytes:
    parts = [_VALUE_VERSION, encode_varint(len(value.topics) + 1)]
    if isinstance(value, ConsumerGroupRegularExpressionValue):
        parts += [*map(_text, value.topics), _VERSION_AND_TIMESTAMP.pack(value.version, value.timestamp_ms)]
    else:
        for topic in value.topics:
            parts += topic.topic_id, _text(topic.topic_name), _INT32.pack(topic.num_partitions), _NO_RACKS
            parts.append(_NO_TAGGED_FIELDS)
    return b"".join((*parts, _NO_TAGGED_FIELDS))


def _member(value: ConsumerGroupMemberMetadataValue) -> bytes:
    names = value.subscribed_topic_names
    return b"".join(
        (
            _VALUE_VERSION,
            _text(value.instance_id),
            _text(value.rack_id),
            _text(value.client_id),
            _text(value.client_host),
            encode_varint(len(names) + 1),
            *map(_text, names),
            _text(value.subscribed_topic_regex),
            _INT32.pack(value.rebalance_timeout_ms),
            _text(value.server_assignor),
            _NO_TAGGED_FIELDS if value.classic is None else _classic_field(value.classic),
        )
    )


def _classic_field(classic: ClassicMemberMetadata) -> bytes:
    """One tagged field: tag 0, and its length."""
    parts = [_PRESENT, _INT32.pack(classic.session_timeout_ms), encode_varint(len(classic.protocols) + 1)]
    for protocol in classic.protocols:
        parts += _text(protocol.name), _bytes(protocol.metadata), _NO_TAGGED_FIELDS
    data = b"".join((*parts, _NO_TAGGED_FIELDS))
    return b"\x01\x00" + encode_varint(len(data)) + data


def _topics(topics: Sequence[TopicPartitions]) -> bytes:
    parts = [encode_varint(len(topics) + 1)]
    for topic in topics:
        count = len(topic.partitions)
        parts += topic.topic_id, encode_varint(count + 1), pack(f">{count}i", *topic.partitions), _NO_TAGGED_FIELDS
    return b"".join(parts)


def _text(text: str | None) -> bytes:
    return _NULL if text is None else _bytes(text.encode())


def _bytes(data: bytes) -> bytes:
    return encode_varint(len(data) + 1) + data
