"""Batches become message sets for old consumers; kafka-python reads the result."""

import tracemalloc

import pytest
from kafka.record.memory_records import MemoryRecords

from protocol.kafka.batch import CorruptBatch, InvalidBatch
from protocol.kafka.compression import UnsupportedCompression
from protocol.kafka.down_conversion import down_convert
from protocol.kafka.message_set import LegacyMessage, iter_messages
from protocol.kafka.records import Record, encode_batch
from tests.support.records import parse_message_set

T0 = 1_700_000_000_000
MAX_BYTES = 1 << 20
RECORDS = [
    Record(0, T0, b"k1", b"v1", (("dropped", b"x"),)),
    Record(3, T0 + 5, None, b"v2"),
    Record(4, T0 - 5, b"k3", None),
]


def expected(magic: int, base_offset: int = 100, first_offset: int = 0) -> list[LegacyMessage]:
    return [
        LegacyMessage(
            magic, 0, base_offset + record.offset_delta, record.timestamp if magic else -1, record.key, record.value
        )
        for record in RECORDS
        if base_offset + record.offset_delta >= first_offset
    ]


@pytest.mark.parametrize("codec", range(4))
@pytest.mark.parametrize("magic", [0, 1])
def test_offsets_times_and_codec_stay(magic: int, codec: int) -> None:
    converted = down_convert([encode_batch(RECORDS, base_offset=100, compression=codec)], magic, 0, MAX_BYTES)
    assert parse_message_set(converted, MAX_BYTES) == expected(magic)
    assert {message.compression for message in iter_messages(converted)} == {codec}
    if (magic, codec) != (0, 3):  # kafka-python wants the xxhash package for this one
        witness = [record for batch in MemoryRecords(converted) for record in batch]
        assert [(each.offset, each.key, each.value) for each in witness] == [
            (message.offset, message.key, message.value) for message in expected(magic)
        ]


@pytest.mark.parametrize("codec", range(4))
@pytest.mark.parametrize("first_offset", [100, 101, 103, 104, 105])
def test_records_before_the_first_offset_are_left_out(codec: int, first_offset: int) -> None:
    converted = down_convert([encode_batch(RECORDS, base_offset=100, compression=codec)], 1, first_offset, MAX_BYTES)
    assert parse_message_set(converted, MAX_BYTES) == expected(1, first_offset=first_offset)


@pytest.mark.parametrize("codec", range(4))
def test_broker_time_stays_broker_time_in_magic_1_only(codec: int) -> None:
    batch = encode_batch(RECORDS, compression=codec, log_append_time=True)
    magic_1 = parse_message_set(down_convert([batch], 1, 0, MAX_BYTES), MAX_BYTES)
    assert {(message.log_append_time, message.timestamp) for message in magic_1} == {(True, T0 + 5)}
    magic_0 = parse_message_set(down_convert([batch], 0, 0, MAX_BYTES), MAX_BYTES)
    assert {(message.log_append_time, message.timestamp) for message in magic_0} == {(False, -1)}


def test_control_batches_are_left_out() -> None:
    marker = encode_batch([Record(0, T0, b"\0\0\0\1", b"")], base_offset=99, control=True)
    data = marker + encode_batch(RECORDS, base_offset=100)
    assert parse_message_set(down_convert([data], 1, 0, MAX_BYTES), MAX_BYTES) == expected(1)
    assert down_convert([marker], 1, 0, MAX_BYTES) == b""


def test_zstd_is_refused_unless_nothing_of_it_is_asked_for() -> None:
    zstd = encode_batch(RECORDS, base_offset=0, compression=4)
    with pytest.raises(UnsupportedCompression):
        down_convert([zstd], 1, 0, MAX_BYTES)
    data = zstd + encode_batch(RECORDS, base_offset=100)
    assert parse_message_set(down_convert([data], 1, 100, MAX_BYTES), MAX_BYTES) == expected(1)


def test_conversion_stops_at_whole_batches_once_the_limit_is_reached() -> None:
    batches = b"".join(encode_batch([Record(0, T0, None, bytes(1000))], base_offset=base) for base in range(10))
    one = len(down_convert([batches], 1, 9, MAX_BYTES))
    assert len(down_convert([batches], 1, 0, 2 * one)) == 2 * one
    assert len(down_convert([batches], 1, 0, 2 * one + 1)) == 3 * one


@pytest.mark.parametrize("split", [True, False])
def test_conversion_does_not_go_on_behind_what_it_left_out(split: bool) -> None:
    """The entries of one answer: clients would take the gap for records that were compacted away."""
    batches = [encode_batch([Record(0, T0, None, bytes(1000))], base_offset=base) for base in range(10)]
    one = len(down_convert(batches, 1, 9, MAX_BYTES))
    entries = [b"".join(batches[:4]), b"".join(batches[4:])] if split else batches
    converted = parse_message_set(down_convert(entries, 1, 0, 2 * one), MAX_BYTES)
    assert [message.offset for message in converted] == [0, 1]


@pytest.mark.parametrize("split", [True, False])
def test_what_is_before_zstd_is_converted(split: bool) -> None:
    batches = [encode_batch(RECORDS, base_offset=base, compression=codec) for base, codec in ((0, 1), (10, 4), (20, 1))]
    entries = batches if split else [b"".join(batches)]
    assert parse_message_set(down_convert(entries, 1, 0, MAX_BYTES), MAX_BYTES) == expected(1, 0)
    with pytest.raises(UnsupportedCompression):
        down_convert(entries, 1, 10, MAX_BYTES)


def test_no_batch_unfolds_past_the_limit() -> None:
    with pytest.raises(InvalidBatch):
        down_convert([encode_batch([Record(0, T0, None, bytes(10_000))], compression=1)], 1, 0, 10_000)


def test_values_beyond_the_old_formats_are_invalid() -> None:
    batch = encode_batch([Record(0, 2**63 - 1, None, None), Record(1, 2**63 - 1, None, None)], base_offset=2**63 - 1)
    with pytest.raises(InvalidBatch):
        down_convert([batch], 1, 0, MAX_BYTES)


def test_bytes_that_end_inside_a_batch_are_corrupt() -> None:
    with pytest.raises(CorruptBatch):
        down_convert([encode_batch(RECORDS)[:-1]], 1, 0, MAX_BYTES)


@pytest.mark.parametrize("codec", [0, 1])
def test_a_batch_of_very_many_records_is_not_held_as_objects(codec: int) -> None:
    count = 50_000
    batch = encode_batch([Record(delta, T0, None, None) for delta in range(count)], compression=codec)
    tracemalloc.start()
    try:
        converted = down_convert([batch], 1, 0, MAX_BYTES)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(parse_message_set(converted, 1 << 24)) == count
    assert peak_bytes < count * 150, "34 bytes of a message, a few times"
