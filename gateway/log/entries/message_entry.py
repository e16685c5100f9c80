"""Record batches as an ordinary Pulsar batch, one message for each record, and back (``entry.format=pulsar``).

Native consumers see messages with the record's key, value, headers as properties, and timestamp as event time; Pulsar's
compaction sees their keys. Properties keep what only Kafka has, so that the gateway can restore it:

    of the entry   entry.format   "pulsar"
                   kafka.batches  for each batch `count,attributes,producer id,producer epoch,base sequence`, separated
                                  by semicolons: the producer states can be rebuilt from the log
                   kafka.control  of a transaction marker, `type,coordinator epoch`: a marker is an entry of its own
                                  with one message
                   kafka.removes  the messages are no records: tombstones of compaction keys (see below), or one
                                  without a key, for the sake of the entry's other properties
    of a message,  kafka.record   words, separated by spaces:
    where needed                  `empty`     the value is empty and stored as one byte, because compaction treats
                                              messages without bytes as tombstones
                                  `null`      the value is null and stored as one byte, so that it is no tombstone
                                  `3v`, `3n`  the value of header 3 is stored as base64 (v), or is null (n)
                                  `3k`, `3K`  name and value of header 3 are stored as base64; with K, the value is null

In a compacted topic with transactions Pulsar must not decide which message of a key is the last one: that may be of an
aborted transaction. There each message has its own compaction key as its key, and the record's key as its ordering key.
So Pulsar's compaction keeps all messages except those whose compaction keys have tombstones.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import chain, count, islice
from typing import NamedTuple

from protocol.kafka.batch import CONTROL_MASK, NO_SEQUENCE, BatchHeader
from protocol.kafka.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from protocol.kafka.offset_span import gap_batch, span_offsets
from protocol.kafka.records import Headers, Record, encode_batch
from protocol.kafka.transaction_marker import MarkerType, TransactionMarker, encode_marker
from protocol.pulsar.entry import EntryError, NativeMessage, compress, encode_message
from protocol.pulsar.frames import encode_metadata_properties
from protocol.pulsar.pulsar_commands_pb2 import CompressionType, MessageMetadata

FORMAT_PROPERTY, MESSAGES_FORMAT = "entry.format", "pulsar"
BATCHES_PROPERTY = "kafka.batches"
_INT16, _INT32, _INT64 = 2**15, 2**31, 2**63
RECORD_PROPERTY = "kafka.record"
CONTROL_PROPERTY = "kafka.control"
REMOVES_PROPERTY = "kafka.removes"
EMPTY, NULL = "empty", "null"
STANDS_FOR_EMPTY = b"\0"
_HERE_ALONE = MessageMetadata(replicate_to=["__local__"]).SerializePartialToString()
"""Other clusters have the records in another order. Pulsar's own name for messages that are not replicated."""
_KEY_BYTES = 12
MAX_PLAIN_BYTES = 4 * 1024 * 1024
"""Pulsar takes 5 MiB by default, with the metadata."""
_TIMESTAMP_TYPE, _TRANSACTIONAL = 0x08, 0x10
_NO_TIMESTAMP = -1
_CODECS = {
    NONE: CompressionType.NONE,
    GZIP: CompressionType.ZLIB,
    SNAPPY: CompressionType.SNAPPY,
    LZ4: CompressionType.LZ4,
    ZSTD: CompressionType.ZSTD,
}

Properties = list[tuple[str, bytes]]


class StoredBatch(NamedTuple):
    """The fields of a record batch that an entry keeps besides the records."""

    record_count: int
    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


class EncodedEntry(NamedTuple):
    """An entry's payload; ``fields`` are the encoded fields of its MessageMetadata."""

    payload: bytes
    fields: bytes


Messages = bytes | EncodedEntry
"""The messages of one batch, to be put into an entry with others; or a complete entry."""


def compaction_keys() -> Iterator[bytes]:
    """No other message has such a key: the keys of one batch begin with the same random characters."""
    batch = base64.b64encode(os.urandom(_KEY_BYTES))
    return (b"%s.%d" % (batch, number) for number in count())


def encode_record(record: Record, *, compacted: bool, compaction_key: bytes | None = None) -> bytes:
    """The message of a record. ``compacted`` protects empty values from Pulsar's compaction; ``compaction_key`` all."""
    return _message(record, compacted, compaction_key)


def encode_removals(keys: Sequence[bytes]) -> EncodedEntry:
    """An entry with which Pulsar's compaction removes the messages of these compaction keys."""
    plain = b"".join([encode_message(None, key=key) for key in keys])
    stored = [(FORMAT_PROPERTY, MESSAGES_FORMAT), (BATCHES_PROPERTY, f"{len(keys)},0,-1,-1,-1"), (REMOVES_PROPERTY, "")]
    metadata = MessageMetadata(compression=CompressionType.LZ4, uncompressed_size=len(plain))
    fields = encode_metadata_properties(stored) + metadata.SerializePartialToString() + _HERE_ALONE
    return EncodedEntry(compress(CompressionType.LZ4, plain), fields)


def encode_no_record() -> EncodedEntry:
    """An entry for this cluster alone, which has nothing but properties. It takes an offset."""
    stored = [(FORMAT_PROPERTY, MESSAGES_FORMAT), (BATCHES_PROPERTY, "1,0,-1,-1,-1"), (REMOVES_PROPERTY, "")]
    return EncodedEntry(encode_message(None), encode_metadata_properties(stored) + _HERE_ALONE)


def encode_entry(batches: Sequence[tuple[BatchHeader, bytes]], *, compacted: bool = False) -> EncodedEntry:
    """One entry of batches, each with its encoded messages; the first compressed batch decides the compression.

    In a compacted topic, only what may otherwise be too large for Pulsar is compressed: its compaction copies messages
    into a buffer as large as the compressed ones. It mostly grows, but not before a key or a property. The compaction
    then fails, now and for ever (apache/pulsar#26290).
    """
    plain = b"".join([messages for _, messages in batches])
    codec = next((header.compression for header, _ in batches if header.compression), NONE)
    if compacted and len(plain) <= MAX_PLAIN_BYTES:
        codec = NONE
    stored = ";".join(
        f"{header.last_offset_delta + 1},{header.attributes},{header.producer_id},{header.producer_epoch},"
        f"{header.base_sequence}"
        for header, _ in batches
    )
    fields = encode_metadata_properties([(FORMAT_PROPERTY, MESSAGES_FORMAT), (BATCHES_PROPERTY, stored)])
    if codec != NONE:
        metadata = MessageMetadata(compression=_CODECS[codec], uncompressed_size=len(plain))
        fields += metadata.SerializePartialToString()
    return EncodedEntry(compress(_CODECS[codec], plain), fields)


def encode_marker_entry(header: BatchHeader, marker: TransactionMarker, *, compacted: bool) -> EncodedEntry:
    """The entry of a transaction marker whose control batch has this header. ``compacted`` has it kept."""
    stored = f"1,{header.attributes},{marker.producer_id},{marker.producer_epoch},{NO_SEQUENCE}"
    fields = encode_metadata_properties([
        (FORMAT_PROPERTY, MESSAGES_FORMAT), (BATCHES_PROPERTY, stored),
        (CONTROL_PROPERTY, f"{marker.type.value},{marker.coordinator_epoch}"),
    ])  # fmt: skip
    if compacted:
        kept = encode_message(STANDS_FOR_EMPTY, key=next(compaction_keys()), event_time_ms=header.max_timestamp)
        return EncodedEntry(kept, fields)
    return EncodedEntry(encode_message(None, event_time_ms=header.max_timestamp), fields)


def _message(record: Record, compacted: bool, compaction_key: bytes | None) -> bytes:
    properties, words = _properties(record.headers)
    value = record.value
    if compacted and value == b"":
        value = STANDS_FOR_EMPTY
        words.append(EMPTY)
    key, ordering_key = record.key, None
    if compaction_key is not None and key is not None:
        key, ordering_key = compaction_key, key
        if value is None:
            value = STANDS_FOR_EMPTY
            words.append(NULL)
    if words:
        properties.append((RECORD_PROPERTY, " ".join(words).encode()))
    event_time_ms = record.timestamp if record.timestamp >= 0 else None
    return encode_message(
        value, key=key, ordering_key=ordering_key, properties=properties, event_time_ms=event_time_ms
    )


def _properties(headers: Headers) -> tuple[Properties, list[str]]:
    properties: Properties = []
    words: list[str] = []
    for number, (name, value) in enumerate(headers):
        if isinstance(name, bytes) or name == RECORD_PROPERTY:
            raw = name if isinstance(name, bytes) else name.encode()
            words.append(f"{number}{'K' if value is None else 'k'}")
            properties.append((base64.b64encode(raw).decode(), base64.b64encode(value or b"")))
        elif value is None:
            words.append(f"{number}n")
            properties.append((name, b""))
        elif not _is_text(value):
            words.append(f"{number}v")
            properties.append((name, base64.b64encode(value)))
        else:
            properties.append((name, value))
    return properties, words


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


# Reading


def stored_batches(metadata: MessageMetadata) -> list[StoredBatch] | None:
    """The batches of an entry in the format ``pulsar``; None for any other entry. Raises EntryError."""
    properties = {p.key: p.value for p in metadata.properties}
    if properties.get(FORMAT_PROPERTY.encode()) != MESSAGES_FORMAT.encode():
        return None
    try:
        text = properties[BATCHES_PROPERTY.encode()].decode()
        batches = [StoredBatch(*map(int, each.split(","))) for each in text.split(";")]
    except (KeyError, ValueError, TypeError) as error:
        raise EntryError(f"unreadable {BATCHES_PROPERTY}: {error!r}") from None
    if not all(map(_is_possible, batches)):
        raise EntryError(f"{BATCHES_PROPERTY} has impossible values")
    if sum(batch.record_count for batch in batches) != metadata.num_messages_in_batch:
        raise EntryError(f"{BATCHES_PROPERTY} and the entry's metadata have different counts")
    return batches


def is_removal(metadata: MessageMetadata) -> bool:
    """Its messages are no records (`encode_removals`)."""
    return any(p.key == REMOVES_PROPERTY.encode() for p in metadata.properties)


def record_key(message: NativeMessage) -> bytes | None:
    """Of a message that a gateway wrote. With an ordering key, the message's key is its compaction key."""
    return message.key if message.ordering_key is None else message.ordering_key


def record_value(message: NativeMessage, words: Container[str]) -> bytes | None:
    if message.null_value or NULL in words:
        return None
    return b"" if EMPTY in words else bytes(message.value)


def stored_marker(metadata: MessageMetadata, batch: StoredBatch) -> TransactionMarker | None:
    """The marker in an entry's batch if it is a transaction marker; None for any other batch. Raises EntryError."""
    if not batch.attributes & CONTROL_MASK:
        return None
    text = next((p.value for p in metadata.properties if p.key == CONTROL_PROPERTY.encode()), b"")
    try:
        number, coordinator_epoch = map(int, text.split(b","))
        marker_type = MarkerType(number)
    except ValueError as error:
        raise EntryError(f"unreadable {CONTROL_PROPERTY}: {error!r}") from None
    if not -_INT32 <= coordinator_epoch < _INT32:
        raise EntryError(f"{CONTROL_PROPERTY} has impossible values")
    return TransactionMarker(marker_type, batch.producer_id, batch.producer_epoch, coordinator_epoch)


def decode_marker_entry(
    batch: StoredBatch, marker: TransactionMarker, messages: Iterable[NativeMessage], base_offset: int
) -> bytearray:
    """The marker's control batch with its offset; without effect if compaction has removed the marker."""
    record = next(_records(messages), None)
    if record is None:
        return gap_batch(base_offset, 1)
    log_append_time = bool(batch.attributes & _TIMESTAMP_TYPE)
    return encode_marker(marker, record.timestamp, base_offset, log_append_time=log_append_time)


def _is_possible(batch: StoredBatch) -> bool:
    return (
        0 < batch.record_count < _INT32
        and -_INT16 <= batch.attributes < _INT16
        and -_INT64 <= batch.producer_id < _INT64
        and -_INT16 <= batch.producer_epoch < _INT16
        and -_INT32 <= batch.base_sequence < _INT32
    )


def decode_entry(batches: Sequence[StoredBatch], messages: Iterable[NativeMessage], base_offset: int) -> bytearray:
    """The record batches with their offsets; records that compaction removed leave gaps. Raises EntryError."""
    data = bytearray()
    left = iter(messages)
    first = 0
    for batch in batches:
        data += _decode_batch(batch, _records(islice(left, batch.record_count)), base_offset + first)
        first += batch.record_count
    next(left, None)  # consumes the iterator to its end, so that an error after the last message is found
    return data


def _decode_batch(batch: StoredBatch, records: Iterator[Record], base_offset: int) -> bytearray:
    offset_count, attributes, producer_id, producer_epoch, base_sequence = batch
    first = next(records, None)
    if first is None:
        return gap_batch(
            base_offset, offset_count, producer_id=producer_id, producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )  # fmt: skip
    data = encode_batch(
        chain((first,), records), base_offset=base_offset, log_append_time=bool(attributes & _TIMESTAMP_TYPE),
        transactional=bool(attributes & _TRANSACTIONAL), producer_id=producer_id, producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )  # fmt: skip
    span_offsets(data, offset_count)
    return data


def _records(messages: Iterable[NativeMessage]) -> Iterator[Record]:
    for offset_delta, message in enumerate(messages):
        if message.compacted_out:
            continue
        words, properties = record_words(message)
        value = record_value(message, words)
        timestamp = _NO_TIMESTAMP if message.event_time_ms is None else message.event_time_ms
        if timestamp >= _INT64:
            timestamp = _NO_TIMESTAMP
        yield Record(offset_delta, timestamp, record_key(message), value, _headers(properties, words))


def record_words(message: NativeMessage) -> tuple[set[str], Sequence[tuple[str, bytes]]]:
    properties = message.properties
    if properties and properties[-1][0] == RECORD_PROPERTY:
        return set(properties[-1][1].decode(errors="replace").split()), properties[:-1]
    return set(), properties


def _headers(properties: Sequence[tuple[str, bytes]], words: set[str]) -> Headers:
    if not words:
        return tuple(properties)
    return tuple(_header(number, name, value, words) for number, (name, value) in enumerate(properties))


def _header(number: int, name: str, value: bytes, words: set[str]) -> tuple[str | bytes, bytes | None]:
    try:
        if f"{number}n" in words:
            return name, None
        if f"{number}v" in words:
            return name, base64.b64decode(value, validate=True)
        if f"{number}k" in words or f"{number}K" in words:
            plain = None if f"{number}K" in words else base64.b64decode(value, validate=True)
            return base64.b64decode(name, validate=True), plain
    except binascii.Error as error:
        raise EntryError(f"property {number} is not base64: {error}") from None
    return name, value
