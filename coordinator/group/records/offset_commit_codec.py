"""Handwritten codec for committed offsets in the versions that the gateway writes: nearly all records are these.

Key v1:    int16 1 | string group | string topic | int32 partition
Value v3:  int16 3 | int64 offset | int32 leader epoch | string metadata | int64 commit timestamp, ms

Value v4:  int16 4 | int64 offset | int32 leader epoch | compact string metadata | int64 commit timestamp, ms
           | tagged fields: the topic's id

Strings are UTF-8 after an int16 length, compact ones after a varint of length + 1. Version 4 is written when the
topic's id is known. `offset_commit` has every version, including these.
"""

from struct import Struct
from struct import error as StructError

from coordinator.group.records.fields import MAX_STRING_BYTES
from coordinator.group.records.offset_commit import OffsetCommitKey, OffsetCommitValue

KEY_VERSION = b"\x00\x01"
VALUE_VERSION = b"\x00\x03"
VALUE_VERSION_WITH_ID = b"\x00\x04"
_ID_FIELD = b"\x01\x00\x10"
"""One tagged field: tag 0, 16 bytes."""
_ID_BYTES = 16
_SMALL_VARINTS = [bytes([value]) for value in range(0x80)]
_LENGTH = Struct(">H")
_PARTITION = Struct(">i")
_VALUE_HEAD = Struct(">2sqiH")
_VALUE_HEAD_WITH_ID = Struct(">2sqi")
_VALUE_TAIL = Struct(">q")


def encode_key(key: OffsetCommitKey) -> bytes:
    """ValueError if a field does not fit."""
    try:
        return KEY_VERSION + encode_string(key.group) + encode_string(key.topic) + _PARTITION.pack(key.partition)
    except StructError as error:
        raise ValueError(str(error)) from error


def encode_value(value: OffsetCommitValue) -> bytes:
    """ValueError if a field does not fit."""
    metadata = value.metadata.encode()
    if len(metadata) > MAX_STRING_BYTES:
        raise ValueError(f"a string of {len(metadata)} bytes")
    try:
        if value.topic_id:
            head = _VALUE_HEAD_WITH_ID.pack(VALUE_VERSION_WITH_ID, value.offset, value.leader_epoch)
            tail = _VALUE_TAIL.pack(value.commit_timestamp_ms)
            return head + encode_varint(len(metadata) + 1) + metadata + tail + _ID_FIELD + value.topic_id
        head = _VALUE_HEAD.pack(VALUE_VERSION, value.offset, value.leader_epoch, len(metadata))
        return head + metadata + _VALUE_TAIL.pack(value.commit_timestamp_ms)
    except StructError as error:
        raise ValueError(str(error)) from error


def decode_key(data: bytes) -> OffsetCommitKey:
    """ValueError if it is malformed."""
    group, at = decode_string(data, len(KEY_VERSION))
    topic, at = decode_string(data, at)
    try:
        [partition] = _PARTITION.unpack_from(data, at)
    except StructError as error:
        raise ValueError(str(error)) from error
    return OffsetCommitKey(group, topic, partition)


def decode_value(data: bytes) -> OffsetCommitValue | None:
    """None for another version. ValueError if it is malformed."""
    if data[:2] == VALUE_VERSION_WITH_ID:
        return _decode_value_with_id(data)
    if data[:2] != VALUE_VERSION:
        return None
    try:
        _, offset, leader_epoch, _ = _VALUE_HEAD.unpack_from(data)
        metadata, at = decode_string(data, _VALUE_HEAD.size - _LENGTH.size)
        [commit_timestamp_ms] = _VALUE_TAIL.unpack_from(data, at)
    except StructError as error:
        raise ValueError(str(error)) from error
    return OffsetCommitValue(offset, metadata, commit_timestamp_ms, leader_epoch)


def _decode_value_with_id(data: bytes) -> OffsetCommitValue | None:
    head_bytes = _VALUE_HEAD_WITH_ID.size
    fields = len(data) - _ID_BYTES - len(_ID_FIELD)
    end = fields - _VALUE_TAIL.size
    if end <= head_bytes or data[fields:-_ID_BYTES] != _ID_FIELD:
        return None
    for begin in range(head_bytes + 1, head_bytes + 4):
        if data[head_bytes:begin] == encode_varint(end - begin + 1):
            _, offset, leader_epoch = _VALUE_HEAD_WITH_ID.unpack_from(data)
            [commit_timestamp_ms] = _VALUE_TAIL.unpack_from(data, end)
            metadata = data[begin:end].decode()
            return OffsetCommitValue(offset, metadata, commit_timestamp_ms, leader_epoch, topic_id=data[-_ID_BYTES:])
    return None


def encode_varint(value: int) -> bytes:
    """Unsigned."""
    if value <= 0x7F:
        return _SMALL_VARINTS[value]
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode_string(text: str) -> bytes:
    """ValueError if it is too long."""
    encoded = text.encode()
    if len(encoded) > MAX_STRING_BYTES:
        raise ValueError(f"a string of {len(encoded)} bytes")
    return _LENGTH.pack(len(encoded)) + encoded


def decode_string(data: bytes, at: int) -> tuple[str, int]:
    """The string and the position after it. ValueError if it is malformed."""
    begin = at + _LENGTH.size
    end = begin + int.from_bytes(data[at:begin], "big")
    if end > len(data) or end - begin > MAX_STRING_BYTES or begin > len(data):
        raise ValueError("a string that does not end")
    return data[begin:end].decode(), end
