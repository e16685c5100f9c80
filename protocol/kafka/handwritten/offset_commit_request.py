"""Where the committed offsets are in an OffsetCommit request, from v6 on.

Layout (https://kafka.apache.org/protocol, OffsetCommit API), after the header:

    v6     group id, generation int32, member id, topics [name, partitions [index int32, offset int64, leader epoch
           int32, metadata]]
    v7     + group instance id (nullable), after the member id
    v8     flexible: compact lengths, and tagged fields after each struct
"""

from __future__ import annotations

import struct

from protocol.kafka.fields import read_varint, skip_tagged_fields

FIRST_VERSION = 6
FIRST_INSTANCE_VERSION = 7
FIRST_FLEXIBLE_VERSION = 8
OFFSET = struct.Struct(">qi")
"""An offset, and its leader epoch."""
_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")


def offset_positions(version: int, frame: memoryview, position: int) -> list[int]:
    """The positions of the rows' `OFFSET`, in a valid frame whose body begins at `position`."""
    flexible = version >= FIRST_FLEXIBLE_VERSION
    position = _skip_string(frame, position, flexible=flexible) + _INT.size
    for _ in range(2 if version >= FIRST_INSTANCE_VERSION else 1):
        position = _skip_string(frame, position, flexible=flexible)
    found: list[int] = []
    topics, position = _count(frame, position, flexible=flexible)
    for _ in range(topics):
        position = _skip_string(frame, position, flexible=flexible)
        rows, position = _count(frame, position, flexible=flexible)
        for _ in range(rows):
            position += _INT.size
            found.append(position)
            position = _skip_string(frame, position + OFFSET.size, flexible=flexible)
            position = skip_tagged_fields(frame, position) if flexible else position
        position = skip_tagged_fields(frame, position) if flexible else position
    return found


def _count(frame: memoryview, position: int, *, flexible: bool) -> tuple[int, int]:
    if flexible:
        length, position = read_varint(frame, position)
        return length - 1, position
    return _INT.unpack_from(frame, position)[0], position + _INT.size


def _skip_string(frame: memoryview, position: int, *, flexible: bool) -> int:
    if flexible:
        length, position = read_varint(frame, position)
        return position + max(0, length - 1)
    (length,) = _SHORT.unpack_from(frame, position)
    return position + _SHORT.size + max(0, int(length))
