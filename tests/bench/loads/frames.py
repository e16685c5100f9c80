"""Produce and Fetch requests encoded once: only correlation ids and offsets change while the load runs.

Responses are not decoded: with one topic and one partition, every field except the records has a fixed position.
"""

import struct
import time
from typing import Any, NamedTuple

from protocol.kafka.batch import HEADER_BYTES
from protocol.kafka.records import Record, encode_batch
from tests.support.raw_client import encode_request

RECORD_BYTES = 100
PRODUCE_VERSION = 11
FETCH_VERSION = 12
"""The last version that names topics; later ones differ by the topic's id only."""
MAX_TOPIC_NAME = 126
"""The length of a compact string up to this fits into one byte."""
LENGTH_BYTES = 4
CORRELATION_AT = LENGTH_BYTES + 4
Fields = dict[str, Any]
_OFFSET_MARK = 0x0123456789ABCDEF


class LoadError(RuntimeError):
    """The server's response is one that the load does not expect."""


def record_batch(records: int) -> bytes:
    """An uncompressed batch of records with 100-byte values and no keys."""
    now_ms = int(time.time() * 1000)
    value = b"v" * RECORD_BYTES
    return bytes(encode_batch([Record(delta, now_ms, None, value) for delta in range(records)], base_offset=0))


class ProduceFrames:
    """Produce requests of one batch to one partition, acks=all."""

    def __init__(self, topic: str, batch: bytes, partition: int = 0) -> None:
        fields: Fields = {
            "transactional_id": None,
            "acks": -1,
            "timeout_ms": 30_000,
            "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
        }
        frame = _framed("Produce", PRODUCE_VERSION, fields)
        self._head = frame[:CORRELATION_AT]
        self._rest = frame[CORRELATION_AT + 4 :]
        self._error = struct.Struct(">hq")
        # correlation id, tagged fields, array, topic name, array, partition index
        self._error_at = LENGTH_BYTES + 4 + 1 + 1 + _name_bytes(topic) + 1 + 4

    def request(self, correlation_id: int) -> list[bytes]:
        """The buffers of one request; the batch in them is shared by all."""
        return [self._head + correlation_id.to_bytes(4, "big"), self._rest]

    def base_offset(self, response: memoryview) -> int:
        """The base offset in a whole response with its length. Raises LoadError if the batch was refused."""
        error, base_offset = self._error.unpack_from(response, self._error_at)
        if error or base_offset < 0:
            raise LoadError(f"produce failed: error {error}, base offset {base_offset}")
        return int(base_offset)


class Fetched(NamedTuple):
    records_bytes: int
    first_offset: int
    """The base offset of the first batch, -1 if there is none."""


class FetchFrames:
    """Fetch requests for partition 0 without a session."""

    def __init__(self, topic: str, *, max_bytes: int, max_wait_ms: int) -> None:
        partition = {
            "partition": 0, "current_leader_epoch": -1, "fetch_offset": _OFFSET_MARK, "last_fetched_epoch": -1,
            "log_start_offset": -1, "partition_max_bytes": max_bytes,
        }  # fmt: skip
        fields: Fields = {
            "replica_id": -1, "max_wait_ms": max_wait_ms, "min_bytes": 1, "max_bytes": 50 << 20, "isolation_level": 0,
            "session_id": 0, "session_epoch": -1, "topics": [{"topic": topic, "partitions": [partition]}],
            "forgotten_topics_data": [], "rack_id": "",
        }  # fmt: skip
        self._frame = bytearray(_framed("Fetch", FETCH_VERSION, fields))
        self._offset_at = self._frame.index(_OFFSET_MARK.to_bytes(8, "big"))
        # correlation id, tagged fields, throttle time, error, session id, array, topic name, array, partition index
        self._error_at = LENGTH_BYTES + 4 + 1 + 4 + 2 + 4 + 1 + _name_bytes(topic) + 1 + 4
        self._error = struct.Struct(">h")
        # error, high watermark, last stable offset, log start, no aborted transactions, preferred replica
        self._records_at = self._error_at + 2 + 8 + 8 + 8 + 1 + 4

    def request(self, correlation_id: int, offset: int) -> bytes:
        struct.pack_into(">i", self._frame, CORRELATION_AT, correlation_id)
        struct.pack_into(">q", self._frame, self._offset_at, offset)
        return bytes(self._frame)

    def parse(self, response: memoryview) -> Fetched:
        """Parse a whole response with its length. Raises LoadError."""
        (error,) = self._error.unpack_from(response, self._error_at)
        if error:
            raise LoadError(f"fetch failed: error {error}")
        size, position = _unsigned_varint(response, self._records_at)
        size = max(0, size - 1)
        first = struct.unpack_from(">q", response, position)[0] if size >= HEADER_BYTES else -1
        return Fetched(size, first)


def _framed(api: str, version: int, fields: Fields) -> bytes:
    payload = encode_request(api, version, fields, correlation_id=0, client_id="bench")
    return len(payload).to_bytes(LENGTH_BYTES, "big") + payload


def _name_bytes(topic: str) -> int:
    if len(topic) > MAX_TOPIC_NAME:
        raise ValueError(f"topic names of this load have at most {MAX_TOPIC_NAME} characters")
    return 1 + len(topic)


def _unsigned_varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
