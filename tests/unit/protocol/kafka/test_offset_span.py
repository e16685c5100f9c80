"""Batches over more offsets than they hold records."""

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from protocol.kafka.batch import CRC_START, HEADER_BYTES, parse_header
from protocol.kafka.offset_span import empty_batch, span_offsets
from protocol.kafka.records import Record, encode_batch
from tests.support.records import decode_records

MAX_BYTES = 1 << 16


@given(base_offset=st.integers(0, 2**62), count=st.integers(1, 2**31 - 1))
def test_an_empty_batch_takes_its_offsets_and_is_valid(base_offset: int, count: int) -> None:
    data = empty_batch(base_offset, count)
    header = parse_header(data)
    assert header.crc == crc32c(memoryview(data)[CRC_START:])
    assert header.size_bytes == len(data) == HEADER_BYTES
    assert (header.base_offset, header.last_offset) == (base_offset, base_offset + count - 1)
    assert header.record_count == 0
    assert list(decode_records(data, 0, header, MAX_BYTES)) == []


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
