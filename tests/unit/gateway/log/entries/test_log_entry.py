"""Pulsar entries as parts of a log, and reads of whole batches from them."""

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.log.entries.chunked_messages import ChunkedMessages
from gateway.log.entries.log_entry import KAFKA_FORMAT, LogEntry, collect, from_pulsar
from gateway.log.entries.message_entry import FORMAT_PROPERTY
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry
from protocol.kafka.batch import iter_headers
from protocol.kafka.offset_span import is_gap
from protocol.kafka.records import Record, encode_batch
from protocol.pulsar.entry import encode_message
from protocol.pulsar.pulsar_commands_pb2 import BrokerEntryMetadata, KeyValue, MessageMetadata
from tests.support.empty_batch import empty_batch
from tests.support.records import decode_records

MAX_BYTES = 1 << 20
AT = Position(7, 3)


def kafka_batch(count: int) -> bytearray:
    return encode_batch([Record(number, 1_000 + number, None, b"value", ()) for number in range(count)])


def entry(payload: bytes | bytearray, index: int | None, count: int, *, kafka: bool, marker: bool = False) -> Entry:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=5_000, num_messages_in_batch=count)
    if kafka:
        metadata.properties.append(KeyValue(key=FORMAT_PROPERTY.encode(), value=KAFKA_FORMAT.encode()))
    if marker:
        metadata.marker_type = 10
    broker = None if index is None else BrokerEntryMetadata(index=index)
    return Entry(AT, broker, metadata, memoryview(bytearray(payload)))


def test_the_index_is_that_of_the_last_message() -> None:
    found = from_pulsar(entry(kafka_batch(2) + kafka_batch(3), 104, 5, kafka=True), max_bytes=MAX_BYTES)
    assert found is not None
    assert (found.base_offset, found.next_offset) == (100, 105)
    assert [(header.base_offset, header.last_offset) for _, header in iter_headers(found.data)] == [
        (100, 101),
        (102, 104),
    ]


def test_an_entry_without_index_is_no_part_of_the_log() -> None:
    assert from_pulsar(entry(kafka_batch(1), None, 1, kafka=True), max_bytes=MAX_BYTES) is None


def test_native_messages_become_one_batch() -> None:
    payload = b"".join(
        bytes(encode_message(b"v%d" % number, key=b"k", properties=[("h", b"x")], event_time_ms=None))
        for number in range(3)
    )
    found = from_pulsar(entry(payload, 12, 3, kafka=False), max_bytes=MAX_BYTES)
    assert found is not None
    ((_, header),) = iter_headers(found.data)
    records = decode_records(found.data, 0, header, MAX_BYTES)
    assert [(header.base_offset + record.offset_delta, record.value) for record in records] == [
        (10, b"v0"),
        (11, b"v1"),
        (12, b"v2"),
    ]
    assert {(record.key, record.timestamp, record.headers) for record in records} == {(b"k", 5_000, (("h", b"x"),))}


def test_what_cannot_be_read_still_spans_its_offsets() -> None:
    for broken in (
        entry(b"garbage", 12, 3, kafka=True),
        entry(kafka_batch(2), 12, 3, kafka=True),
        entry(b"garbage", 12, 3, kafka=False),
        entry(b"", 12, 3, kafka=False, marker=True),
    ):
        found = from_pulsar(broken, max_bytes=MAX_BYTES)
        assert found is not None
        assert (found.base_offset, found.next_offset) == (10, 13)
        ((_, header),) = iter_headers(found.data)
        assert (header.base_offset, header.last_offset) == (10, 12)
        assert is_gap(header)


def metadata(count: int = 1, **fields: Any) -> MessageMetadata:
    properties = fields.pop("properties", {})
    found = MessageMetadata(producer_name="p", sequence_id=1, publish_time=5_000, num_messages_in_batch=count)
    found.properties.extend(KeyValue(key=key.encode(), value=value.encode()) for key, value in properties.items())
    for name, value in fields.items():
        setattr(found, name, value)
    return found


def hostile(metadata: MessageMetadata, payload: bytes = b"", index: int = 12) -> Entry:
    return Entry(AT, BrokerEntryMetadata(index=index), metadata, memoryview(bytearray(payload)))


def with_magic(magic: int) -> bytes:
    data = kafka_batch(2)
    data[16] = magic
    return bytes(data)


def negative_deltas() -> bytes:
    """Two batches whose offset deltas have the sum of two records."""
    first, second = kafka_batch(2), kafka_batch(2)
    first[23:27] = (5).to_bytes(4, "big")
    second[23:27] = (-5).to_bytes(4, "big", signed=True)
    return bytes(first + second)


MESSAGES = b"".join(encode_message(b"v") for _ in range(2))
PLAIN, BATCHES = {"entry.format": "kafka"}, "kafka.batches"
HOSTILE = {
    "event time": hostile(metadata(), encode_message(b"v", event_time_ms=2**63)),
    "event times far apart": hostile(
        metadata(2), encode_message(b"v", event_time_ms=1) + encode_message(b"v", event_time_ms=2**64 - 1)
    ),
    "publish time": hostile(metadata(publish_time=2**64 - 1), encode_message(b"v")),
    "magic 0": hostile(metadata(2, properties=PLAIN), with_magic(0)),
    "magic 9": hostile(metadata(2, properties=PLAIN), with_magic(9)),
    "negative deltas": hostile(metadata(2, properties=PLAIN), negative_deltas()),
    "no batches": hostile(metadata(2, properties=PLAIN), MESSAGES),
    **{
        f"{BATCHES}={text}": hostile(
            metadata(2, properties={"entry.format": "pulsar", BATCHES: text}), MESSAGES
        )
        for text in (
            "2,0,9223372036854775808,0,0", "2,99999,1,1,1", "2,0,1,99999,1", "2,0,1,1,4294967296",
            "-1,0,0,0,0;3,0,0,0,0", "2,0,0,0,0;0,0,0,0,0",
            f"{'9' * 5_000},0,0,0,0",
        )
    },
    "no messages": hostile(metadata(0), MESSAGES),
    "messages below zero": hostile(metadata(-3), MESSAGES),
    "more messages than the log has": hostile(metadata(2**31 - 1), MESSAGES),
    "undecodable metadata": hostile(MessageMetadata(), MESSAGES),
    "unknown compression": hostile(metadata(2, compression=4, uncompressed_size=2), MESSAGES),
    **{
        f"broken compression {codec}": hostile(metadata(2, compression=codec, uncompressed_size=size), MESSAGES)
        for codec in (1, 2, 3, 4) for size in (0, 1, MAX_BYTES, 2**32 - 1)
    },
    "chunk without others": hostile(metadata(num_chunks_from_msg=2**31 - 1, chunk_id=2**31 - 2, uuid=b"u"), b"v"),
    "chunk below zero": hostile(metadata(num_chunks_from_msg=3, chunk_id=-1, uuid=b"u"), b"v"),
    "chunk of less than nothing": hostile(
        metadata(num_chunks_from_msg=2, chunk_id=0, total_chunk_msg_size=-1, uuid=b"u"), b"v"
    ),
}  # fmt: skip


@pytest.mark.parametrize("odd", HOSTILE.values(), ids=HOSTILE.keys())
def test_whatever_native_producers_write_has_its_place_in_the_log(odd: Entry) -> None:
    found = from_pulsar(odd, max_bytes=MAX_BYTES, chunked=ChunkedMessages(MAX_BYTES))
    assert found is not None
    assert found.next_offset == 13
    assert 0 <= found.base_offset < 13
    headers = [header for _, header in iter_headers(found.data)]
    assert (headers[0].base_offset, headers[-1].last_offset) == (found.base_offset, 12)
    for header in headers:
        assert header.max_timestamp >= -1
        decode_records(found.data, 0, header, MAX_BYTES)


@pytest.mark.parametrize(
    ("event_ms", "publish_ms", "timestamp"), [(2**63, 5, 5), (2**63 - 1, 5, 2**63 - 1), (None, 2**63, -1)]
)
def test_times_that_kafka_does_not_have(event_ms: int | None, publish_ms: int, timestamp: int) -> None:
    odd = hostile(metadata(publish_time=publish_ms), encode_message(b"v", event_time_ms=event_ms))
    found = from_pulsar(odd, max_bytes=MAX_BYTES)
    assert found is not None
    ((_, header),) = iter_headers(found.data)
    assert [(record.value, record.timestamp) for record in decode_records(found.data, 0, header, MAX_BYTES)] == [
        (b"v", timestamp)
    ]


def log(batches: list[list[int]]) -> list[LogEntry]:
    """Entries with batches of these numbers of records, from offset 0."""
    entries, offset = [], 0
    for counts in batches:
        count = sum(counts)
        payload = b"".join(bytes(kafka_batch(each)) for each in counts)
        found = from_pulsar(entry(payload, offset + count - 1, count, kafka=True), max_bytes=MAX_BYTES)
        assert found is not None
        entries.append(found)
        offset += count
    return entries


LOGS = st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), min_size=1, max_size=5)


@given(LOGS, st.data())
def test_a_read_is_a_run_of_whole_batches_that_fits(batches: list[list[int]], data: st.DataObject) -> None:
    entries = log(batches)
    offset = data.draw(st.integers(0, entries[-1].next_offset - 1))
    max_bytes = data.draw(st.integers(0, sum(each.size_bytes for each in entries) + 10))
    at_least_one = data.draw(st.booleans())
    first = next(number for number, each in enumerate(entries) if each.next_offset > offset)
    found = collect(entries, first, offset, max_bytes, at_least_one=at_least_one)

    headers = [header for each in entries for _, header in iter_headers(each.data) if header.last_offset >= offset]
    expected: list[int] = []
    size = 0
    for header in headers:
        if size + header.size_bytes > max_bytes and (expected or not at_least_one):
            break
        expected.append(header.base_offset)
        size += header.size_bytes
    joined = b"".join(bytes(chunk) for chunk in found.chunks)
    assert [header.base_offset for _, header in iter_headers(joined)] == expected
    assert found.size_bytes == len(joined)


@pytest.mark.parametrize(
    ("max_bytes", "at_least_one", "spans"),
    [(1_000, False, [(0, 5), (5, 10)]), (61, True, [(0, 5)]), (100, True, [(0, 5)])],
)
def test_a_batch_without_records_stands_for_what_is_missing_just_before_a_limit(
    max_bytes: int, at_least_one: bool, spans: list[tuple[int, int]]
) -> None:
    """The entry behind it, which would lead a consumer past it, must not be read."""
    entries = [LogEntry(Position(1, at), at, end, empty_batch(at, end - at)) for at, end in ((0, 5), (10, 12))]
    found = collect(entries, 0, 0, max_bytes, at_least_one=at_least_one, before=10)
    assert [(at.base_offset, at.last_offset + 1) for each in found.chunks for _, at in iter_headers(each)] == spans
    assert found.next_offset == spans[-1][1]
    assert found.size_bytes == sum(map(len, found.chunks))
    rest = collect(entries, 1, 5, 1, at_least_one=True, before=10)
    assert rest.next_offset == 10
    assert collect(entries, 1, 5, 1, at_least_one=False, before=10).chunks == []



@pytest.mark.parametrize("ours", [False, True])
def test_an_entry_of_very_many_messages_is_not_held_as_objects(ours: bool) -> None:
    count = 20_000
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=count)
    if ours:
        metadata.properties.add(key=b"entry.format", value=b"pulsar")
        metadata.properties.add(key=b"kafka.batches", value=b"%d,0,-1,-1,-1" % count)
    payload = memoryview(encode_message(b"", key=None) * count)
    entry = Entry(Position(1, 1), BrokerEntryMetadata(index=count - 1), metadata, payload)
    tracemalloc.start()
    try:
        found = from_pulsar(entry, max_bytes=MAX_BYTES)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found is not None
    [(_, header)] = iter_headers(found.data)
    assert header.record_count == count
    assert peak_bytes < count * 60, "the bytes of a record, a few times"
