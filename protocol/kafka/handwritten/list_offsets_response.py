"""The response to ListOffsets, encoded by hand, because readers like Spark's request both ends of a log in every poll.

Layout (https://kafka.apache.org/protocol, ListOffsets API); v0, which has lists of offsets, goes through the schema:

    v1     topics [name, partitions [index int32, error int16, timestamp int64, offset int64]]
    v2     + throttle time int32, first
    v4     + leader epoch int32 in each partition
    v6     flexible: compact lengths, and tagged fields after each struct
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Protocol

from protocol.kafka.lengths import array_length, encoded_string

FIRST_VERSION = 1
FIRST_FLEXIBLE_VERSION = 6
_HEAD = struct.Struct(">ii")
_THROTTLE = struct.Struct(">i")
_ROW = struct.Struct(">ihqq")
_EPOCH_ROW = struct.Struct(">ihqqi")
_FLEXIBLE_ROW = struct.Struct(">ihqqiB")


class ListedPartition(Protocol):
    """The offset that was found, with its timestamp; -1 if there is none."""

    @property
    def partition_index(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...


class ListedTopic(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> Sequence[ListedPartition]: ...


def encode_listed(
    version: int, correlation_id: int, topics: Sequence[ListedTopic], throttle_time_ms: int = 0
) -> bytes:
    """The whole response frame, length first, from v1 on."""
    flexible = version >= FIRST_FLEXIBLE_VERSION
    parts = [b"", b"\0" if flexible else b"", _THROTTLE.pack(throttle_time_ms) if version >= 2 else b""]
    parts.append(array_length(len(topics), flexible=flexible))
    for topic in topics:
        rows = topic.partitions
        parts += (encoded_string(topic.name, flexible=flexible), array_length(len(rows), flexible=flexible))
        parts += [_encode_row(version, row) for row in rows]
        if flexible:
            parts.append(b"\0")
    if flexible:
        parts.append(b"\0")
    parts[0] = _HEAD.pack(4 + sum(map(len, parts)), correlation_id)
    return b"".join(parts)


def _encode_row(version: int, row: ListedPartition) -> bytes:
    if version >= FIRST_FLEXIBLE_VERSION:
        return _FLEXIBLE_ROW.pack(
            row.partition_index, row.error_code, row.timestamp, row.offset, row.leader_epoch, 0
        )  # fmt: skip
    if version >= 4:
        return _EPOCH_ROW.pack(row.partition_index, row.error_code, row.timestamp, row.offset, row.leader_epoch)
    return _ROW.pack(row.partition_index, row.error_code, row.timestamp, row.offset)
