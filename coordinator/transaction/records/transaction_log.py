"""Records of `__transaction_state`: Kafka's TransactionLogKey and TransactionLogValue, encoded and decoded by hand.

Key v0:    int16 0 | string transactional id
Value v0:  int16 0 | int64 producer id | int16 epoch | int32 timeout, ms | int8 state
           | partitions: null or array of (string topic, array of int32)
           | int64 last update, ms | int64 start, ms
Value v1:  the same fields after int16 1, with compact strings and arrays, each struct with its tagged fields. Tags of
           the value: 0 previous producer id, 1 next producer id (int64), 2 transaction.version of the client (int16)

A value of None (a tombstone) removes the id. Kafka 4.2.0 reads the two producer ids, but does not write them: its
producers are fenced if a coordinator takes over after the producer id changed and before the producer's retry. Here
they are written.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from struct import Struct
from struct import error as StructError

from coordinator.log import Record
from coordinator.state_machine import MalformedRecordError
from coordinator.topics import TopicPartition
from coordinator.transaction.metadata import TransactionMetadata
from coordinator.transaction.records.reader import CompactReader, Reader, compact_length
from coordinator.transaction.states import STATE_IDS, STATES_BY_ID, TransactionState
from protocol.kafka.batch import NO_PRODUCER_ID

MAX_ID_BYTES = 32_767
FLEXIBLE_VERSION = 1
_KEY_VERSION = b"\x00\x00"
_PREVIOUS_ID_TAG, _NEXT_ID_TAG, _CLIENT_VERSION_TAG = range(3)
_HEAD = Struct(">hqhib")
_TAIL = Struct(">qq")
_LENGTH = Struct(">h")
_INT16, _INT32, _INT64 = Struct(">h"), Struct(">i"), Struct(">q")
_NULL_ARRAY = -1

Value = TransactionMetadata | None


def encode_transaction(transactional_id: str, value: Value, version: int) -> Record:
    """`version` is 0 or 1. Raises ValueError if a field does not fit."""
    try:
        key = _KEY_VERSION + _string(transactional_id)
        return Record(key, None if value is None else _encode_value(value, version))
    except StructError as error:
        raise ValueError(str(error)) from error


def decode_transaction(key: bytes, value: bytes | None) -> tuple[str, Value] | None:
    """The transactional id and its value, which is None if the id was removed. Returns None for an unknown kind of
    record. Raises MalformedRecordError."""
    try:
        if key[:2] != _KEY_VERSION:
            if len(key) < 2:
                raise MalformedRecordError(f"a key of {len(key)} bytes")
            return None
        transactional_id = Reader(key, 2).string()
        return transactional_id, None if value is None else _decode_value(value)
    except (StructError, ValueError, IndexError, KeyError) as error:
        raise MalformedRecordError(f"{type(error).__name__}: {error}") from error


def _encode_value(value: TransactionMetadata, version: int) -> bytes:
    state = STATE_IDS[value.state]
    head = _HEAD.pack(version, value.producer_id, value.producer_epoch, value.timeout_ms, state)
    tail = _TAIL.pack(value.last_update_ms, value.start_ms)
    topics = _by_topic(value.partitions)
    if version < FLEXIBLE_VERSION:
        return head + _encode_topics(topics, is_null=value.state is TransactionState.EMPTY) + tail
    partitions = _encode_compact_topics(topics, is_null=value.state is TransactionState.EMPTY)
    return head + partitions + tail + _encode_tagged_fields(value)


def _by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    grouped = groupby(sorted(partitions), lambda partition: partition.topic)
    return {topic: [number for _, number in group] for topic, group in grouped}


def _encode_topics(topics: Mapping[str, list[int]], *, is_null: bool) -> bytes:
    if is_null:
        return _INT32.pack(_NULL_ARRAY)
    parts = [_INT32.pack(len(topics))]
    for topic, numbers in topics.items():
        parts += (_string(topic), Struct(f">i{len(numbers)}i").pack(len(numbers), *numbers))
    return b"".join(parts)


def _encode_compact_topics(topics: Mapping[str, list[int]], *, is_null: bool) -> bytes:
    if is_null:
        return b"\x00"
    parts = [compact_length(len(topics))]
    for topic, numbers in topics.items():
        name = topic.encode()
        parts += (compact_length(len(name)), name, compact_length(len(numbers)))
        parts += (Struct(f">{len(numbers)}i").pack(*numbers), b"\x00")
    return b"".join(parts)


def _encode_tagged_fields(value: TransactionMetadata) -> bytes:
    fields: list[tuple[int, bytes]] = []
    if value.previous_producer_id != NO_PRODUCER_ID:
        fields.append((_PREVIOUS_ID_TAG, _INT64.pack(value.previous_producer_id)))
    if value.next_producer_id != NO_PRODUCER_ID:
        fields.append((_NEXT_ID_TAG, _INT64.pack(value.next_producer_id)))
    if value.client_version:
        fields.append((_CLIENT_VERSION_TAG, _INT16.pack(value.client_version)))
    return bytes([len(fields)]) + b"".join(bytes([tag, len(data)]) + data for tag, data in fields)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _LENGTH.pack(len(encoded)) + encoded


def _decode_value(data: bytes) -> TransactionMetadata:
    version, producer_id, epoch, timeout_ms, state = _HEAD.unpack_from(data)
    if version not in (0, FLEXIBLE_VERSION):
        raise MalformedRecordError(f"value version {version} is unknown")
    reader = (Reader if version < FLEXIBLE_VERSION else CompactReader)(data, _HEAD.size)
    partitions = frozenset(_read_partitions(reader))
    last_update_ms, start_ms = reader.unpack(_TAIL)
    tagged = reader.tagged_fields()
    return TransactionMetadata(
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        state=STATES_BY_ID[state],
        partitions=partitions,
        last_update_ms=last_update_ms,
        start_ms=start_ms,
        previous_producer_id=_tagged(tagged, _PREVIOUS_ID_TAG, _INT64, NO_PRODUCER_ID),
        next_producer_id=_tagged(tagged, _NEXT_ID_TAG, _INT64, NO_PRODUCER_ID),
        client_version=_tagged(tagged, _CLIENT_VERSION_TAG, _INT16, 0),
    )


def _read_partitions(reader: Reader) -> Iterable[TopicPartition]:
    for _ in range(reader.count()):
        topic = reader.string()
        for _ in range(reader.count()):
            yield TopicPartition(topic, reader.unpack(_INT32)[0])
        reader.tagged_fields()


def _tagged(fields: Mapping[int, bytes], tag: int, form: Struct, absent: int) -> int:
    value: int = form.unpack(fields[tag])[0] if tag in fields else absent
    return value


BARRIER = encode_transaction("", None, 0)
"""The tombstone of an id that cannot exist: a record that changes nothing."""
