"""Batch headers, checks and in-place changes, compared with kafka-python's reader."""

import struct
from itertools import pairwise

import pytest
from crc32c import crc32c
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from protocol.kafka import batch
from protocol.kafka.batch import BatchHeader, CorruptBatch, InvalidBatch, InvalidTimestamp


def make_batch(count: int = 3, *, producer_id: int = -1, producer_epoch: int = -1, sequence: int = -1) -> bytearray:
    builder = DefaultRecordBatchBuilder(2, 0, producer_id >= 0, producer_id, producer_epoch, sequence, 1 << 20)
    for offset in range(count):
        assert builder.append(offset, 1_700_000_000_000 + offset, b"key", b"value %d" % offset, []) is not None
    return bytearray(builder.build())


def altered(offset: int, form: str, value: int) -> bytearray:
    """A valid batch with one field replaced and a matching checksum."""
    data = make_batch(producer_id=7, producer_epoch=0, sequence=0)
    struct.pack_into(form, data, offset, value)
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return data


def check(data: bytearray) -> None:
    batch.check_batch(memoryview(data), 0, batch.parse_header(data))


def test_header_fields_agree_with_kafka_python() -> None:
    data = make_batch(5, producer_id=11, producer_epoch=3, sequence=40)
    header, witness = batch.parse_header(b"??" + data, 2), DefaultRecordBatch(data)
    assert header == BatchHeader(
        base_offset=0,
        batch_length=len(data) - 12,
        partition_leader_epoch=witness.leader_epoch,
        magic=2,
        crc=witness.crc,
        attributes=0x10,
        last_offset_delta=4,
        base_timestamp=1_700_000_000_000,
        max_timestamp=1_700_000_000_004,
        producer_id=11,
        producer_epoch=3,
        base_sequence=40,
        record_count=5,
    )
    assert header.size_bytes == len(data)
    assert header.last_sequence == witness.last_sequence == 44
    assert (header.is_transactional, header.is_control, header.log_append_time, header.compression) == (1, 0, 0, 0)


@pytest.mark.parametrize(
    ("base_sequence", "last_offset_delta", "expected"),
    [(-1, 9, -1), (0, 9, 9), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 5, 9, 4)],
)
def test_sequences_wrap(base_sequence: int, last_offset_delta: int, expected: int) -> None:
    header = batch.parse_header(make_batch())
    header = header._replace(base_sequence=base_sequence, last_offset_delta=last_offset_delta)
    assert header.last_sequence == expected


def test_batches_are_walked_one_after_the_other() -> None:
    sizes = [1, 2, 3]
    data = b"".join(make_batch(size) for size in sizes)
    walked = list(batch.iter_headers(data))
    assert [header.record_count for _, header in walked] == sizes
    assert all(first + header.size_bytes == second for (first, header), (second, _) in pairwise(walked))
    assert list(batch.iter_headers(b"")) == []


def test_no_cut_through_batches_goes_unnoticed() -> None:
    data = make_batch(1) + make_batch(1)
    for end in set(range(1, len(data))) - {len(data) // 2}:
        with pytest.raises(CorruptBatch):
            list(batch.iter_headers(data[:end]))
        with pytest.raises(CorruptBatch):
            batch.stamp_offsets(data[:end], 0)


@pytest.mark.parametrize("length", [-(2**31), -12, -1, 0, 48, 2**31 - 1])
def test_impossible_lengths_are_corrupt(length: int) -> None:
    data = make_batch()
    struct.pack_into(">i", data, 8, length)
    struct.pack_into(">I", data, 17, crc32c(data[21 : max(12 + length, 0)]))
    with pytest.raises(CorruptBatch):
        list(batch.iter_headers(data))
    with pytest.raises(CorruptBatch):
        check(data)
    with pytest.raises(CorruptBatch):
        batch.set_log_append_time(data, 0, 1)
    with pytest.raises(CorruptBatch):
        batch.stamp_offsets(data, 0)


@pytest.mark.parametrize(
    ("magic", "error"), [(0, InvalidBatch), (1, InvalidBatch), (3, CorruptBatch), (-1, CorruptBatch)]
)
def test_other_magics_are_distinguished(magic: int, error: type[Exception]) -> None:
    data = altered(16, ">b", magic)
    with pytest.raises(error):
        list(batch.iter_headers(data))
    with pytest.raises(error):
        check(data)


def test_every_byte_under_the_checksum_is_watched() -> None:
    data = make_batch()
    check(data)
    for position in range(17, len(data)):
        data[position] ^= 0x40
        with pytest.raises(CorruptBatch):
            check(data)
        data[position] ^= 0x40


@pytest.mark.parametrize(
    ("offset", "form", "value", "error"),
    [
        pytest.param(0, ">q", 1, InvalidBatch, id="base offset"),
        pytest.param(57, ">i", 0, InvalidBatch, id="no records"),
        pytest.param(57, ">i", 4, InvalidBatch, id="more records than offsets"),
        pytest.param(23, ">i", -1, InvalidBatch, id="negative last offset delta"),
        pytest.param(21, ">h", 0x20, InvalidBatch, id="control batch"),
        pytest.param(53, ">i", -1, InvalidBatch, id="producer id without sequence"),
        pytest.param(21, ">h", 0x05, InvalidBatch, id="codec 5"),
        pytest.param(21, ">h", 0x08, InvalidTimestamp, id="log append time"),
    ],
)
def test_batches_no_client_may_send(offset: int, form: str, value: int, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        check(altered(offset, form, value))
    assert caught.type is error


def test_batches_are_numbered_in_turn_and_stay_valid() -> None:
    data = make_batch(3) + make_batch(1) + make_batch(10)
    struct.pack_into(">i", data, 23, 6)  # a gap, as compaction leaves them
    struct.pack_into(">I", data, 17, crc32c(data[21 : batch.parse_header(data).size_bytes]))
    assert batch.stamp_offsets(data, 100, leader_epoch=5) == 100 + 7 + 1 + 10
    stamped = [DefaultRecordBatch(data[at : at + header.size_bytes]) for at, header in batch.iter_headers(data)]
    assert [(each.base_offset, each.leader_epoch) for each in stamped] == [(100, 5), (107, 5), (108, 5)]
    assert all(each.validate_crc() for each in stamped)


@pytest.mark.parametrize(("position", "value"), [(16, 1), (16, 3), (23, 0x80)], ids=["old", "unknown", "no offsets"])
def test_only_batches_are_numbered(position: int, value: int) -> None:
    """Any producer may say that its entry holds batches."""
    data = make_batch(3) + make_batch(1)
    data[len(make_batch(3)) + position] = value
    with pytest.raises(CorruptBatch):
        batch.stamp_offsets(data, 100)


def test_numbering_works_through_a_view() -> None:
    data = make_batch()
    assert batch.stamp_offsets(memoryview(data), 2**40) == 2**40 + 3
    assert DefaultRecordBatch(data).base_offset == 2**40
    assert batch.stamp_offsets(bytearray(), 9) == 9


def test_log_append_time_reaches_every_record() -> None:
    data = make_batch() + make_batch()
    second = len(data) // 2
    batch.set_log_append_time(data, second, 1_800_000_000_000)
    witness = DefaultRecordBatch(data[second:])
    assert witness.validate_crc()
    assert [(record.timestamp, record.timestamp_type) for record in witness] == [(1_800_000_000_000, 1)] * 3
    assert data[:second] == make_batch()
