"""The body of a Produce request, decoded by hand: the only request that is not limited by `max_control_request_bytes`.

It may be 100 MB long, nearly all of it records. So the arrays around the records are limited while they are read: a
request may have at most `MAX_PARTITIONS` rows, and not millions of empty ones.

Layout (https://kafka.apache.org/protocol, Produce API):

    v0     acks int16, timeout int32, topics [name, partitions [index int32, records (nullable bytes)]]
    v3     transactional id (nullable string), first
    v9     flexible: compact lengths, and tagged fields after each struct
    v13    topics have an id (16 bytes) instead of their name
"""

from __future__ import annotations

import struct
import uuid

from protocol.kafka.codec import MalformedRequest
from protocol.kafka.fields import MAX_STRING_BYTES, read_varint, skip_tagged_fields, take
from protocol.kafka.lengths import array_length, encoded_string
from protocol.kafka.messages.records import ProduceRequest

FIRST_TRANSACTIONAL_VERSION = 3
FIRST_FLEXIBLE_VERSION = 9
FIRST_TOPIC_ID_VERSION = 13
MAX_PARTITIONS = 20_000
"""The maximum number of batches that Java's producers put into a request of `max.request.size` (1 MB)."""

_ID_BYTES = 16
_NULL_SHORT = b"\xff\xff"
_NO_TAGS = bytes(3)
"""The empty tagged fields after the partition, the topic and the request."""
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_ACKS_TIMEOUT = struct.Struct(">hi")


ProducedTopic = ProduceRequest.TopicProduceData
ProducedPartition = ProducedTopic.PartitionProduceData


def topic_key(topic: ProducedTopic) -> str:
    """The name or the id by which the client refers to the topic."""
    return topic.name if topic.topic_id is None else str(topic.topic_id)


def single_batch_start(version: int, client_id: str | None, request: ProduceRequest) -> bytes:
    """The bytes between the correlation id and the length of the batch in a v3+ request of one batch."""
    flexible = version >= FIRST_FLEXIBLE_VERSION
    [topic], one = request.topic_data, array_length(1, flexible=flexible)
    return b"".join((
        _NULL_SHORT if client_id is None else encoded_string(client_id, flexible=False),
        b"\0" if flexible else b"",
        _nullable_string(request.transactional_id, flexible=flexible),
        _ACKS_TIMEOUT.pack(request.acks, request.timeout_ms),
        one,
        encoded_string(topic.name, flexible=flexible) if topic.topic_id is None else topic.topic_id.bytes,
        one,
        _INT.pack(topic.partition_data[0].index),
    ))  # fmt: skip


def _nullable_string(text: str | None, *, flexible: bool) -> bytes:
    if text is None:
        return b"\0" if flexible else _NULL_SHORT
    return encoded_string(text, flexible=flexible)


def single_batch(version: int, frame: bytearray, position: int) -> memoryview | None:
    """The batch of such a request, whose length is at `position`; None if it, or a byte after the batch, is unusual."""
    try:
        if version < FIRST_FLEXIBLE_VERSION:
            start = position + _INT.size
            whole = _INT.unpack_from(frame, position)[0] == len(frame) - start > 0
            return memoryview(frame)[start:] if whole else None
        if (low := frame[position]) < 0x80:
            length, start = low, position + 1
        elif (high := frame[position + 1]) < 0x80:
            length, start = low & 0x7F | high << 7, position + 2
        elif (highest := frame[position + 2]) < 0x80:
            length, start = low & 0x7F | (high & 0x7F) << 7 | highest << 14, position + 3
        else:
            length, start = read_varint(memoryview(frame), position)
        end = start + length - 1
        whole = length > 1 and end == len(frame) - len(_NO_TAGS) and frame.endswith(_NO_TAGS)
        return memoryview(frame)[start:end] if whole else None
    except (struct.error, IndexError, ValueError):
        return None


def decode_produce(_message: type[ProduceRequest], version: int, frame: memoryview, position: int) -> ProduceRequest:
    """Decode from `position` on; bytes after the last field are ignored, as Kafka does. Raises MalformedRequest.

    Records are views of the frame. A topic that is given by its id has no name yet.
    """
    try:
        return _decode(version, frame, position)
    except (struct.error, IndexError, ValueError) as error:
        raise MalformedRequest(f"ProduceRequest v{version}: {error}") from error


def _decode(version: int, frame: memoryview, position: int) -> ProduceRequest:
    flexible = version >= FIRST_FLEXIBLE_VERSION
    # Objects are created without their constructors, which would take as long as everything else.
    request = object.__new__(ProduceRequest)
    request.transactional_id = None
    if version >= FIRST_TRANSACTIONAL_VERSION:
        request.transactional_id, position = _string(frame, position, flexible, "transactional_id")
    request.acks, request.timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    count, position = _length(frame, position + _ACKS_TIMEOUT.size, flexible, _INT)
    room = _room(MAX_PARTITIONS, count)
    topics = request.topic_data = []
    for _ in range(count):
        topic, position = _topic(version, frame, position, flexible)
        rows, position = _length(frame, position, flexible, _INT)
        room = _room(room, rows)
        topic.partition_data, position = _partitions(rows, frame, position, flexible)
        topics.append(topic)
        if flexible:
            position = position + 1 if frame[position] == 0 else skip_tagged_fields(frame, position)
    if flexible:
        skip_tagged_fields(frame, position)
    return request


def _topic(version: int, frame: memoryview, position: int, flexible: bool) -> tuple[ProducedTopic, int]:
    """The topic without its partitions."""
    topic = object.__new__(ProducedTopic)
    topic.name, topic.topic_id = "", None
    if version < FIRST_TOPIC_ID_VERSION:
        topic.name, position = _name(frame, position, flexible)
        return topic, position
    id_bytes = bytes(take(frame, position, _ID_BYTES))
    if any(id_bytes):
        topic.topic_id = uuid.UUID(bytes=id_bytes)
    return topic, position + _ID_BYTES


def _partitions(count: int, frame: memoryview, position: int, flexible: bool) -> tuple[list[ProducedPartition], int]:
    partitions: list[ProducedPartition] = []
    for _ in range(count):
        partition = object.__new__(ProducedPartition)
        (partition.index,) = _INT.unpack_from(frame, position)
        size, position = _length(frame, position + _INT.size, flexible, _INT)
        partition.records = None
        if size >= 0:
            partition.records = take(frame, position, size)
            position += size
        if flexible:
            position = position + 1 if frame[position] == 0 else skip_tagged_fields(frame, position)
        partitions.append(partition)
    return partitions, position


def _room(room: int, count: int) -> int:
    """The room that is left after `count` more items. Topics count, too, because a topic may have no partitions."""
    if not 0 <= count <= room:
        raise ValueError(f"an array of {count} items where {room} are left of {MAX_PARTITIONS}")
    return room - count


def _name(frame: memoryview, position: int, flexible: bool) -> tuple[str, int]:
    name, position = _string(frame, position, flexible, "name")
    if name is None:
        raise ValueError("a topic without a name")
    return name, position


def _string(frame: memoryview, position: int, flexible: bool, field: str) -> tuple[str | None, int]:
    size, position = _length(frame, position, flexible, _SHORT)
    if size < 0:
        return None, position
    if size > MAX_STRING_BYTES:
        raise ValueError(f"string field {field} had invalid length {size}")
    return str(take(frame, position, size), "utf-8"), position + size


def _length(frame: memoryview, position: int, flexible: bool, plain: struct.Struct) -> tuple[int, int]:
    """The length, -1 for null, and the position after it."""
    if not flexible:
        return plain.unpack_from(frame, position)[0], position + plain.size
    length = frame[position]
    if length < 0x80:
        return length - 1, position + 1
    length, position = read_varint(frame, position)
    return length - 1, position

