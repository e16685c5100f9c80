"""Records of `__consumer_offsets`: Kafka's key and value formats, so that Kafka's own tools read the topic.

Every key and value starts with its int16 version. The key's version says what the record is:

    0, 1       a committed offset       `offset_commit`: OffsetCommitKey, OffsetCommitValue
    2          a classic group          `group_metadata`: GroupMetadataKey, GroupMetadataValue
    3..8, 16   a KIP-848 consumer group `consumer_group`: ConsumerGroup...Key, ConsumerGroup...Value
    30001..2   transactions             `transactional_offset`: the gateway's own

A value of None (a tombstone) removes what the key names.
"""

from struct import error as StructError
from typing import Any

from construct import Construct, ConstructError, Int16sb

from coordinator.group.records import consumer_group_codec, group_metadata_codec, offset_commit_codec
from coordinator.group.records.consumer_group import CONSUMER_RECORDS
from coordinator.group.records.fields import RecordType
from coordinator.group.records.group_metadata import GROUP_METADATA, GroupMetadataKey
from coordinator.group.records.offset_commit import (
    EXPIRING_VALUE_VERSION,
    OFFSET_COMMIT,
    TOPIC_ID_VALUE_VERSION,
    OffsetCommitKey,
    OffsetCommitValue,
)
from coordinator.group.records.transactional_offset import (
    KEY_VERSIONS,
    MarkerEpochKey,
    TransactionalOffsetKey,
    decode_transactional,
    encode_transactional,
)
from coordinator.log import Record
from coordinator.state_machine import MalformedRecordError

_TYPES = (OFFSET_COMMIT, GROUP_METADATA, *CONSUMER_RECORDS)
_BY_CLASS = {record_type.key_class: record_type for record_type in _TYPES}
_BY_KEY_VERSION = {0: OFFSET_COMMIT} | {record_type.key_version: record_type for record_type in _TYPES}


def encode_record(key: Any, value: Any | None) -> Record:
    """`key` and `value` are a pair of this package's record dataclasses; ValueError if a field does not fit."""
    try:
        if type(key) is OffsetCommitKey and (value is None or value.expire_timestamp_ms < 0):
            return Record(
                offset_commit_codec.encode_key(key), None if value is None else offset_commit_codec.encode_value(value)
            )
        if type(key) is GroupMetadataKey:
            group = group_metadata_codec.encode_key(key)
            return Record(group, None if value is None else group_metadata_codec.encode_value(value))
        if type(key) in consumer_group_codec.KEY_VERSIONS:
            member = consumer_group_codec.encode_member_key(key)
            return Record(member, None if value is None else consumer_group_codec.encode_member_value(value))
        if isinstance(key, TransactionalOffsetKey | MarkerEpochKey):
            return encode_transactional(key, value)
        record_type = _BY_CLASS[type(key)]
        key_bytes = _with_version(record_type.key_version, record_type.key, key)
        if value is None:
            return Record(key_bytes, None)
        return Record(key_bytes, _encode_value(record_type, value))
    except (ConstructError, StructError, ValueError) as error:
        raise ValueError(f"{type(key).__name__}: {error}") from error


def _encode_value(record_type: RecordType, value: Any) -> bytes:
    if consumer_group_codec.is_by_hand(value):
        return consumer_group_codec.encode_group_value(value)
    version = _write_version(record_type, value)
    return _with_version(version, record_type.values[version], value)


def decode_record(key: bytes, value: bytes | None) -> tuple[Any, Any | None] | None:
    """The key's and the value's dataclass; None for an unknown kind of record (of a newer Kafka, for example).

    Raises MalformedRecordError.
    """
    try:
        frequent = _decode_by_hand(key, value)
        if frequent is not None:
            return frequent
        version = _version(key)
        if version in KEY_VERSIONS:
            return decode_transactional(key, value)
        record_type = _BY_KEY_VERSION.get(version)
        if record_type is None:
            return None
        decoded_key = record_type.key.parse(key[2:])
        if value is None:
            return decoded_key, None
        value_format = record_type.values.get(_version(value))
        if value_format is None:
            raise MalformedRecordError(f"{record_type.key_class.__name__}: value version {_version(value)} is unknown")
        return decoded_key, value_format.parse(value[2:])
    except (ConstructError, StructError, ValueError) as error:
        raise MalformedRecordError(str(error)) from error


def _decode_by_hand(key: bytes, value: bytes | None) -> tuple[Any, Any | None] | None:
    """A record of the kinds and versions that are read often; None for others. Raises ValueError and struct.error."""
    if key[:2] == offset_commit_codec.KEY_VERSION:
        offset = None if value is None else offset_commit_codec.decode_value(value)
        if offset is not None or value is None:
            return offset_commit_codec.decode_key(key), offset
    if key[:2] == group_metadata_codec.KEY_VERSION:
        group = None if value is None else group_metadata_codec.decode_value(value)
        if group is not None or value is None:
            return group_metadata_codec.decode_key(key), group
    return None


def _with_version(version: int, body: Construct, obj: Any) -> bytes:
    encoded: bytes = Int16sb.build(version) + body.build(obj)
    return encoded


def _version(data: bytes) -> int:
    if len(data) < 2:
        raise MalformedRecordError(f"{len(data)} bytes hold no version")
    return int.from_bytes(data[:2], "big", signed=True)


def _write_version(record_type: RecordType, value: Any) -> int:
    if isinstance(value, OffsetCommitValue) and value.expire_timestamp_ms >= 0:
        return EXPIRING_VALUE_VERSION
    if isinstance(value, OffsetCommitValue) and value.topic_id:
        return TOPIC_ID_VALUE_VERSION
    return record_type.write_version
