"""Record batches as Pulsar messages and back: nothing of a record is lost, and compaction leaves right offsets."""

from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.log.entries.log_entry import from_pulsar
from gateway.log.entries.message_entry import (
    BATCHES_PROPERTY,
    FORMAT_PROPERTY,
    MAX_PLAIN_BYTES,
    compaction_keys,
    encode_entry,
    encode_marker_entry,
    encode_record,
    encode_removals,
)
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry
from protocol.kafka.batch import BatchHeader, iter_headers, parse_header
from protocol.kafka.compression import GZIP
from protocol.kafka.offset_span import is_gap
from protocol.kafka.records import Headers, Record, encode_batch
from protocol.kafka.transaction_marker import MarkerType, TransactionMarker, encode_marker
from protocol.pulsar.entry import iter_messages
from protocol.pulsar.pulsar_commands_pb2 import (
    BrokerEntryMetadata,
    CompressionType,
    MessageMetadata,
    SingleMessageMetadata,
)
from tests.support.records import decode_records

MAX_BYTES = 1 << 24
BASE = 1_000

names = st.text(max_size=5) | st.just("kafka.record")
headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=5)), max_size=4).map(tuple)
records = st.builds(
    lambda timestamp, key, value, headers: (timestamp, key, value, headers),
    st.just(-1) | st.integers(0, 2**62),
    st.none() | st.binary(max_size=5),
    st.none() | st.binary(max_size=5),
    headers,
)
batches = st.lists(st.lists(records, min_size=1, max_size=4), min_size=1, max_size=3)

Fields = tuple[int, bytes | None, bytes | None, Headers]


def batch_of(rows: list[Fields], **more: int) -> bytearray:
    numbered = [Record(number, *row) for number, row in enumerate(rows)]
    return encode_batch(numbered, **more)  # type: ignore[arg-type]


def entry_of(*encoded: bytearray, compacted: bool = True, own_keys: bool = False) -> Entry:
    """What the broker stores of these batches."""
    parts: list[tuple[BatchHeader, bytes]] = []
    for data in encoded:
        header = parse_header(data)
        records = decode_records(data, 0, header, MAX_BYTES)
        keys = compaction_keys() if own_keys else repeat(None)
        messages = [
            encode_record(record, compacted=compacted, compaction_key=key)
            for record, key in zip(records, keys, strict=False)
        ]
        parts.append((header, b"".join(messages)))
    payload, fields = encode_entry(parts)
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=5)
    metadata.MergeFromString(fields)
    metadata.num_messages_in_batch = sum(header.record_count for header, _ in parts)
    return stored(metadata, payload)


def stored(metadata: MessageMetadata, payload: bytes) -> Entry:
    index = BASE + metadata.num_messages_in_batch - 1
    return Entry(Position(1, 1), BrokerEntryMetadata(index=index), metadata, memoryview(bytearray(payload)))


def read(entry: Entry) -> list[tuple[BatchHeader, list[Record]]]:
    found = from_pulsar(entry, max_bytes=MAX_BYTES)
    assert found is not None
    assert (found.base_offset, found.next_offset) == (BASE, BASE + entry.num_messages)
    return [
        (header, [] if is_gap(header) else decode_records(found.data, position, header, MAX_BYTES))
        for position, header in iter_headers(found.data)
    ]


@given(batches, st.integers(0, 4), st.booleans())
def test_batches_come_back_as_they_were(rows: list[list[Fields]], codec: int, compacted: bool) -> None:
    written = [batch_of(each, compression=codec) for each in rows]
    offset = BASE
    found = read(entry_of(*written, compacted=compacted))
    assert len(found) == len(rows)
    for fields, (header, records) in zip(rows, found, strict=True):
        assert header.base_offset == offset
        assert records == [Record(number, *row) for number, row in enumerate(fields)]
        offset += len(fields)
    assert len(found) == len(written)


@pytest.mark.parametrize(
    ("size", "compacted", "expected"),
    [
        (1_000, True, CompressionType.NONE),
        (1_000, False, CompressionType.ZLIB),
        (MAX_PLAIN_BYTES, True, CompressionType.ZLIB),
    ],
)
def test_compaction_gets_plain_messages(size: int, compacted: bool, expected: int) -> None:
    """It may fail with compressed ones. Those that would be too large are compressed nevertheless."""
    data = batch_of([(7, b"k", bytes(size), ())], compression=GZIP)
    header = parse_header(data)
    [record] = decode_records(data, 0, header, 2 * MAX_PLAIN_BYTES)
    payload, fields = encode_entry([(header, encode_record(record, compacted=compacted))], compacted=compacted)
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=5)
    metadata.MergeFromString(fields)
    assert metadata.compression == expected
    assert (len(payload) < size) == (expected != CompressionType.NONE)


def test_producers_and_timestamp_types_come_back() -> None:
    row: Fields = (7, b"k", b"v", ())
    idempotent = batch_of([row, row], producer_id=5, producer_epoch=3, base_sequence=2**31 - 1)
    [(one, _), (other, _)] = read(
        entry_of(idempotent, batch_of([row], log_append_time=True, transactional=True, producer_id=9))
    )
    assert (one.producer_id, one.producer_epoch, one.base_sequence, one.last_sequence) == (5, 3, 2**31 - 1, 0)
    assert (other.producer_id, other.log_append_time, other.is_transactional) == (9, True, True)
    assert (one.log_append_time, one.is_transactional) == (False, False)


def test_what_a_native_consumer_sees() -> None:
    text: Headers = (("a", b"1"), ("a", "ü".encode()))
    entry = entry_of(batch_of([(7, "ü".encode(), b"v", text), (-1, b"\xff", None, ()), (0, None, b"", ())]))
    first, second, third = iter_messages(entry.metadata, entry.payload, MAX_BYTES)
    assert (first.key, bytes(first.value), first.event_time_ms) == ("ü".encode(), b"v", 7)
    assert first.properties == (("a", b"1"), ("a", "ü".encode()))
    assert (second.key, second.null_value, second.event_time_ms) == (b"\xff", True, None)
    assert (third.key, third.event_time_ms) == (None, 0)


def test_properties_are_text_whatever_headers_hold() -> None:
    odd: Headers = ((b"\xff", b"x"), (b"\xfe", None), ("b", b"\xff"), ("n", None), ("kafka.record", b""))
    entry = entry_of(batch_of([(0, b"k", b"v", odd)]))
    [message] = iter_messages(entry.metadata, entry.payload, MAX_BYTES)
    for name, value in message.properties:
        assert name.isprintable()
        value.decode()
    [(_, [record])] = read(entry)
    assert record.headers == odd


def test_an_empty_value_is_no_tombstone_to_pulsar() -> None:
    rows: list[Fields] = [(0, b"k", b"", ()), (0, b"t", None, ())]
    empty, tombstone = iter_messages(entry_of(batch_of(rows)).metadata, entry_of(batch_of(rows)).payload, MAX_BYTES)
    assert (len(empty.value), empty.null_value) == (1, False)
    assert tombstone.null_value
    plain = entry_of(batch_of(rows), compacted=False)
    assert [len(each.value) for each in iter_messages(plain.metadata, plain.payload, MAX_BYTES)] == [0, 0]


def compacted(entry: Entry, gone: set[int]) -> Entry:
    """As Pulsar's compactor rewrites a batch: removed messages stay, without anything in them."""
    payload = b""
    for number, message in enumerate(iter_messages(entry.metadata, entry.payload, MAX_BYTES)):
        single = SingleMessageMetadata(payload_size=len(message.value), event_time=message.event_time_ms or 0)
        if number in gone:
            single = SingleMessageMetadata(payload_size=0, compacted_out=True)
        else:
            single.partition_key = message.key or b""
        head = single.SerializeToString()
        payload += len(head).to_bytes(4, "big") + head + (b"" if number in gone else bytes(message.value))
    return stored(entry.metadata, payload)


def test_offsets_after_compaction() -> None:
    rows: list[Fields] = [(9, b"%d" % number, b"v", ()) for number in range(3)]
    producer = {"producer_id": 5, "producer_epoch": 3, "base_sequence": 10}
    whole = entry_of(batch_of(rows, **producer), batch_of(rows, **(producer | {"base_sequence": 13})))
    found = read(compacted(whole, {0, 2, 3, 4, 5}))
    assert [(header.base_offset, header.last_offset, is_gap(header)) for header, _ in found] == [
        (BASE, BASE + 2, False),
        (BASE + 3, BASE + 5, True),
    ]
    assert [(record.offset_delta, record.key) for record in found[0][1]] == [(1, b"1")]
    assert [(header.base_sequence, header.last_sequence) for header, _ in found] == [(10, 12), (13, 15)]


@pytest.mark.parametrize("text", ["", "1,2,3", "a,b,c,d,e", "2,0,-1,-1,-1", "1,0,-1,-1,-1;1,0,-1,-1,-1"])
def test_an_entry_that_contradicts_itself_is_stepped_over(text: str) -> None:
    entry = entry_of(batch_of([(0, b"k", b"v", ())]))
    for each in entry.metadata.properties:
        if each.key == BATCHES_PROPERTY.encode():
            each.value = text.encode()
    [(header, records)] = read(entry)
    assert (header.last_offset, records) == (BASE, [])


def test_the_format_is_named() -> None:
    entry = entry_of(batch_of([(0, b"k", b"v", ())]))
    assert entry.properties[FORMAT_PROPERTY] == "pulsar"


@given(batches)
def test_compaction_keys_do_not_show(rows: list[list[Fields]]) -> None:
    """And no two messages have the same one, nor is one of them a tombstone."""
    encoded = [batch_of(each) for each in rows]
    entry, plain = entry_of(*encoded, own_keys=True), entry_of(*encoded)
    messages = [*iter_messages(entry.metadata, entry.payload, MAX_BYTES)]
    assert from_pulsar(entry, max_bytes=MAX_BYTES).data == from_pulsar(plain, max_bytes=MAX_BYTES).data  # type: ignore[union-attr]
    keyed = [each for each in messages if each.ordering_key is not None]
    assert len({each.key for each in keyed}) == len(keyed) == sum(row[1] is not None for each in rows for row in each)
    assert all(len(each.value) for each in keyed)


def test_removals_are_no_records_and_stay_in_their_cluster() -> None:
    payload, fields = encode_removals([b"one", b"two", b"three"])
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=5, num_messages_in_batch=3)
    metadata.MergeFromString(fields)
    entry = stored(metadata, payload)
    assert [(each.key, each.null_value) for each in iter_messages(metadata, payload, MAX_BYTES)] == [
        (b"one", True), (b"two", True), (b"three", True),
    ]  # fmt: skip
    assert list(metadata.replicate_to) == ["__local__"]
    read = from_pulsar(entry, max_bytes=MAX_BYTES)
    assert read is not None
    [(_, header)] = iter_headers(read.data)
    assert (header.base_offset, header.last_offset) == (BASE, BASE + 2)
    assert is_gap(header)


@pytest.mark.parametrize("compacted", [False, True])
def test_compaction_keeps_markers_that_say_so(compacted: bool) -> None:
    marker = TransactionMarker(MarkerType.ABORT, 7, 1, 2)
    data = encode_marker(marker, 1_000, BASE)
    payload, fields = encode_marker_entry(parse_header(data), marker, compacted=compacted)
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=5, num_messages_in_batch=1)
    metadata.MergeFromString(fields)
    read = from_pulsar(stored(metadata, payload), max_bytes=MAX_BYTES)
    assert read is not None
    assert bytes(read.data) == bytes(data)
    message = next(iter(iter_messages(metadata, payload, MAX_BYTES)))
    assert (message.key is not None and len(message.value) > 0) is compacted
