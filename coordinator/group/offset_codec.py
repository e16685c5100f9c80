"""Committed offsets in the versions that are written, by hand: nearly all records are these.

Key v1:    int16 1 | string group | string topic | int32 partition
Value v3:  int16 3 | int64 offset | int32 leader epoch | string metadata | int64 commit timestamp, ms

Strings are UTF-8 behind an int16 length. `records` has every version, these included.
"""

from struct import Struct
from struct import error as StructError

from coordinator.group.records import OffsetKey, OffsetValue

KEY_VERSION = b"\x00\x01"
VALUE_VERSION = b"\x00\x03"
_LENGTH = Struct(">H")
_PARTITION = Struct(">i")
_VALUE_HEAD = Struct(">2sqiH")
_VALUE_TAIL = Struct(">q")
_MAX_STRING_BYTES = 32_767


def encode_key(key: OffsetKey) -> bytes:
    """ValueError if a field does not fit."""
    group, topic = key.group.encode(), key.topic.encode()
    try:
        return KEY_VERSION + _length(group) + group + _length(topic) + topic + _PARTITION.pack(key.partition)
    except StructError as error:
        raise ValueError(str(error)) from error


def encode_value(value: OffsetValue) -> bytes:
    """ValueError if a field does not fit."""
    metadata = value.metadata.encode()
    _length(metadata)
    try:
        head = _VALUE_HEAD.pack(VALUE_VERSION, value.offset, value.leader_epoch, len(metadata))
        return head + metadata + _VALUE_TAIL.pack(value.commit_timestamp_ms)
    except StructError as error:
        raise ValueError(str(error)) from error


def decode_key(data: bytes) -> OffsetKey:
    """ValueError if it is malformed."""
    group, at = _string(data, len(KEY_VERSION))
    topic, at = _string(data, at)
    try:
        [partition] = _PARTITION.unpack_from(data, at)
    except StructError as error:
        raise ValueError(str(error)) from error
    return OffsetKey(group, topic, partition)


def decode_value(data: bytes) -> OffsetValue:
    """ValueError if it is malformed."""
    try:
        _, offset, leader_epoch, _ = _VALUE_HEAD.unpack_from(data)
        metadata, at = _string(data, _VALUE_HEAD.size - _LENGTH.size)
        [commit_timestamp_ms] = _VALUE_TAIL.unpack_from(data, at)
    except StructError as error:
        raise ValueError(str(error)) from error
    return OffsetValue(offset, metadata, commit_timestamp_ms, leader_epoch)


def _length(text: bytes) -> bytes:
    if len(text) > _MAX_STRING_BYTES:
        raise ValueError(f"a string of {len(text)} bytes")
    return _LENGTH.pack(len(text))


def _string(data: bytes, at: int) -> tuple[str, int]:
    """The string and where it ends."""
    begin = at + _LENGTH.size
    end = begin + int.from_bytes(data[at:begin], "big")
    if end > len(data) or end - begin > _MAX_STRING_BYTES or begin > len(data):
        raise ValueError("a string that does not end")
    return data[begin:end].decode(), end
