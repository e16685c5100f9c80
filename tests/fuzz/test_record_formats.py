"""Decoders of record formats with arbitrary and damaged bytes: only their documented errors, within their limits."""

import contextlib
import struct
import zlib
from collections.abc import Callable

from crc32c import crc32c
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from protocol.kafka.batch import (
    CorruptBatch,
    InvalidBatch,
    check_batch,
    iter_headers,
    parse_header,
    set_log_append_time,
    stamp_offsets,
)
from protocol.kafka.compression import DecompressionError, UnsupportedCompression, compress, decompress
from protocol.kafka.down_conversion import down_convert
from protocol.kafka.message_set import LegacyMessage, encode_message_set
from protocol.kafka.records import Record, encode_batch
from protocol.kafka.up_conversion import up_convert
from tests.support.records import decode_records, parse_message_set

MAX_BYTES = 1 << 16
FUZZ = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])

any_bytes = st.binary(max_size=300)
optional_bytes = st.none() | st.binary(max_size=200)
timestamps = st.integers(-1, 2**45)
headers = st.lists(st.tuples(st.text(max_size=5), optional_bytes), max_size=3).map(tuple)
records = st.lists(st.tuples(timestamps, optional_bytes, optional_bytes, headers), min_size=1, max_size=20).map(
    lambda rows: [Record(delta, *row) for delta, row in enumerate(rows)]
)
codecs = st.integers(0, 4)
legacy_codecs = st.integers(0, 3)
magics = st.integers(0, 1)


@st.composite
def damaged(draw: st.DrawFn, source: st.SearchStrategy[bytes]) -> bytes:
    """Bytes of `source` with some overwritten, cut off or doubled."""
    data = bytearray(draw(source))
    for _ in range(draw(st.integers(0, 4))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    start, end = sorted((draw(st.integers(0, len(data))), draw(st.integers(0, len(data)))))
    return bytes(draw(st.sampled_from([data, data[:end], data[start:], data[:start] + data[end:], data + data])))


batches = st.builds(lambda rows, codec: bytes(encode_batch(rows, compression=codec)), records, codecs)


def as_message_set(rows: list[Record], magic: int, codec: int) -> bytes:
    messages = [
        LegacyMessage(magic, 0, row.offset_delta, row.timestamp if magic else -1, row.key, row.value) for row in rows
    ]
    return encode_message_set(messages, codec)


message_sets = st.builds(as_message_set, records, magics, legacy_codecs)


def with_right_batch_crc(data: bytes) -> bytes:
    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]


def with_right_message_crc(data: bytes) -> bytes:
    return data[:12] + struct.pack(">I", zlib.crc32(data[16:])) + data[16:]


def refuses_only(call: Callable[[], object], *errors: type[Exception]) -> None:
    with contextlib.suppress(*errors):
        call()


def read_batches(data: bytes) -> None:
    for position, header in iter_headers(data):
        with contextlib.suppress(CorruptBatch, InvalidBatch):
            check_batch(memoryview(data), position, header)
        with contextlib.suppress(InvalidBatch):
            decode_records(data, position, header, MAX_BYTES)
        set_log_append_time(bytearray(data), position, 5)


@FUZZ
@given(any_bytes | damaged(batches) | damaged(batches).map(with_right_batch_crc))
def test_batch_readers(data: bytes) -> None:
    refuses_only(lambda: parse_header(data), CorruptBatch)
    refuses_only(lambda: read_batches(data), CorruptBatch, InvalidBatch)
    refuses_only(lambda: stamp_offsets(bytearray(data), 7), CorruptBatch)


@FUZZ
@given(any_bytes | damaged(batches) | damaged(message_sets) | damaged(message_sets).map(with_right_message_crc))
def test_message_set_readers(data: bytes) -> None:
    refuses_only(lambda: parse_message_set(data, MAX_BYTES), CorruptBatch, InvalidBatch)
    refuses_only(lambda: up_convert(memoryview(data), max_bytes=MAX_BYTES), CorruptBatch, InvalidBatch)


@FUZZ
@given(any_bytes | damaged(batches), magics, st.integers(0, 30))
def test_down_conversion(data: bytes, magic: int, first_offset: int) -> None:
    errors = (CorruptBatch, InvalidBatch, UnsupportedCompression)
    refuses_only(lambda: down_convert([data], magic, first_offset, MAX_BYTES), *errors)


@FUZZ
@given(
    codecs,
    magics,
    any_bytes
    | damaged(st.builds(compress, codecs, st.binary(max_size=200)))
    | damaged(st.builds(lambda codec, size: compress(codec, bytes(size)), codecs, st.integers(0, 4 * MAX_BYTES))),
)
@example(codec=2, magic=1, data=b"\xff\xff\xff\xff\x0f")
@example(codec=3, magic=0, data=bytes.fromhex("04224d18"))
def test_decompressors_stay_within_their_limit(codec: int, magic: int, data: bytes) -> None:
    with contextlib.suppress(DecompressionError):
        assert len(decompress(codec, data, MAX_BYTES, magic=magic)) <= MAX_BYTES


@FUZZ
@given(records, codecs, st.integers(0, 2**40))
def test_batches_round_trip(rows: list[Record], codec: int, base_offset: int) -> None:
    batch = encode_batch(rows, base_offset=base_offset, compression=codec)
    assert decode_records(batch, 0, parse_header(batch), 1 << 20) == rows


@FUZZ
@given(records, magics, legacy_codecs)
def test_up_and_down_again_is_the_same_set(rows: list[Record], magic: int, codec: int) -> None:
    original = as_message_set(rows, magic, codec)
    there_and_back = down_convert([up_convert(original, max_bytes=1 << 20)], magic, 0, 1 << 20)
    assert parse_message_set(there_and_back, 1 << 20) == parse_message_set(original, 1 << 20)
