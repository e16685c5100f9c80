"""One Pulsar entry as a part of a Kafka log: whole record batches with their offsets.

The broker entry index of an entry is that of its last message: ``base = index - num_messages + 1``. If the property
``entry.format`` of an entry is ``kafka``, the entry holds record batches as the gateway received them; if it is
``pulsar``, it holds the messages of such batches (message_entry.py). Any other entry comes from a native producer and
becomes one record batch. An entry without records (a replication marker, say) becomes a batch that consumers skip
(`offset_span.gap_batch`). So does an entry that cannot be read: native producers may write anything, with any
properties.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import structlog

from gateway.log.entries.chunked_messages import ChunkedMessages, is_piece
from gateway.log.entries.message_entry import (
    FORMAT_PROPERTY,
    MESSAGES_FORMAT,
    decode_entry,
    decode_marker_entry,
    is_removal,
    stored_batches,
    stored_marker,
)
from gateway.observability.logs import SparseLog
from gateway.pulsar.position import Position, first_index
from gateway.pulsar.reader import Entry
from protocol.kafka.batch import NO_TIMESTAMP, CorruptBatch, stamp_offsets
from protocol.kafka.offset_span import batch_extents, gap_batch, gap_batches, span_offsets
from protocol.kafka.records import Record, encode_batch
from protocol.pulsar.entry import EntryError, NativeMessage, iter_messages
from protocol.pulsar.frames import encode_metadata_properties
from protocol.pulsar.pulsar_commands_pb2 import KeyValue

KAFKA_FORMAT = "kafka"
KAFKA_FORMAT_PROPERTIES = encode_metadata_properties([(FORMAT_PROPERTY, KAFKA_FORMAT)])
_FORMAT_KEY, _FORMAT_VALUE = FORMAT_PROPERTY.encode(), KAFKA_FORMAT.encode()
_GATEWAYS_FORMATS = {_FORMAT_VALUE, MESSAGES_FORMAT.encode()}

MAX_PROPERTIES = 100
"""Gateways write a few properties. An entry with more is a native producer's: there may be hundreds of thousands."""

_MAX_INT64 = 2**63 - 1
NO_LIMIT = _MAX_INT64
"""An upper bound that is after every offset."""

Buffer = bytes | bytearray | memoryview

log = SparseLog(structlog.get_logger())


class LogEntry:
    """Record batches from ``base_offset`` up to, not including, ``next_offset``; their offsets are already set."""

    __slots__ = ("base_offset", "data", "is_copy", "next_offset", "position", "size_bytes")

    def __init__(
        self, position: Position, base_offset: int, next_offset: int, data: Buffer, *, is_copy: bool = False
    ) -> None:
        """``is_copy``: replication between clusters wrote it."""
        self.position = position
        self.is_copy = is_copy
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.data = data
        self.size_bytes = len(data)


class Slice(NamedTuple):
    """The result of a read: buffers of whole batches, and the offset after the last batch."""

    chunks: list[Buffer]
    size_bytes: int
    next_offset: int


def without_rest(chunk: Buffer) -> Buffer:
    """A copy if the chunk is a small part of what it keeps in memory. Large ones are shared: when very many fetches are
    answered in one turn, as many copies would exceed the memory.
    """
    if isinstance(chunk, memoryview) and 2 * len(chunk) <= memoryview(chunk.obj).nbytes:
        return bytes(chunk)
    return chunk


def gateway_properties(entry: Entry) -> Sequence[KeyValue]:
    """The entry's properties, if a gateway wrote it. Those of native messages may have any names, also ours."""
    return entry.metadata.properties if holds_batches(entry) else ()


def is_kafka_format(entry: Entry) -> bool:
    if entry.is_kafka_format is None:
        entry.is_kafka_format = False
        for each in _few_properties(entry):
            if each.key == _FORMAT_KEY and each.value == _FORMAT_VALUE:
                entry.is_kafka_format = True
    return entry.is_kafka_format


def holds_batches(entry: Entry) -> bool:
    """Whether a gateway wrote the entry, in either format."""
    return any(p.key == _FORMAT_KEY and p.value in _GATEWAYS_FORMATS for p in _few_properties(entry))


def _few_properties(entry: Entry) -> Sequence[KeyValue]:
    properties = entry.metadata.properties
    return properties if len(properties) <= MAX_PROPERTIES else ()


def from_pulsar(entry: Entry, *, max_bytes: int, chunked: ChunkedMessages | None = None) -> LogEntry | None:
    """Set the offsets of an entry and convert it where needed; None if the broker stored no index for it.

    ``chunked`` joins the chunks of large messages; without it, they have no records.
    """
    index = entry.index
    if index is None:
        return None
    base_offset = first_index(index, entry.metadata.num_messages_in_batch)
    count = index + 1 - base_offset
    try:
        data = _batches(entry, base_offset, count, max_bytes, chunked)
    except Exception as error:  # a native producer may have written anything
        log.error("unreadable entry", position=entry.position, reason=str(error) or repr(error))
        data = gap_batch(base_offset, count)
    is_copy = entry.metadata.HasField("replicated_from")
    return LogEntry(entry.position, base_offset, index + 1, data, is_copy=is_copy)


def _batches(entry: Entry, base_offset: int, count: int, max_bytes: int, chunked: ChunkedMessages | None) -> Buffer:
    metadata = entry.metadata
    if metadata.HasField("marker_type"):
        return gap_batch(base_offset, count)
    if count != metadata.num_messages_in_batch or not metadata.IsInitialized():
        raise EntryError("invalid metadata")
    if is_kafka_format(entry):
        found = stamp_offsets(entry.payload, base_offset) - base_offset
        if found != count:  # any producer may set the property
            raise CorruptBatch(f"batches of {found} offsets in an entry of {count} messages")
        return entry.payload
    if is_piece(entry):
        whole = None if chunked is None else chunked.join(entry)
        return gap_batch(base_offset, count) if whole is None else _converted(whole, base_offset, count, max_bytes)
    return _converted(entry, base_offset, count, max_bytes)


def _converted(entry: Entry, base_offset: int, count: int, max_bytes: int) -> Buffer:
    """Raises EntryError, and ValueError for content that does not fit into a record batch."""
    messages = iter_messages(entry.metadata, entry.payload, max_bytes)  # an iterator: there may be millions
    batches = stored_batches(entry.metadata)
    if batches is not None:
        if is_removal(entry.metadata):
            return gap_batch(base_offset, count)
        marker = stored_marker(entry.metadata, batches[0])
        if marker is not None and len(batches) == count == 1:
            return decode_marker_entry(batches[0], marker, messages, base_offset)
        return decode_entry(batches, messages, base_offset)
    return _native_batch(messages, base_offset, count)


def _native_batch(messages: Iterable[NativeMessage], base_offset: int, count: int) -> Buffer:
    records = (_record(number, message) for number, message in enumerate(messages) if not message.compacted_out)
    first = next(records, None)
    if first is None:
        return gap_batch(base_offset, count)
    data = encode_batch(chain((first,), records), base_offset=base_offset)
    span_offsets(data, count)
    return data


def _record(offset_delta: int, message: NativeMessage) -> Record:
    value = None if message.null_value else bytes(message.value)
    return Record(offset_delta, _timestamp(message), message.key, value, message.properties)


def _timestamp(message: NativeMessage) -> int:
    """The event time, else the publish time. Pulsar's times are unsigned, and may have any value."""
    timestamp = message.event_time_ms or message.publish_time_ms
    if timestamp > _MAX_INT64:
        timestamp = message.publish_time_ms
    return timestamp if timestamp <= _MAX_INT64 else NO_TIMESTAMP


def collect(
    entries: Sequence[LogEntry], first: int, offset: int, max_bytes: int, *, at_least_one: bool, before: int = NO_LIMIT
) -> Slice:
    """Whole batches of ``entries[first:]`` from ``offset`` on that end at or before ``before``, up to ``max_bytes``.

    With ``at_least_one`` the first batch is returned whole whatever its size (KIP-74). A batch without
    records takes the place of offsets that are missing just ``before``: no later batch leads consumers past them.
    """
    chunks: list[Buffer] = []
    size_bytes, next_offset = 0, offset
    for number in range(first, len(entries)):
        entry = entries[number]
        if (
            entry.base_offset >= offset
            and entry.next_offset <= before
            and size_bytes + entry.size_bytes <= max_bytes
        ):  # most entries are returned whole
            chunks.append(entry.data)
            size_bytes += entry.size_bytes
            next_offset = entry.next_offset
            continue
        if entry.base_offset >= before:
            missing = gap_batches(next_offset, before) if next_offset < before else b""
            if missing and (size_bytes + len(missing) <= max_bytes or (at_least_one and not chunks)):
                chunks.append(missing)
                size_bytes += len(missing)
                next_offset = before
            break
        data, end_offset = entry.data, entry.next_offset
        if end_offset > before:
            data, end_offset = memoryview(data)[: bytes_before(entry, before)], before
        if entry.base_offset < offset:
            data = _behind(data, offset)
        room = max_bytes - size_bytes
        if len(data) <= room:
            chunks.append(data)
            size_bytes += len(data)
            next_offset = end_offset
            continue
        part, part_next = _fitting(data, room, whole_first=at_least_one and not chunks)
        if part:
            chunks.append(part)
            size_bytes += len(part)
            next_offset = part_next if len(part) < len(data) else end_offset
        break
    return Slice(chunks, size_bytes, next_offset)


def bytes_before(entry: LogEntry, offset: int) -> int:
    """The size of the entry's batches that end at or before ``offset``."""
    size_bytes = 0
    for _, end, next_offset in batch_extents(entry.data):
        if next_offset > offset:
            break
        size_bytes = end
    return size_bytes


def _behind(data: Buffer, offset: int) -> Buffer:
    """The data without the batches that end at or before ``offset``."""
    for position, _, next_offset in batch_extents(data):
        if next_offset > offset:
            return memoryview(data)[position:] if position else data
    return b""


def _fitting(data: Buffer, room: int, *, whole_first: bool) -> tuple[Buffer, int]:
    """As many whole batches as fit, and the offset after them."""
    end, next_offset = 0, 0
    for position, batch_end, batch_next in batch_extents(data):
        if batch_end > room and not (whole_first and position == 0):
            break
        end, next_offset = batch_end, batch_next
    return (data if end == len(data) else memoryview(data)[:end]), next_offset
