"""Offsets of open transactions, and the coordinators that ended transactions: record kinds of the gateway's own.

Kafka writes an offset of a transaction under the key of a committed offset, and distinguishes them by the batch. Here
each record is a message, and Pulsar's compaction keeps the last one of a key: an offset that is aborted later would
have erased the committed one. So it has a key of its own until its transaction ends. The meaning of these records does
not depend on records with other keys before or after them, because snapshots of the log reorder records.

Key 30001:   int16 30001 | int64 producer id | string group | string topic | int32 partition
Value v0:    int16 0 | int16 producer epoch | int64 order | int8 superseded | OffsetCommitValue with its own version
Key 30002:   int16 30002 | int64 producer id
Value v0:    int16 0 | int32 coordinator epoch | int64 timestamp, ms

Kafka's tools skip such keys, as they skip those of a newer Kafka.
"""

from dataclasses import dataclass
from struct import Struct
from struct import error as StructError

from coordinator.group.records import offset_commit_codec
from coordinator.group.records.offset_commit import OffsetCommitValue
from coordinator.group.records.offset_commit_codec import decode_string, encode_string
from coordinator.log import Record

OFFSET_KEY_VERSION, EPOCH_KEY_VERSION = 30001, 30002
KEY_VERSIONS = frozenset({OFFSET_KEY_VERSION, EPOCH_KEY_VERSION})
_VALUE_VERSION = 0
_KEY_HEAD = Struct(">hq")
_PARTITION = Struct(">i")
_OFFSET_HEAD = Struct(">hhq?")
_EPOCH_VALUE = Struct(">hiq")


@dataclass(frozen=True, slots=True)
class TransactionalOffsetKey:
    producer_id: int
    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class TransactionalOffsetValue:
    """An offset that counts when the producer's transaction is committed.

    It does not count if it is `superseded`: a later offset of the partition is committed already. When two transactions
    have an offset of the same partition, the one with the higher `order` is the later.
    """

    producer_epoch: int
    order: int
    superseded: bool
    offset: OffsetCommitValue


@dataclass(frozen=True, slots=True)
class MarkerEpochKey:
    producer_id: int


@dataclass(frozen=True, slots=True)
class MarkerEpochValue:
    """The epoch of the transaction coordinator that last ended a transaction of the producer here, and the time."""

    coordinator_epoch: int
    timestamp_ms: int


TransactionalKey = TransactionalOffsetKey | MarkerEpochKey
TransactionalValue = TransactionalOffsetValue | MarkerEpochValue


def encode_transactional(key: TransactionalKey, value: TransactionalValue | None) -> Record:
    """`value` has the class that belongs to the key. ValueError if a field does not fit."""
    try:
        return Record(_encode_key(key), None if value is None else _encode_value(value))
    except StructError as error:
        raise ValueError(str(error)) from error


def decode_transactional(key: bytes, value: bytes | None) -> tuple[TransactionalKey, TransactionalValue | None]:
    """The key's version is one of KEY_VERSIONS. ValueError if it is malformed, or its value has a newer version."""
    try:
        decoded_key = _decode_key(key)
        if value is None:
            return decoded_key, None
        is_offset = isinstance(decoded_key, TransactionalOffsetKey)
        return decoded_key, _decode_offset(value) if is_offset else _decode_epoch(value)
    except StructError as error:
        raise ValueError(str(error)) from error


def _encode_key(key: TransactionalKey) -> bytes:
    if isinstance(key, MarkerEpochKey):
        return _KEY_HEAD.pack(EPOCH_KEY_VERSION, key.producer_id)
    head = _KEY_HEAD.pack(OFFSET_KEY_VERSION, key.producer_id)
    return head + encode_string(key.group) + encode_string(key.topic) + _PARTITION.pack(key.partition)


def _decode_key(data: bytes) -> TransactionalKey:
    version, producer_id = _KEY_HEAD.unpack_from(data)
    if version == EPOCH_KEY_VERSION:
        return MarkerEpochKey(producer_id)
    group, at = decode_string(data, _KEY_HEAD.size)
    topic, at = decode_string(data, at)
    [partition] = _PARTITION.unpack_from(data, at)
    return TransactionalOffsetKey(producer_id, group, topic, partition)


def _encode_value(value: TransactionalValue) -> bytes:
    if isinstance(value, MarkerEpochValue):
        return _EPOCH_VALUE.pack(_VALUE_VERSION, value.coordinator_epoch, value.timestamp_ms)
    head = _OFFSET_HEAD.pack(_VALUE_VERSION, value.producer_epoch, value.order, value.superseded)
    return head + offset_commit_codec.encode_value(value.offset)


def _decode_offset(data: bytes) -> TransactionalOffsetValue:
    version, producer_epoch, order, superseded = _OFFSET_HEAD.unpack_from(data)
    offset = offset_commit_codec.decode_value(data[_OFFSET_HEAD.size :]) if version == _VALUE_VERSION else None
    if offset is None:
        raise ValueError(f"an offset of a transaction in version {version}")
    return TransactionalOffsetValue(producer_epoch, order, superseded, offset)


def _decode_epoch(data: bytes) -> MarkerEpochValue:
    version, coordinator_epoch, timestamp_ms = _EPOCH_VALUE.unpack_from(data)
    if version != _VALUE_VERSION:
        raise ValueError(f"a coordinator's epoch in version {version}")
    return MarkerEpochValue(coordinator_epoch, timestamp_ms)
