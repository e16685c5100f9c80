"""Checks what a Produce request contains for one partition, as Kafka's broker does before it appends."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import repeat
from typing import NamedTuple

from gateway.config.limits import Limits
from gateway.errors import KafkaError, RejectedRecords, UndecompressableRecords
from gateway.log.entries.message_entry import Messages, compaction_keys, encode_entry, encode_record
from gateway.topics.topic import Topic
from gateway.topics.topic_configs import DEFAULTS
from protocol.kafka.batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    TRANSACTIONAL_MASK,
    BatchHeader,
    CorruptBatch,
    InvalidBatch,
    InvalidTimestamp,
    check_batch,
    parse_header,
    set_log_append_time,
)
from protocol.kafka.compression import (
    NONE,
    ZSTD,
    DecompressedTooLarge,
    DecompressionError,
    UnsupportedCompression,
    decompress,
    decompress_start,
)
from protocol.kafka.errors import ErrorCode
from protocol.kafka.recompression import recompress
from protocol.kafka.records import check_records, parse_records
from protocol.kafka.up_conversion import up_convert

FIRST_BATCH_VERSION = 3
FIRST_ZSTD_VERSION = 7
LENGTH_OFFSET, MAGIC_OFFSET = 8, 16
SMALLEST_LENGTH = 14
"""Of a message of magic 0 without key and value."""
_LENGTH = struct.Struct(">i")
CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": ZSTD}
"""The codec of each ``compression.type``. With any other value the producer's codec is kept."""
TIMESTAMP_AFTER, TIMESTAMP_BEFORE = "message.timestamp.after.max.ms", "message.timestamp.before.max.ms"
TIMESTAMP_DIFFERENCE = "message.timestamp.difference.max.ms"
"""Applies where the other two settings are not set."""


CHECKED_RECORDS, CHECKED_BYTES = 8, 4 * 1024
"""The beginning of a batch's records that is checked before the records are stored unchanged."""
_CHECKED_END = HEADER_BYTES + CHECKED_BYTES
SMALLEST_RECORD = 7
"""Bytes of a record without key, value and headers."""
MAX_NAMED_RECORDS = 1_000
"""The largest number of bad records of a batch that an error names."""
_ANY_NUMBER = 2**31
_COMMON_ATTRIBUTES = COMPRESSION_MASK | TRANSACTIONAL_MASK


class Produced(NamedTuple):
    """One whole batch, ready to be appended."""

    data: memoryview
    header: BatchHeader
    log_append_time_ms: int
    messages: Messages | None = None
    """The records as Pulsar messages, if the topic stores messages."""


class Effort(NamedTuple):
    """How much data may be decompressed and checked."""

    max_bytes: int
    max_records: int

    @property
    def is_limited(self) -> bool:
        """Whether a batch that needs more effort is left to a thread."""
        return self.max_records < _ANY_NUMBER


IN_THE_LOOP = Effort(256 * 1024, 1_000)
"""The limit in the event loop: about two milliseconds of work."""


class HeavyRecordsError(Exception):
    """Checking the records needs more effort than is allowed."""


def check_produced(
    records: memoryview | None,
    version: int,
    topic: Topic,
    limits: Limits,
    now_ms: int,
    *,
    transactional: bool,
    effort: Effort | None = None,
) -> Produced | None:
    """The one batch of ``records``; None for an empty message set of old clients, which is accepted and not written.

    Raises KafkaError, CorruptBatch or InvalidBatch. Raises HeavyRecordsError before anything is changed: the caller
    may then repeat the call in a thread, without a limit to the effort.
    """
    if records is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "no records")
    effort = effort or Effort(limits.max_decompressed_bytes, _ANY_NUMBER)
    try:
        opened = _opened(records, version, topic, effort, transactional=transactional)
    except (InvalidBatch, KafkaError) as error:
        if effort.is_limited and _is_too_large(error):
            raise HeavyRecordsError from error
        raise
    return None if opened is None else _accepted(opened, topic, limits, now_ms)


class _Opened(NamedTuple):
    data: memoryview
    header: BatchHeader
    plain: bytes | None
    """The uncompressed records, if they are needed for more than storing them."""


def _opened(
    records: memoryview, version: int, topic: Topic, effort: Effort, *, transactional: bool
) -> _Opened | None:
    if version < FIRST_BATCH_VERSION:
        if effort.is_limited and len(records) > effort.max_bytes:
            raise HeavyRecordsError
        data = _converted(records, effort.max_bytes)
        if data is None:
            return None
        header = parse_header(data)
        _check_allowed(header, version, transactional=transactional)
    else:
        header = _checked_header(records, version, transactional=transactional)
        data = records[: header.size_bytes]  # fewer bytes than a header may follow; they are dropped
    if _codec(topic, header) == header.compression and not topic.compacts and not topic.writes_messages:
        _check_start(data, header)
        return _Opened(data, header, None)
    if effort.is_limited and (header.record_count > effort.max_records or header.size_bytes > effort.max_bytes):
        raise HeavyRecordsError
    return _Opened(data, header, _plain(data, header, effort.max_bytes))


def _accepted(opened: _Opened, topic: Topic, limits: Limits, now_ms: int) -> Produced:
    data, header, plain = opened
    _check_size(header, topic)  # as it was sent, and as it is stored
    if plain is not None and not topic.writes_messages:  # otherwise `_messages` checks them
        _check_each(plain, header, keyed=topic.compacts)
    if plain is not None and (codec := _codec(topic, header)) != header.compression:
        data = memoryview(recompress(data, header, codec, plain))
        header = parse_header(data)
        _check_size(header, topic)
    log_append_time_ms = -1
    if topic.config("message.timestamp.type") == "LogAppendTime":
        data = memoryview(bytearray(data))  # the request's records may be checked once more
        set_log_append_time(data, 0, now_ms)
        header, log_append_time_ms = parse_header(data), now_ms
    else:
        _check_timestamps(header, topic, now_ms)
    if plain is None or not topic.writes_messages:
        return Produced(data, header, log_append_time_ms)
    messages = _messages(
        plain, header, limits.max_decompressed_bytes, compacted=topic.compacts, own_keys=topic.has_compaction_keys
    )
    if len(messages) <= IN_THE_LOOP.max_bytes:
        return Produced(data, header, log_append_time_ms, messages)
    # Compressing them takes long, too.
    return Produced(data, header, log_append_time_ms, encode_entry([(header, messages)], compacted=topic.compacts))


# The common batch


def takes_as_sent(topic: Topic) -> bool:
    """Whether a valid batch is stored unchanged, without a check of its timestamps."""
    return (
        not topic.compacts
        and not topic.writes_messages
        and topic.config("message.timestamp.type") != "LogAppendTime"
        and topic.configs.get("compression.type", "") not in CODECS
        and not any(name in topic.configs for name in (TIMESTAMP_AFTER, TIMESTAMP_BEFORE, TIMESTAMP_DIFFERENCE))
    )


def check_common(data: memoryview, version: int, max_bytes: int) -> BatchHeader | None:
    """The header of a batch of a v3+ request that `check_produced` would accept for a topic that ``takes_as_sent``.

    None if `check_produced` might refuse the batch: only that function gives the reason.
    """
    size_bytes = len(data)
    if not HEADER_BYTES <= size_bytes <= max_bytes:
        return None
    header = parse_header(data)
    codec = header.attributes & COMPRESSION_MASK
    if header.batch_length != size_bytes - LOG_OVERHEAD_BYTES or header.attributes & ~_COMMON_ATTRIBUTES:
        return None
    if codec == ZSTD and version < FIRST_ZSTD_VERSION:
        return None
    try:
        check_batch(data, 0, header)
        _check_start(data, header)
    except (CorruptBatch, InvalidBatch, UndecompressableRecords, UnsupportedCompression):
        return None
    return header


def _codec(topic: Topic, header: BatchHeader) -> int:
    """The codec of the batch as it is stored."""
    return CODECS.get(topic.configs.get("compression.type", ""), header.compression)


def _is_too_large(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, DecompressedTooLarge):
        error = error.__cause__
    return error is not None


def _checked_header(records: memoryview, version: int, *, transactional: bool) -> BatchHeader:
    """The header of the batch of a v3+ request, after its checks."""
    _check_extent(records)
    header = parse_header(records)
    _check_allowed(header, version, transactional=transactional)
    check_batch(records, 0, header)
    magic_of_next = header.size_bytes + MAGIC_OFFSET
    if len(records) > magic_of_next:
        code = ErrorCode.INVALID_RECORD if records[magic_of_next] == 2 else ErrorCode.CORRUPT_MESSAGE
        raise KafkaError(code)
    return header


def _check_extent(records: memoryview) -> None:
    """Whether a whole v2 batch may begin here. Kafka looks at its length first, then at its magic, then for its end."""
    if len(records) < LOG_OVERHEAD_BYTES:
        raise KafkaError(ErrorCode.INVALID_RECORD)
    (length,) = _LENGTH.unpack_from(records, LENGTH_OFFSET)
    if length < SMALLEST_LENGTH:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"A batch cannot have a length of {length} bytes")
    if len(records) <= MAGIC_OFFSET:
        raise KafkaError(ErrorCode.INVALID_RECORD)
    magic, size_bytes = records[MAGIC_OFFSET], length + LOG_OVERHEAD_BYTES
    if magic > MAGIC_V2:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Unknown magic {magic}")
    if magic < MAGIC_V2 or size_bytes > len(records):
        raise KafkaError(ErrorCode.INVALID_RECORD)
    if size_bytes < HEADER_BYTES:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"A batch of {size_bytes} bytes is smaller than its header")


def _converted(records: memoryview, max_bytes: int) -> memoryview | None:
    try:
        data = up_convert(records, max_bytes=max_bytes)
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
    if header.is_transactional and not transactional:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def _check_start(data: memoryview, header: BatchHeader) -> None:
    """Checks the first few records. Refuses data that is not a record, a wrong record count in a small batch, and one
    that cannot be right.

    Kafka checks every record. That would cost more than all other work on a batch.
    """
    codec = header.attributes & COMPRESSION_MASK
    if codec == NONE:
        if header.record_count * SMALLEST_RECORD > len(data) - HEADER_BYTES:
            raise InvalidBatch(f"{header.record_count} records announced in {len(data)} bytes")
        start, whole = bytes(data[HEADER_BYTES:_CHECKED_END]), len(data) <= _CHECKED_END
        check_records(start, header.record_count, CHECKED_RECORDS, whole=whole, sized=True)
        return
    try:
        found = decompress_start(codec, data[HEADER_BYTES:], CHECKED_BYTES)
    except DecompressionError as error:
        raise UndecompressableRecords(str(error)) from error
    if found is not None:
        check_records(found.plain, header.record_count, CHECKED_RECORDS, whole=found.whole, sized=False)


def _plain(data: memoryview, header: BatchHeader, max_bytes: int) -> bytes:
    try:
        return decompress(header.compression, data[HEADER_BYTES : header.size_bytes], max_bytes)
    except DecompressionError as error:
        raise UndecompressableRecords(str(error)) from error


def _check_each(plain: bytes, header: BatchHeader, *, keyed: bool) -> None:
    """With ``keyed``, each record needs a key: compaction keeps the last record of each key."""
    records = enumerate(parse_records(plain, header))
    _refuse_keyless(number for number, record in records if record.key is None and keyed)


def _refuse_keyless(numbers: Iterable[int]) -> None:
    keyless = [*numbers]
    if keyless:
        reason = "Compacted topic cannot accept message without key."
        raise RejectedRecords(dict.fromkeys(keyless[:MAX_NAMED_RECORDS], reason))


def _messages(plain: bytes, header: BatchHeader, max_bytes: int, *, compacted: bool, own_keys: bool) -> bytes:
    """Raises KafkaError MESSAGE_TOO_LARGE for records that could not be read back, and the errors of `_check_each`."""
    messages, keyless = bytearray(), []
    keys = compaction_keys() if own_keys else repeat(None)
    for number, record in enumerate(parse_records(plain, header)):
        if compacted and record.key is None:
            keyless.append(number)
        messages += encode_record(record, compacted=compacted or own_keys, compaction_key=next(keys))
        if len(messages) > max_bytes:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
    _refuse_keyless(keyless)
    return bytes(messages)


def _check_size(header: BatchHeader, topic: Topic) -> None:
    if header.size_bytes > int(topic.config("max.message.bytes")):
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)


def _check_timestamps(header: BatchHeader, topic: Topic, now_ms: int) -> None:
    """Checks the batch's header: its first and its largest timestamp stand for those of its records."""
    after_ms = _bound(topic, TIMESTAMP_AFTER)
    if after_ms is not None:
        limit = now_ms + int(after_ms)
        if header.max_timestamp > limit:
            raise KafkaError(ErrorCode.INVALID_TIMESTAMP, f"Timestamp {header.max_timestamp} is above {limit}")
    before_ms = _bound(topic, TIMESTAMP_BEFORE)
    if before_ms is not None and header.base_timestamp >= 0:
        limit = now_ms - int(before_ms)
        if header.base_timestamp < limit:
            raise KafkaError(ErrorCode.INVALID_TIMESTAMP, f"Timestamp {header.base_timestamp} is below {limit}")


def _bound(topic: Topic, name: str) -> str | None:
    """The older setting, for past and future, counts where this one has its default. None if neither is set."""
    own = topic.configs.get(name)
    return topic.configs.get(TIMESTAMP_DIFFERENCE) if own in {None, DEFAULTS[name]} else own
