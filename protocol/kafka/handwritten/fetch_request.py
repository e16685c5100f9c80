"""The fields of a Fetch request that a gateway changes when it forwards the request, and the end of these fields.

Layout (https://kafka.apache.org/protocol, Fetch API), after the header:

    v0     replica id int32, max wait int32, min bytes int32
    v3     + max bytes int32
    v4     isolation level int8
    v7     session id int32, session epoch int32
    v15    no replica id
"""

from __future__ import annotations

import struct

from protocol.kafka.codec import MalformedRequest, parse_header

FIRST_BOUNDED_VERSION = 3
FIRST_SESSION_VERSION = 7
FIRST_FLEXIBLE_VERSION = 12
FIRST_WITHOUT_REPLICA_VERSION = 15
_INT = struct.Struct(">i")
_ISOLATION_LEVEL_BYTES = 1


def limit_max_bytes(frame: bytearray, version: int, max_bytes: int) -> None:
    """Lower the field, in place; up to v2 there is none. Raises MalformedRequest."""
    if version < FIRST_BOUNDED_VERSION:
        return
    position = _max_bytes_position(frame, version)
    try:
        (asked,) = _INT.unpack_from(frame, position)
        _INT.pack_into(frame, position, min(asked, max_bytes))
    except struct.error as error:
        raise MalformedRequest("FetchRequest is cut off") from error


def do_not_wait(frame: bytearray, version: int) -> None:
    """Set the maximum wait to 0, in place. Raises MalformedRequest."""
    try:
        _INT.pack_into(frame, _max_bytes_position(frame, version) - 2 * _INT.size, 0)
    except struct.error as error:
        raise MalformedRequest("FetchRequest is cut off") from error


def set_session_id(frame: bytearray, version: int, session_id: int) -> None:
    """Replace the field, in place; up to v6 there is none. Raises MalformedRequest."""
    if version < FIRST_SESSION_VERSION:
        return
    position = _max_bytes_position(frame, version) + _INT.size + _ISOLATION_LEVEL_BYTES
    try:
        _INT.pack_into(frame, position, session_id)
    except struct.error as error:
        raise MalformedRequest("FetchRequest is cut off") from error


def session_epoch_position(frame: bytearray, version: int) -> int:
    """From v7 on. Raises MalformedRequest."""
    return _max_bytes_position(frame, version) + _INT.size + _ISOLATION_LEVEL_BYTES + _INT.size


def _max_bytes_position(frame: bytearray, version: int) -> int:
    with memoryview(frame) as view:
        body = parse_header(view, flexible=version >= FIRST_FLEXIBLE_VERSION).body
    return body + (2 if version >= FIRST_WITHOUT_REPLICA_VERSION else 3) * _INT.size
