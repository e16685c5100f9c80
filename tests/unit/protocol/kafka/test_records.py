"""Records inside batches, compared with bytes written by Kafka 3.9.2 and with kafka-python's builder and reader."""

import json
import struct
from pathlib import Path

import pytest
from crc32c import crc32c
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from protocol.kafka.batch import InvalidBatch, check_batch, parse_header
from protocol.kafka.compression import UnsupportedCompression
from protocol.kafka.records import Record, encode_batch
from tests.support.records import decode_records

KAFKA = json.loads((Path(__file__).parent / "kafka_3_9_2_records.json").read_text())
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
T0 = 1_700_000_000_000
IN_KAFKA = [
    Record(0, T0, b"k1", b"value value value value"),
    Record(1, T0 + 123, None, b"v2"),
    Record(2, T0 - 1, b"k3", None, (("hé", b"x"), ("n", None))),
]
SPREAD = [
    Record(0, T0, b"", b""),
    Record(63, T0 + 8191, b"k" * 63, b"v" * 64),
    Record(64, T0 - 8192, None, b"v" * 8191, (("", b""),)),
    Record(100_000, T0 + 2**40, b"k", b"v" * 70_000, tuple(("name", b"%d" % n) for n in range(100))),
    Record(2**31 - 1, -1, None, None),
]


def decode(batch: bytes | bytearray, max_bytes: int = 1 << 20) -> list[Record]:
    return decode_records(batch, 0, parse_header(batch), max_bytes)


def uncompressed(body: bytes, count: int) -> bytes:
    """A batch around `body`, for bodies that no encoder writes."""
    checked = struct.pack(">hiqqqhii", 0, count - 1, 0, 0, -1, -1, -1, count) + body
    return struct.pack(">qiibI", 0, len(checked) + 9, 0, 2, crc32c(checked)) + checked


@pytest.mark.parametrize("codec", CODECS)
def test_what_kafka_wrote_is_read(codec: str) -> None:
    assert decode(bytes.fromhex(KAFKA[f"magic 2, {codec}, create time"])) == IN_KAFKA
    stamped = decode(bytes.fromhex(KAFKA[f"magic 2, {codec}, log append time"]))
    assert stamped == [record._replace(timestamp=T0 + 999) for record in IN_KAFKA]


def test_what_is_written_is_what_kafka_writes() -> None:
    expected = bytes.fromhex(KAFKA["magic 2, none, create time"])
    assert encode_batch(IN_KAFKA, base_offset=5, leader_epoch=-1) == expected


@pytest.mark.parametrize("codec", range(5))
def test_kafka_python_reads_what_is_written(codec: int) -> None:
    batch = encode_batch(SPREAD, base_offset=1000, compression=codec)
    witness = DefaultRecordBatch(batch)
    assert witness.validate_crc()
    assert witness.last_offset == 1000 + 2**31 - 1
    assert witness.max_timestamp == T0 + 2**40
    assert [
        Record(record.offset - 1000, record.timestamp, record.key, record.value, tuple(record.headers))
        for record in witness
    ] == SPREAD


@pytest.mark.parametrize("codec", range(5))
def test_what_kafka_python_wrote_is_read(codec: int) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 20)
    for record in SPREAD[:-1]:
        appended = builder.append(record.offset_delta, record.timestamp, record.key, record.value, list(record.headers))
        assert appended is not None
    assert decode(builder.build()) == SPREAD[:-1]


@pytest.mark.parametrize("codec", range(5))
def test_round_trip_at_a_position(codec: int) -> None:
    batch = encode_batch(SPREAD, compression=codec)
    assert decode_records(b"before" + batch + b"after", 6, parse_header(batch), 1 << 20) == SPREAD


def test_header_keys_that_are_not_utf8_survive() -> None:
    records = [Record(0, T0, None, b"v", ((b"\xff\xfe", b"x"),))]
    assert decode(encode_batch(records)) == records


def test_batch_fields_are_set() -> None:
    batch = encode_batch(
        IN_KAFKA[:1],
        base_offset=9,
        producer_id=5,
        producer_epoch=6,
        base_sequence=7,
        transactional=True,
        control=True,
        log_append_time=True,
        leader_epoch=3,
    )
    header = parse_header(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (9, 3)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, 7)
    assert (header.is_transactional, header.is_control, header.log_append_time) == (True, True, True)


@pytest.mark.parametrize("codec", range(5))
def test_a_dense_batch_is_one_that_a_producer_may_send(codec: int) -> None:
    batch = encode_batch(IN_KAFKA, compression=codec)
    check_batch(memoryview(batch), 0, parse_header(batch))


def test_what_does_not_fit_is_refused() -> None:
    for records in ([], [Record(2**31, T0, None, None)], [Record(0, 2**63, None, None)]):
        with pytest.raises(ValueError):
            encode_batch(records)
    with pytest.raises(ValueError):
        encode_batch([Record(0, 0, None, None), Record(1, 2**63 - 1, None, None), Record(2, -(2**63) - 1, None, None)])
    with pytest.raises(UnsupportedCompression):
        encode_batch(IN_KAFKA, compression=5)


RECORD = b"\x0e\0\0\0\x02k\x01\0"  # length 7: key b"k", value null, no headers


def test_the_smallest_bodies() -> None:
    assert decode(uncompressed(RECORD, 1)) == [Record(0, 0, b"k", None)]


@pytest.mark.parametrize(
    ("body", "count"),
    [
        pytest.param(RECORD, 2, id="fewer records than announced"),
        pytest.param(RECORD, 2**31 - 1, id="far fewer records than announced"),
        pytest.param(RECORD * 2, 1, id="bytes after the last record"),
        pytest.param(RECORD[:-1], 1, id="cut short"),
        pytest.param(b"\x10" + RECORD[1:], 1, id="length one too long"),
        pytest.param(b"\x0c" + RECORD[1:], 1, id="length one too short"),
        pytest.param(b"\x01" + RECORD[1:], 1, id="negative length"),
        pytest.param(b"\x0e\0\0\0\xfe\xff\xff\xff\x0f", 1, id="key of 2 GiB"),
        pytest.param(b"\x0c\0\0\0\x01\x01\x01", 1, id="-1 headers"),
        pytest.param(b"\x0e\0\0\0\x01\x01\x02\x01", 1, id="header without a key"),
        pytest.param(b"\x14\0\0\0\x01\x01\xfe\xff\xff\xff\x0f", 1, id="2 billion headers"),
        pytest.param(b"\x12\0\0\0\x01\x01\x02\x02a\x0a", 1, id="header value past the end"),
        pytest.param(b"\x80\x80\x80\x80\x80\0" + RECORD[1:], 1, id="varint of 6 bytes"),
        pytest.param(b"\x14\0\0\xff\xff\xff\xff\x7f\x01\x01\0", 1, id="varint of more than 32 bits"),
        pytest.param(b"\x20\0" + b"\xff" * 10 + b"\0\0\x01\x01\0", 1, id="varlong of 11 bytes"),
        pytest.param(b"\x1e\0" + b"\xff" * 9 + b"\x7f\0\x01\x01\0", 1, id="varlong of more than 64 bits"),
    ],
)
def test_contradictory_bodies_are_invalid(body: bytes, count: int) -> None:
    with pytest.raises(InvalidBatch):
        decode(uncompressed(body, count))


@pytest.mark.parametrize("codec", range(5))
def test_the_limit_is_on_what_records_unfold_to(codec: int) -> None:
    batch = encode_batch([Record(0, 0, None, bytes(10_000))], compression=codec)
    body_bytes = 10_000 + 11
    assert decode(batch, body_bytes)
    with pytest.raises(InvalidBatch):
        decode(batch, body_bytes - 1)


def test_codecs_that_do_not_exist_are_invalid() -> None:
    batch = encode_batch(IN_KAFKA)
    header = parse_header(batch)
    with pytest.raises(InvalidBatch):
        decode_records(batch, 0, header._replace(attributes=6), 1000)
