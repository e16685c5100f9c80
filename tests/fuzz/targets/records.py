"""Record batches, message sets and their conversions, as clients send them and as they are stored."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from random import Random

from crc32c import crc32c

from protocol.kafka.batch import (
    HEADER_BYTES,
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
from protocol.kafka.offset_span import batch_extents
from protocol.kafka.recompression import recompress
from protocol.kafka.records import Record, check_records, encode_batch
from protocol.kafka.up_conversion import up_convert
from tests.fuzz.target import Target, reason
from tests.support.records import decode_records, parse_message_set

MAX_BYTES = 1 << 17
"""The limit of decompressed records here."""
_REFUSALS = (CorruptBatch, InvalidBatch, UnsupportedCompression, DecompressionError)


def _records(random: Random, count: int) -> list[Record]:
    def some() -> bytes | None:
        return random.choice([None, b"", b"k", random.randbytes(random.randint(0, 40))])

    return [
        Record(
            delta,
            random.choice([-1, 0, 10**12 + delta, random.getrandbits(45)]),
            some(),
            some(),
            tuple((random.choice(["h", "", "kafka.record"]), some()) for _ in range(random.randint(0, 2))),
        )
        for delta in range(count)
    ]


def batches(random: Random) -> list[bytes]:
    """One batch of each codec and kind, alone, and several in a row."""
    found = [
        bytes(encode_batch(_records(random, count), compression=codec, producer_id=codec - 1, base_sequence=0))
        for codec in range(5)
        for count in (1, 3, 40)
    ]
    found += [
        bytes(encode_batch(_records(random, 2), log_append_time=True)),
        bytes(encode_batch(_records(random, 1), control=True, transactional=True)),
        bytes(encode_batch([Record(0, 1, None, bytes(2 * MAX_BYTES))], compression=1)),
    ]
    return [*found, found[0] + found[4], found[1] * 3]


def sign_batch(data: bytearray) -> None:
    """Correct the checksum of the first batch, and mostly its length."""
    if len(data) >= 61:
        if data[20] & 3:
            struct.pack_into(">i", data, 8, len(data) - 12)
        struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))


def check_batches(data: bytes) -> str:
    outcomes: list[str] = []
    try:
        for position, _ in iter_headers(data):
            outcomes.append(_check_batch(data, position))
            if len(outcomes) == 5:
                break
        end_offset = stamp_offsets(numbered := bytearray(data), 0)
        assert [extent[1:] for extent in batch_extents(numbered)][-1:] == [(len(data), end_offset)][: len(data)]
    except (CorruptBatch, InvalidBatch) as error:
        outcomes.append(reason(error))
    return ", ".join(outcomes)


def _check_batch(data: bytes, position: int) -> str:
    header = parse_header(data, position)
    outcome = _refused(lambda: check_batch(memoryview(data), position, header))
    try:
        records = decode_records(data, position, header, MAX_BYTES)
    except InvalidBatch as error:
        return f"{outcome} {reason(error)}"
    if records and not outcome:
        _check_encoder(records)
    changed = bytearray(data)
    set_log_append_time(changed, position, 5)
    again = decode_records(changed, position, parse_header(changed, position), MAX_BYTES)
    assert {record.timestamp for record in again} <= {5}
    plain = decompress(
        header.compression, memoryview(data)[position + HEADER_BYTES : position + header.size_bytes], MAX_BYTES
    )
    check_records(plain, header.record_count, len(records), whole=True, sized=True)
    unpacked = recompress(memoryview(data)[position:], header, 0, plain)
    assert decode_records(unpacked, 0, parse_header(unpacked), MAX_BYTES) == records
    return f"{outcome} decoded {header.compression} ".translate(_LETTERS)


_LETTERS = str.maketrans("01234", "abcde")


def _check_encoder(records: list[Record]) -> None:
    try:
        again = encode_batch(records)
    except ValueError:
        return
    assert decode_records(again, 0, parse_header(again), 1 << 24) == records


def _refused(call: Callable[[], object]) -> str:
    try:
        call()
    except _REFUSALS as error:
        return reason(error)
    return ""


def _message_sets(random: Random) -> Sequence[bytes]:
    found = []
    for magic in (0, 1):
        for codec in range(4):
            messages = [
                LegacyMessage(magic, 0, row.offset_delta, row.timestamp if magic else -1, row.key, row.value)
                for row in _records(random, 3)
            ]
            found.append(encode_message_set(messages, codec))
    return [*found, found[0] + found[0], found[4] + found[5], b""]


def sign_message(data: bytearray) -> None:
    if len(data) >= 26:
        if data[15] & 1:
            struct.pack_into(">i", data, 8, len(data) - 12)
        struct.pack_into(">I", data, 12, zlib.crc32(memoryview(data)[16:]))


def check_message_set(data: bytes) -> str:
    outcome = _refused(lambda: parse_message_set(data, MAX_BYTES))
    try:
        converted = up_convert(memoryview(data), max_bytes=MAX_BYTES)
    except (CorruptBatch, InvalidBatch) as error:
        return f"{outcome} {reason(error)}"
    if not converted:
        return f"{outcome} nothing"
    header = parse_header(converted)
    if outcome:
        return outcome
    check_batch(memoryview(converted), 0, header)
    messages = parse_message_set(data, MAX_BYTES)
    records = decode_records(converted, 0, header, 1 << 24)
    assert [(each.key, each.value) for each in messages] == [(each.key, each.value) for each in records]
    return f"converted {header.compression}".translate(_LETTERS)


def check_down_conversion(data: bytes) -> str:
    outcomes = []
    for magic in (0, 1):
        try:
            messages = down_convert([data], magic, data[7] if len(data) > 7 else 0, MAX_BYTES)
        except (CorruptBatch, InvalidBatch, UnsupportedCompression) as error:
            outcomes.append(reason(error))
            continue
        outcomes.append("none" if not messages else "some")
    return ", ".join(outcomes)


def _compressed(random: Random) -> Sequence[bytes]:
    plain = [b"", b"x", bytes(1_000), random.randbytes(300), bytes(2 * MAX_BYTES)]
    found = [bytes([codec]) + compress(codec, data) for codec in range(1, 5) for data in plain]
    found += [bytes([codec + 8]) + compress(codec, data, 0) for codec in (2, 3) for data in plain]
    return [*found, b"\x02" + b"\xff\xff\xff\xff\x0f", b"\x0b" + bytes.fromhex("04224d18")]


def check_compressed(data: bytes) -> str:
    """The codec in the first byte; 8 more for magic 0."""
    if not data:
        return "empty"
    codec, magic = data[0] & 7, 0 if data[0] & 8 else 2
    try:
        plain = decompress(codec, memoryview(data)[1:], MAX_BYTES, magic=magic)
    except (DecompressionError, UnsupportedCompression) as error:
        return reason(error)[:40]  # libraries quote their input
    assert len(plain) <= MAX_BYTES
    if codec and (magic or codec != 4):
        assert decompress(codec, compress(codec, plain, magic), MAX_BYTES, magic=magic) == plain
    return f"plain {codec}".translate(_LETTERS)


TARGETS = (
    Target("record batches", batches, check_batches, sign_batch),
    Target("message sets", _message_sets, check_message_set, sign_message),
    Target("down-conversion", batches, check_down_conversion, sign_batch),
    Target("compressed records", _compressed, check_compressed),
)
