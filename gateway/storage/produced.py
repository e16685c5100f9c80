"""What a Produce request may carry for one partition, judged as Kafka's broker does before it appends."""

from __future__ import annotations

from typing import NamedTuple

from gateway.config import Limits
from gateway.storage.errors import KafkaError, RejectedRecords
from gateway.storage.message_entry import encode_records
from gateway.storage.topic import Topic
from protocol.kafka.batch import (
    HEADER_BYTES,
    MAGIC_V2,
    BatchHeader,
    InvalidTimestamp,
    check_batch,
    parse_header,
    set_log_append_time,
)
from protocol.kafka.compression import DecompressionError, UnsupportedCompression
from protocol.kafka.errors import ErrorCode
from protocol.kafka.recompression import recompress
from protocol.kafka.records import Record, decode_records
from protocol.kafka.up_conversion import up_convert

FIRST_BATCH_VERSION = 3
FIRST_ZSTD_VERSION = 7
ZSTD = 4
MAGIC_OFFSET = 16
CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": ZSTD}
"""By ``compression.type``; any other keeps the producer's."""
TIMESTAMP_AFTER, TIMESTAMP_BEFORE = "message.timestamp.after.max.ms", "message.timestamp.before.max.ms"
TIMESTAMP_DIFFERENCE = "message.timestamp.difference.max.ms"
"""Counts where the other two are not set."""


class Produced(NamedTuple):
    """One whole batch, ready to be appended."""

    data: memoryview
    header: BatchHeader
    log_append_time_ms: int
    messages: bytes | None = None
    """The records as Pulsar messages, where the topic holds those."""


def check_produced(
    records: memoryview | None, version: int, topic: Topic, limits: Limits, now_ms: int, *, transactional: bool
) -> Produced | None:
    """The one batch of ``records``; None for an empty message set of old clients, which is taken and not written.

    Raises KafkaError, CorruptBatch or InvalidBatch.
    """
    if records is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "no records")
    data = (
        _batch(records, version, transactional=transactional)
        if version >= FIRST_BATCH_VERSION
        else _converted(records, limits)
    )
    if data is None:
        return None
    header = parse_header(data)
    if version < FIRST_BATCH_VERSION:
        _check_allowed(header, version, transactional=transactional)
    if topic.compacts:
        _check_keys(_decoded(data, header, limits))
    if "compression.type" in topic.configs:
        data, header = _recompressed(data, header, topic.configs["compression.type"], limits)
    if header.size_bytes > int(topic.config("max.message.bytes")):
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
    log_append_time_ms = -1
    if topic.config("message.timestamp.type") == "LogAppendTime":
        set_log_append_time(data, 0, now_ms)
        header, log_append_time_ms = parse_header(data), now_ms
    else:
        _check_timestamps(header, topic, now_ms)
    if not topic.writes_messages:
        return Produced(data, header, log_append_time_ms)
    messages = encode_records(_decoded(data, header, limits), compacted=topic.compacts)
    return Produced(data, header, log_append_time_ms, messages)


def _batch(records: memoryview, version: int, *, transactional: bool) -> memoryview:
    """The batch of a v3+ request; fewer bytes than a header may follow it, and are dropped."""
    if len(records) > MAGIC_OFFSET and records[MAGIC_OFFSET] < 2:
        raise KafkaError(ErrorCode.INVALID_RECORD)
    if len(records) < HEADER_BYTES:
        raise KafkaError(ErrorCode.INVALID_RECORD)
    header = parse_header(records)
    if header.batch_length > 0 and header.size_bytes > len(records):
        raise KafkaError(ErrorCode.INVALID_RECORD)
    if header.magic != MAGIC_V2:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Unknown magic {header.magic}")
    if header.size_bytes < HEADER_BYTES:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"A batch of {header.size_bytes} bytes is smaller than its header")
    _check_allowed(header, version, transactional=transactional)
    check_batch(records, 0, header)
    rest = records[header.size_bytes :]
    if len(rest) > MAGIC_OFFSET:
        code = ErrorCode.INVALID_RECORD if rest[MAGIC_OFFSET] == 2 else ErrorCode.CORRUPT_MESSAGE
        raise KafkaError(code)
    return records[: header.size_bytes]


def _converted(records: memoryview, limits: Limits) -> memoryview | None:
    try:
        data = up_convert(records, max_bytes=limits.max_decompressed_bytes)
    except InvalidTimestamp as error:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, str(error)) from error
    except UnsupportedCompression as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
    except DecompressionError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
    return memoryview(data) if data else None


def _check_allowed(header: BatchHeader, version: int, *, transactional: bool) -> None:
    if header.compression == ZSTD and version < FIRST_ZSTD_VERSION:
        code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if version >= FIRST_BATCH_VERSION else ErrorCode.INVALID_RECORD
        raise KafkaError(code)
    if header.is_transactional:
        code = (
            ErrorCode.INVALID_PRODUCER_ID_MAPPING if transactional else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        )
        raise KafkaError(code, "transactions are not served by this gateway")


def _decoded(data: memoryview, header: BatchHeader, limits: Limits) -> list[Record]:
    """Records are looked into only where their keys count, or where each becomes a message."""
    try:
        return decode_records(data, 0, header, limits.max_decompressed_bytes)
    except DecompressionError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error


def _recompressed(
    data: memoryview, header: BatchHeader, compression_type: str, limits: Limits
) -> tuple[memoryview, BatchHeader]:
    """The batch with the topic's codec."""
    codec = CODECS.get(compression_type, header.compression)
    if codec == header.compression:
        return data, header
    try:
        data = memoryview(recompress(data, header, codec, limits.max_decompressed_bytes))
    except DecompressionError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
    return data, parse_header(data)


def _check_keys(records: list[Record]) -> None:
    """Compaction keeps the last record of each key."""
    keyless = [number for number, record in enumerate(records) if record.key is None]
    if keyless:
        raise RejectedRecords(dict.fromkeys(keyless, "Compacted topic cannot accept message without key."))


def _check_timestamps(header: BatchHeader, topic: Topic, now_ms: int) -> None:
    """By the batch's header: its first and its largest timestamp stand for those of its records."""
    after_ms = topic.configs.get(TIMESTAMP_AFTER) or topic.configs.get(TIMESTAMP_DIFFERENCE)
    if after_ms is not None:
        limit = now_ms + int(after_ms)
        if header.max_timestamp > limit:
            raise KafkaError(ErrorCode.INVALID_TIMESTAMP, f"Timestamp {header.max_timestamp} is above {limit}")
    before_ms = topic.configs.get(TIMESTAMP_BEFORE) or topic.configs.get(TIMESTAMP_DIFFERENCE)
    if before_ms is not None and header.base_timestamp >= 0:
        limit = now_ms - int(before_ms)
        if header.base_timestamp < limit:
            raise KafkaError(ErrorCode.INVALID_TIMESTAMP, f"Timestamp {header.base_timestamp} is below {limit}")
