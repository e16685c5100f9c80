"""The response to a Produce whose batches were all written, encoded by hand: it is the most frequent response.

A response with an error goes through the schema (`protocol.kafka.codec`).

Layout (https://kafka.apache.org/protocol, Produce API):

    v0     topics [name, partitions [index int32, error int16, base offset int64]]
    v1     + throttle time int32, last
    v2     + log append time int64 in each partition
    v5     + log start offset int64
    v8     + record errors (array), error message (nullable string)
    v9     flexible: compact lengths, and tagged fields after each struct
    v13    topics have an id (16 bytes) instead of their name
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from typing import Protocol

from protocol.kafka.fields import read_varint
from protocol.kafka.lengths import array_length, encoded_string

FIRST_FLEXIBLE_VERSION = 9
FIRST_TOPIC_ID_VERSION = 13
_ID_BYTES = 16
_INT = struct.Struct(">i")


class WrittenPartition(Protocol):
    """One batch that is in the log."""

    index: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


class WrittenTopic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> uuid.UUID | None: ...

    @property
    def partition_responses(self) -> Sequence[WrittenPartition]: ...


# The error 0 follows the index; from v8 on, the row ends with no record errors and no error message.
_PLAIN_ROW = struct.Struct(">ihq")
_TIMED_ROW = struct.Struct(">ihqq")
_STARTED_ROW = struct.Struct(">ihqqq")
_EXPLAINED_ROW = struct.Struct(">ihqqqih")
_FLEXIBLE_ROW = struct.Struct(">ihqqqBBB")
_NUMBERS_IN_ROW, _NUMBERS_BYTES = 6, 24
"""The position and the size of the two offsets and the time in a row, from v5 on."""


def encode_written(
    version: int, correlation_id: int, topics: Sequence[WrittenTopic], throttle_time_ms: int = 0
) -> bytes:
    """The whole response frame, length first."""
    flexible = version >= FIRST_FLEXIBLE_VERSION
    parts = [b"", b"\0" if flexible else b"", array_length(len(topics), flexible=flexible)]
    for topic in topics:
        rows = topic.partition_responses
        parts += (_named(version, topic), array_length(len(rows), flexible=flexible))
        parts += [_encode_row(version, row) for row in rows]
        if flexible:
            parts.append(b"\0")
    if version >= 1:
        parts.append(_INT.pack(throttle_time_ms))
    if flexible:
        parts.append(b"\0")
    size = sum(map(len, parts)) + 4
    parts[0] = struct.pack(">ii", size, correlation_id)
    return b"".join(parts)


def _named(version: int, topic: WrittenTopic) -> bytes:
    if version < FIRST_TOPIC_ID_VERSION:
        return encoded_string(topic.name, flexible=version >= FIRST_FLEXIBLE_VERSION)
    return bytes(_ID_BYTES) if topic.topic_id is None else topic.topic_id.bytes


def _row(version: int) -> struct.Struct:
    if version >= FIRST_FLEXIBLE_VERSION:
        return _FLEXIBLE_ROW
    if version >= 8:
        return _EXPLAINED_ROW
    if version >= 5:
        return _STARTED_ROW
    return _TIMED_ROW if version >= 2 else _PLAIN_ROW


def _encode_row(version: int, row: WrittenPartition) -> bytes:
    if version >= FIRST_FLEXIBLE_VERSION:
        return _FLEXIBLE_ROW.pack(
            row.index, 0, row.base_offset, row.log_append_time_ms, row.log_start_offset, 1, 0, 0
        )  # fmt: skip
    if version >= 8:
        return _EXPLAINED_ROW.pack(
            row.index, 0, row.base_offset, row.log_append_time_ms, row.log_start_offset, 0, -1
        )  # fmt: skip
    if version >= 5:
        return _STARTED_ROW.pack(row.index, 0, row.base_offset, row.log_append_time_ms, row.log_start_offset)
    if version >= 2:
        return _TIMED_ROW.pack(row.index, 0, row.base_offset, row.log_append_time_ms)
    return _PLAIN_ROW.pack(row.index, 0, row.base_offset)


class WrittenRow:
    """Responses to requests of one batch for the same partition: they differ only in four numbers. From v5 on."""

    __slots__ = ("_head", "_middle", "_pack", "_tail")

    def __init__(self, version: int, topic: WrittenTopic) -> None:
        """`topic` has one row, for the partition; the offsets and times in it are not used."""
        frame = encode_written(version, 0, [topic])
        flexible = version >= FIRST_FLEXIBLE_VERSION
        start = len(frame) - (flexible + _INT.size + flexible) - _row(version).size + _NUMBERS_IN_ROW
        end = start + _NUMBERS_BYTES
        self._head, self._middle, self._tail = frame[: _INT.size], frame[2 * _INT.size : start], frame[end:]
        self._pack = struct.Struct(f">4si{len(self._middle)}sqqq{len(self._tail)}s").pack

    def encode(self, correlation_id: int, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> bytes:
        """The same as `encode_written` for one row."""
        return self._pack(
            self._head, correlation_id, self._middle, base_offset, log_append_time_ms, log_start_offset, self._tail
        )

    def matches(self, frame: bytearray) -> bool:
        """Whether `encode` made this frame (given without its length)."""
        is_same_size = len(frame) == int.from_bytes(self._head, "big")
        return is_same_size and frame.startswith(self._middle, _INT.size) and frame.endswith(self._tail)


def is_written(version: int, frame: memoryview) -> bool:
    """Whether `encode_written` made this frame (given without its length). False if it has an error, or is invalid."""
    try:
        return _is_written(version, frame)
    except (struct.error, IndexError, ValueError):
        return False


def _is_written(version: int, frame: memoryview) -> bool:
    flexible = version >= FIRST_FLEXIBLE_VERSION
    topics, position = _count(frame, _INT.size + flexible, flexible)
    row = _row(version)
    for _ in range(topics):
        if version >= FIRST_TOPIC_ID_VERSION:
            size = _ID_BYTES
        elif flexible:
            size, position = _count(frame, position, flexible)
        else:
            size, position = int.from_bytes(frame[position : position + 2], "big"), position + 2
        rows, position = _count(frame, position + size, flexible)
        for _ in range(rows):
            if row.unpack_from(frame, position)[1] or (flexible and frame[position + row.size - 1]):
                return False
            position += row.size
        position += flexible
    return position + (_INT.size if version >= 1 else 0) + flexible == len(frame)


def _count(frame: memoryview, position: int, flexible: bool) -> tuple[int, int]:
    if flexible:
        length, position = read_varint(frame, position)
        return length - 1, position
    return _INT.unpack_from(frame, position)[0], position + _INT.size
