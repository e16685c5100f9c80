"""The partitions in Fetch requests and in their answers, read and encoded by hand where they have nothing unusual.

Everything else goes through the schema (`protocol.kafka.codec`).

Layout (https://kafka.apache.org/protocol, Fetch API) from v9 on. A request, after its session epoch:

    v9     topics [name, partitions [index int32, leader epoch int32, offset int64, log start int64, max bytes int32]],
           forgotten topics (array)
    v11    + rack id, last
    v12    flexible: compact lengths, and tagged fields after each struct; + last fetched epoch int32 after the offset
    v13    topics have an id (16 bytes) instead of their name

A response, after its length:

    v9     correlation id int32, throttle time int32, error int16, session id int32, topics [name, partitions [index
           int32, error int16, high watermark int64, last stable offset int64, log start int64, aborted transactions
           (array), records (bytes)]]
    v11    + preferred read replica int32, before the records
    v12, v13: as the request; the header has tagged fields, too
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

from protocol.kafka.buffers import Buffer
from protocol.kafka.lengths import array_length, compact_length, encoded_string

FIRST_RACK_VERSION = 11
FIRST_FLEXIBLE_VERSION = 12
FIRST_TOPIC_ID_VERSION = 13
JOIN_BELOW_BYTES = 16_384
"""Below this average size, buffers are joined, as by the codec."""

_ID_BYTES = 16
_INT = struct.Struct(">i")
_NO_EPOCH = -1
_NO_REPLICA = -1


class AskedRow(NamedTuple):
    """A partition of a request."""

    topic: bytes
    """The topic's id, or its name with the length, as in the request and in its answer."""
    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int
    fetched_epoch: int


class FetchedRow(NamedTuple):
    """A partition of a response, without an error. All its transactions are decided, and none was aborted."""

    partition: int
    high_watermark: int
    log_start: int
    chunks: Sequence[Buffer]
    """The records."""
    size_bytes: int


class FetchRows:
    """The rows of one version."""

    def __init__(self, version: int) -> None:
        self._flexible = version >= FIRST_FLEXIBLE_VERSION
        self._by_id = version >= FIRST_TOPIC_ID_VERSION
        self._with_replica = version >= FIRST_RACK_VERSION
        self._asked = struct.Struct(">iiqiqiB" if self._flexible else ">iiqqi")
        if self._flexible:
            self._request_end = b"\1\1\0"
            self._head, self._row = struct.Struct(">iiBihi"), struct.Struct(">ihqqqBi")
        else:
            self._request_end = bytes(6 if self._with_replica else 4)
            row = ">ihqqqii" if self._with_replica else ">ihqqqi"
            self._head, self._row = struct.Struct(">iiihi"), struct.Struct(row)

    # Requests

    def read(self, frame: bytearray, position: int) -> list[AskedRow] | None:
        """The rows of a request, whose topics begin at `position`.

        None if the request names forgotten topics or a rack, if it has anything else that is unusual, or is invalid.
        """
        try:
            return self._read(frame, position)
        except (struct.error, IndexError):
            return None

    def _read(self, frame: bytearray, position: int) -> list[AskedRow] | None:
        rows: list[AskedRow] = []
        topics, position = self._count(frame, position)
        for _ in range(topics):
            end = position + _ID_BYTES if self._by_id else self._name_end(frame, position)
            topic = bytes(frame[position:end])
            partitions, position = self._count(frame, end)
            for _ in range(partitions):
                rows.append(self._asked_row(topic, frame, position))
                position += self._asked.size
            if self._flexible:
                if frame[position]:
                    return None
                position += 1
        return rows if frame[position:] == self._request_end else None

    def _asked_row(self, topic: bytes, frame: bytearray, position: int) -> AskedRow:
        fields = self._asked.unpack_from(frame, position)
        if not self._flexible:
            partition, leader_epoch, offset, _log_start, max_bytes = fields
            return AskedRow(topic, partition, offset, max_bytes, leader_epoch, _NO_EPOCH)
        partition, leader_epoch, offset, fetched_epoch, _log_start, max_bytes, tags = fields
        if tags:
            raise IndexError("tagged fields")
        return AskedRow(topic, partition, offset, max_bytes, leader_epoch, fetched_epoch)

    def _count(self, frame: bytearray, position: int) -> tuple[int, int]:
        """The length of an array, and the position after it. Raises IndexError for none, and for a long one."""
        if not self._flexible:
            count, position = _INT.unpack_from(frame, position)[0], position + _INT.size
        else:
            count, position = frame[position] - 1, position + 1
        if not 0 <= count < 0x7F:
            raise IndexError("an unusual array")
        return count, position

    def _name_end(self, frame: bytearray, position: int) -> int:
        if not self._flexible:
            return position + 2 + int.from_bytes(frame[position : position + 2], "big")
        if (low := frame[position]) < 0x80:
            return position + low
        return position + 1 + (low & 0x7F | frame[position + 1] << 7)

    def topic(self, encoded: bytes) -> str | uuid.UUID:
        """The topic of an `AskedRow`. Raises UnicodeDecodeError."""
        if self._by_id:
            return uuid.UUID(bytes=encoded)
        return encoded[2 if not self._flexible or encoded[0] >= 0x80 else 1 :].decode()

    def encoded_topic(self, topic: str | uuid.UUID) -> bytes:
        """The reverse of `topic`."""
        return topic.bytes if isinstance(topic, uuid.UUID) else encoded_string(topic, flexible=self._flexible)

    # Answers

    def encode(
        self, correlation_id: int, session_id: int, topics: Iterable[tuple[bytes, Sequence[FetchedRow]]], *,
        read_committed: bool,
    ) -> list[Buffer]:  # fmt: skip
        """The response frame, length first, as buffers to be written in order: the same bytes as the codec's."""
        buffers: list[Buffer] = []
        topics = tuple(topics)
        small = [self._start(correlation_id, session_id), array_length(len(topics), flexible=self._flexible)]
        for topic, rows in topics:
            small += (topic, array_length(len(rows), flexible=self._flexible))
            for row in rows:
                small.append(self._encoded_row(row, read_committed=read_committed))
                if row.size_bytes:
                    buffers.append(b"".join(small))
                    buffers += row.chunks
                    small = []
                if self._flexible:
                    small.append(b"\0")
            if self._flexible:
                small.append(b"\0")
        if self._flexible:
            small.append(b"\0")
        if small:
            buffers.append(b"".join(small))
        return _framed(buffers)

    def _start(self, correlation_id: int, session_id: int) -> bytes:
        """Everything before the topics; the length and the throttle time are 0, and there is no error."""
        if self._flexible:
            return self._head.pack(0, correlation_id, 0, 0, 0, session_id)
        return self._head.pack(0, correlation_id, 0, 0, session_id)

    def _encoded_row(self, row: FetchedRow, *, read_committed: bool) -> bytes:
        """Up to the records. With read_committed, the list of aborted transactions is empty, otherwise it is null."""
        partition, end, start, _, size_bytes = row
        if self._flexible:
            head = self._row.pack(partition, 0, end, end, start, int(read_committed), _NO_REPLICA)
            return head + compact_length(size_bytes)
        aborted = 0 if read_committed else -1
        if self._with_replica:
            return self._row.pack(partition, 0, end, end, start, aborted, _NO_REPLICA) + _INT.pack(size_bytes)
        return self._row.pack(partition, 0, end, end, start, aborted) + _INT.pack(size_bytes)


def _framed(buffers: list[Buffer]) -> list[Buffer]:
    """The first buffer begins with room for the length."""
    total = sum(map(len, buffers))
    buffers[0] = _INT.pack(total - _INT.size) + buffers[0][_INT.size :]
    return [b"".join(buffers)] if total < JOIN_BELOW_BYTES * len(buffers) else buffers


@cache
def fetch_rows(version: int) -> FetchRows:
    return FetchRows(version)
