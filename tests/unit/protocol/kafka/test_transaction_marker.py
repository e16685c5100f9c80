"""Transaction markers against batches that Apache Kafka wrote (kafka_transaction_markers.json)."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.kafka.batch import InvalidBatch, iter_headers, parse_header
from protocol.kafka.records import Record, encode_batch
from protocol.kafka.transaction_marker import MarkerType, TransactionMarker, decode_marker, encode_marker

KAFKA: dict[str, str] = json.loads(Path(__file__).with_name("kafka_transaction_markers.json").read_text())
LOG = bytes.fromhex(KAFKA["log of Kafka 3.9.2: a record, COMMIT, a record, ABORT"])
CLASSES = "coordinator epoch 9, by the classes of Kafka 4.2.0"


@pytest.mark.parametrize("type_", MarkerType)
def test_kafkas_bytes_are_written(type_: MarkerType) -> None:
    marker = TransactionMarker(type_, 1_234_567_890_123, 7, 9)
    kafkas = bytes.fromhex(KAFKA[f"{type_.name}, {CLASSES}"])
    assert encode_marker(marker, 1_700_000_000_000, base_offset=40, leader_epoch=3) == kafkas
    assert decode_marker(kafkas, 0, parse_header(kafkas)) == marker


def test_a_log_of_kafka() -> None:
    batches = list(iter_headers(LOG))
    markers = [(header.base_offset, decode_marker(LOG, at, header)) for at, header in batches if header.is_control]
    assert [header.is_transactional for _, header in batches] == [True] * 4
    assert markers == [
        (1, TransactionMarker(MarkerType.COMMIT, 0, 0, 0)),
        (3, TransactionMarker(MarkerType.ABORT, 0, 0, 0)),
    ]
    at, header = batches[1]
    marker = decode_marker(LOG, at, header)
    assert marker is not None
    assert encode_marker(marker, header.base_timestamp, base_offset=1) == LOG[at : at + header.size_bytes]


def control_batch(key: bytes | None, value: bytes | None) -> bytes:
    records = [Record(0, 0, key, value)]
    return bytes(encode_batch(records, producer_id=1, producer_epoch=0, transactional=True, control=True))


@given(
    st.builds(
        TransactionMarker,
        st.sampled_from(MarkerType),
        st.integers(0, 2**63 - 1),
        st.integers(0, 2**15 - 1),
        st.integers(-1, 2**31 - 1),
    )
)
def test_what_is_written_is_read(marker: TransactionMarker) -> None:
    batch = encode_marker(marker, 5)
    assert decode_marker(batch, 0, parse_header(batch)) == marker


def test_other_control_records_end_no_transaction() -> None:
    batch = control_batch(b"\x00\x00\x00\x02", b"")  # a leader change of Raft
    assert decode_marker(batch, 0, parse_header(batch)) is None


def test_an_emptied_control_batch_ends_no_transaction() -> None:
    batch = encode_marker(TransactionMarker(MarkerType.ABORT, 1, 0, 0), 0)
    header = parse_header(batch)._replace(record_count=0, batch_length=49)
    assert decode_marker(batch[:61], 0, header) is None


def test_a_later_version_is_read_as_this_one() -> None:
    batch = control_batch(b"\x00\x01\x00\x01\xff", b"\x00\x01\x00\x00\x00\x05\xff")
    assert decode_marker(batch, 0, parse_header(batch)) == TransactionMarker(MarkerType.COMMIT, 1, 0, 5)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\x00\x00\x00\x00\x00\x05"),
        (b"\x00\x00\x00", b"\x00\x00\x00\x00\x00\x05"),
        (b"\xff\xff\x00\x00", b"\x00\x00\x00\x00\x00\x05"),
        (b"\x00\x00\x00\x00", None),
        (b"\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00"),
        (b"\x00\x00\x00\x00", b"\xff\xff\x00\x00\x00\x05"),
    ],
)
def test_damaged_markers(key: bytes | None, value: bytes | None) -> None:
    batch = control_batch(key, value)
    with pytest.raises(InvalidBatch):
        decode_marker(batch, 0, parse_header(batch))


def test_a_batch_that_is_cut_short() -> None:
    batch = encode_marker(TransactionMarker(MarkerType.ABORT, 1, 0, 0), 0)
    with pytest.raises(InvalidBatch):
        decode_marker(batch[:-1], 0, parse_header(batch))


def test_values_without_room() -> None:
    with pytest.raises(ValueError, match="format"):
        encode_marker(TransactionMarker(MarkerType.ABORT, 1, 0, 2**31), 0)
