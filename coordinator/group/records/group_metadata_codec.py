"""Handwritten codec for the record of a classic group in the version that the gateway writes: it has all members.

Key v2:    int16 2 | string group
Value v3:  int16 3 | string protocol type | int32 generation | nullable string protocol | nullable string leader
           | int64 state timestamp, ms | [member]
Member:    string member id | nullable string group.instance.id | string client id | string client host
           | int32 rebalance timeout, ms | int32 session timeout, ms | bytes subscription | bytes assignment

Strings are UTF-8 after an int16 length, -1 for null; bytes and arrays have an int32 length. `group_metadata` has every
version, including these.
"""

from struct import Struct

from coordinator.group.records.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from coordinator.group.records.offset_commit_codec import decode_string, encode_string

KEY_VERSION = b"\x00\x02"
VALUE_VERSION = b"\x00\x03"
_NULL = b"\xff\xff"
_LENGTH, _TIMESTAMP, _TIMEOUTS = Struct(">i"), Struct(">q"), Struct(">ii")


# All of these raise struct.error or ValueError if a field does not fit, or bytes are malformed.


def encode_key(key: GroupMetadataKey) -> bytes:
    return KEY_VERSION + encode_string(key.group)


def encode_value(value: GroupMetadataValue) -> bytes:
    parts = [
        VALUE_VERSION,
        encode_string(value.protocol_type),
        _LENGTH.pack(value.generation),
        _nullable(value.protocol),
        _nullable(value.leader),
        _TIMESTAMP.pack(value.state_timestamp_ms),
        _LENGTH.pack(len(value.members)),
    ]
    for member in value.members:
        parts += (
            encode_string(member.member_id),
            _nullable(member.group_instance_id),
            encode_string(member.client_id),
            encode_string(member.client_host),
            _TIMEOUTS.pack(member.rebalance_timeout_ms, member.session_timeout_ms),
            _LENGTH.pack(len(member.subscription)),
            member.subscription,
            _LENGTH.pack(len(member.assignment)),
            member.assignment,
        )
    return b"".join(parts)


def decode_key(data: bytes) -> GroupMetadataKey:
    return GroupMetadataKey(decode_string(data, len(KEY_VERSION))[0])


def decode_value(data: bytes) -> GroupMetadataValue | None:
    """None for another version."""
    if data[:2] != VALUE_VERSION:
        return None
    protocol_type, at = decode_string(data, len(VALUE_VERSION))
    [generation] = _LENGTH.unpack_from(data, at)
    protocol, at = _read_nullable(data, at + _LENGTH.size)
    leader, at = _read_nullable(data, at)
    [timestamp_ms] = _TIMESTAMP.unpack_from(data, at)
    at += _TIMESTAMP.size
    [count] = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    if count < 0:
        raise ValueError(f"an array of {count}")
    members = []
    for _ in range(count):
        member, at = _read_member(data, at)
        members.append(member)
    return GroupMetadataValue(protocol_type, generation, protocol, leader, timestamp_ms, members)


def _read_member(data: bytes, at: int) -> tuple[MemberMetadata, int]:
    member_id, at = decode_string(data, at)
    instance_id, at = _read_nullable(data, at)
    client_id, at = decode_string(data, at)
    client_host, at = decode_string(data, at)
    rebalance_timeout_ms, session_timeout_ms = _TIMEOUTS.unpack_from(data, at)
    subscription, at = _read_bytes(data, at + _TIMEOUTS.size)
    assignment, at = _read_bytes(data, at)
    member = MemberMetadata(
        member_id, client_id, client_host, session_timeout_ms, subscription, assignment, rebalance_timeout_ms,
        instance_id,
    )  # fmt: skip
    return member, at


def _nullable(text: str | None) -> bytes:
    return _NULL if text is None else encode_string(text)


def _read_nullable(data: bytes, at: int) -> tuple[str | None, int]:
    return (None, at + len(_NULL)) if data[at : at + len(_NULL)] == _NULL else decode_string(data, at)


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    [length] = _LENGTH.unpack_from(data, at)
    begin = at + _LENGTH.size
    if length < 0 or begin + length > len(data):
        raise ValueError("bytes that do not end")
    return data[begin : begin + length], begin + length
