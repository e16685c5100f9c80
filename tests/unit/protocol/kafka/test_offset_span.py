"""Batches over more offsets than they hold records."""

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from gateway.log.transactions.events import events_of
from protocol.kafka.batch import CRC_START, iter_headers, parse_header
from protocol.kafka.offset_span import gap_batch, gap_batches, is_gap, span_offsets
from protocol.kafka.records import Record, encode_batch
from protocol.kafka.transaction_marker import MarkerType, decode_marker, encode_marker
from tests.support.records import decode_records

MAX_BYTES = 1 << 16


@given(base_offset=st.integers(0, 2**62), count=st.integers(1, 2**31 - 1), producer_id=st.integers(-1, 2**63 - 1))
def test_a_gap_takes_its_offsets_and_ends_no_transaction(base_offset: int, count: int, producer_id: int) -> None:
    data = gap_batch(base_offset, count, producer_id=producer_id, producer_epoch=3, base_sequence=4)
    header = parse_header(data)
    assert header.crc == crc32c(memoryview(data)[CRC_START:])
    assert header.size_bytes == len(data)
    assert (header.base_offset, header.last_offset) == (base_offset, base_offset + count - 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (producer_id, 3, 4)
    assert is_gap(header)
    assert events_of(data, base_offset) == []


def test_clients_find_a_control_record_at_the_last_offset() -> None:
    """librdkafka and KafkaJS need one, Sarama and aiokafka decode it, and some go on after its offset."""
    data = gap_batch(70, 5)
    header = parse_header(data)
    assert header.is_control
    [record] = decode_records(data, 0, header, MAX_BYTES)
    assert header.base_offset + record.offset_delta == header.last_offset == 74
    marker = decode_marker(data, 0, header)
    assert marker is not None
    assert marker.type == MarkerType.COMMIT
    assert not is_gap(parse_header(encode_marker(marker, 1)))


def test_a_gap_of_more_offsets_than_a_batch_can_cover() -> None:
    [first, second] = [header for _, header in iter_headers(gap_batches(5, 5 + 2**31))]
    assert (first.base_offset, first.last_offset) == (5, 3 + 2**31)
    assert second.base_offset == second.last_offset == 4 + 2**31


@pytest.mark.parametrize("compression", [0, 1, 4])
@given(records=st.integers(1, 5), more=st.integers(0, 1_000))
def test_spanning_moves_the_end_and_keeps_the_records(compression: int, records: int, more: int) -> None:
    rows = [Record(delta, 1_000 + delta, None, b"value", ()) for delta in range(records)]
    data = encode_batch(rows, base_offset=70, compression=compression)
    span_offsets(data, records + more)
    header = parse_header(data)
    assert header.crc == crc32c(memoryview(data)[CRC_START:])
    assert header.last_offset == 70 + records + more - 1
    assert header.record_count == records
    assert list(decode_records(data, 0, header, MAX_BYTES)) == rows
