"""The records inside a record batch (magic 2), decoded and encoded.

Layout of a record; varints are zigzag, and null is length -1:

    length          varint    bytes that follow
    attributes      int8      unused
    timestamp_delta varlong   milliseconds after the batch's base timestamp
    offset_delta    varint
    key             varint length, bytes
    value           varint length, bytes
    headers         varint count, each: varint length, UTF-8 key; varint length, value

Source: https://kafka.apache.org/39/documentation/#record. Only conversion uses this module (native Pulsar entries, old
fetch versions, group state); the produce and fetch path never does.
"""

import struct
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from crc32c import crc32c

from protocol.kafka.batch import (
    CONTROL_MASK,
    CRC_START,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Buffer,
    InvalidBatch,
)
from protocol.kafka.compression import DecompressionError, UnsupportedCompression, compress, decompress

_VARINT_MAX_BYTES: Final = 5
_VARLONG_MAX_BYTES: Final = 10
_PRECOMPUTED_VARINTS: Final = 4096
_MIN_INT64, _MAX_INT64 = -(2**63), 2**63 - 1

_UNCHECKED = struct.Struct(">qiibI")
_CHECKED = struct.Struct(">hiqqqhii")

Headers = tuple[tuple[str | bytes, bytes | None], ...]


class Record(NamedTuple):
    """One record; its offset is the batch's base offset plus `offset_delta`. Timestamps are milliseconds, -1 is none.

    Header keys decode to str, or stay bytes where a client sent something that is not UTF-8.
    """

    offset_delta: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def iter_records(buffer: Buffer, position: int, header: BatchHeader, max_bytes: int) -> Iterator[Record]:
    """The records of the batch at `position`, at most `max_bytes` after decompression. Raises InvalidBatch.

    An iterator, because a batch of 64 MB may have nine million records.
    """
    end = position + header.batch_length + LOG_OVERHEAD_BYTES
    try:
        body = decompress(header.compression, memoryview(buffer)[position + HEADER_BYTES : end], max_bytes)
    except (DecompressionError, UnsupportedCompression) as error:
        raise InvalidBatch(f"records do not decompress: {error}") from error
    return parse_records(body, header)


def parse_records(body: bytes, header: BatchHeader) -> Iterator[Record]:
    """The records in the uncompressed `body` of a batch. Raises InvalidBatch at the first invalid record."""
    if not header.log_append_time:
        return _parse_records(body, header.record_count, header.base_timestamp)
    records = _parse_records(body, header.record_count, 0)
    return (record._replace(timestamp=header.max_timestamp) for record in records)


def _parse_records(body: bytes, count: int, base_timestamp: int) -> Iterator[Record]:
    # Nearly every varint is one byte long, so those are read in place: a call for each would double the cost.
    at = 0
    try:
        for _ in range(count):
            length, at = (_ZIGZAG[byte], at + 1) if (byte := body[at]) < 0x80 else _read_varint(body, at)
            end = at + length
            at += 1  # attributes
            delta, at = (_ZIGZAG[byte], at + 1) if (byte := body[at]) < 0x80 else _read_varlong(body, at)
            offset_delta, at = (_ZIGZAG[byte], at + 1) if (byte := body[at]) < 0x80 else _read_varint(body, at)
            size, at = (_ZIGZAG[byte], at + 1) if (byte := body[at]) < 0x80 else _read_varint(body, at)
            key = None if size < 0 else body[at : (at := at + size)]
            size, at = (_ZIGZAG[byte], at + 1) if (byte := body[at]) < 0x80 else _read_varint(body, at)
            value = None if size < 0 else body[at : (at := at + size)]
            headers, at = ((), at + 1) if body[at] == 0 else _read_headers(body, at)
            if at != end:
                raise InvalidBatch(f"record of {length} bytes has its fields end {at - end} bytes off")
            timestamp = base_timestamp + delta
            if not _MIN_INT64 <= timestamp <= _MAX_INT64:
                timestamp = (timestamp - _MIN_INT64) % 2**64 + _MIN_INT64  # As in Java.
            yield Record(offset_delta, timestamp, key, value, headers)
    except IndexError as error:
        raise InvalidBatch(f"{count} records announced, the bytes end before the last one") from error
    if at != len(body):
        raise InvalidBatch(f"{len(body) - at} bytes after the last of {count} records")


def check_records(body: bytes, count: int, most: int, *, whole: bool, sized: bool) -> None:
    """Check the first records, at most `most`, as far as they are in `body`. No objects are created for them.

    `whole`: no more bytes follow. `sized`: the size of a record has to be equal to its length field; brokers do not
    check that in compressed batches. Raises InvalidBatch.
    """
    at = 0
    try:
        for _ in range(min(count, most)):
            # Numbers of one byte, and lengths up to 8191, are read in place: a call for each would take longer than all
            # the rest.
            if (low := body[at]) < 0x80:
                at += 1
                start, twice = at, low
            elif (high := body[at + 1]) < 0x80:
                at += 2
                start, twice = at, high << 7 | low & 0x7F
            else:
                length, at = _read_varint(body, at)
                start, twice = at, 2 * length
            if body[at + 1] < 0x80 and body[at + 2] < 0x80:  # the attributes, and the deltas of timestamp and offset
                at += 3
            else:
                at = _read_varint(body, _read_varlong(body, at + 1)[1])[1]
            # The key and the value; an odd number stands for null.
            at = at + 1 + (0 if low & 1 else low >> 1) if (low := body[at]) < 0x80 else _skip_bytes(body, at)
            at = (
                at + 1 + (0 if low & 1 else low >> 1) if (low := body[at]) < 0x80
                else at + 2 + (0 if low & 1 else high << 6 | (low & 0x7F) >> 1) if (high := body[at + 1]) < 0x80
                else _skip_bytes(body, at)
            )  # fmt: skip
            at = at + 1 if body[at] == 0 else _read_headers(body, at)[1]
            if sized and 2 * (at - start) != twice:  # an odd number stands for a negative length
                raise InvalidBatch(f"a record's fields take {at - start} bytes, which is not its length")
    except IndexError:
        if whole:
            raise InvalidBatch(f"{count} records announced, the bytes end before the last one") from None
        return
    if whole and at > len(body):
        raise InvalidBatch("the last record is cut short")
    if whole and count <= most and at < len(body):
        raise InvalidBatch(f"{len(body) - at} bytes after the last of {count} records")


def _skip_bytes(body: bytes, position: int) -> int:
    """The position after a key or a value."""
    size, position = _read_varint(body, position)
    return position + max(size, 0)


_ZIGZAG: Final = tuple((byte >> 1) ^ -(byte & 1) for byte in range(0x80))


def _read_headers(body: bytes, position: int) -> tuple[Headers, int]:
    count, position = _read_varint(body, position)
    if count < 0:
        raise InvalidBatch(f"{count} headers")
    headers: list[tuple[str | bytes, bytes | None]] = []
    for _ in range(count):
        key_length, start = _read_varint(body, position)
        if key_length < 0:
            raise InvalidBatch(f"header key of {key_length} bytes")
        value_length, position = _read_varint(body, start + key_length)
        key = _header_key(body[start : start + key_length])
        value = None if value_length < 0 else body[position : (position := position + value_length)]
        headers.append((key, value))
    return tuple(headers), position


def _header_key(key: bytes) -> str | bytes:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key


def _read_varint(body: bytes, position: int) -> tuple[int, int]:
    # One and two bytes, up to 8191, without a loop: lengths and deltas are rarely longer.
    low = body[position]
    if low < 0x80:
        return _ZIGZAG[low], position + 1
    high = body[position + 1]
    if high < 0x80:
        return (high << 6 | (low & 0x7F) >> 1) ^ -(low & 1), position + 2
    value, position = _read_unsigned(body, position, _VARINT_MAX_BYTES)
    if value >> 32:
        raise InvalidBatch(f"varint of more than 32 bits before byte {position}")
    return (value >> 1) ^ -(value & 1), position


def _read_varlong(body: bytes, position: int) -> tuple[int, int]:
    value, position = _read_unsigned(body, position, _VARLONG_MAX_BYTES)
    if value >> 64:
        raise InvalidBatch(f"varlong of more than 64 bits before byte {position}")
    return (value >> 1) ^ -(value & 1), position


def _read_unsigned(body: bytes, position: int, max_bytes: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * max_bytes, 7):
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise InvalidBatch(f"varint of more than {max_bytes} bytes before byte {position}")


def encode_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    compression: int = 0,
    log_append_time: bool = False,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = 0,
) -> bytearray:
    """One batch of `records`, at least one, in order of their offset deltas (gaps allowed).

    `records` is not copied to a list, because there may be millions. Raises UnsupportedCompression, and ValueError for
    values that do not fit into the format.
    """
    rows = iter(records)
    first = next(rows, None)
    if first is None:
        raise ValueError("a batch needs a record")
    base_timestamp = first.timestamp
    encoded = _encode_records(chain((first,), rows), base_timestamp)
    body = compress(compression, encoded.body)
    attributes = (
        compression
        | (TIMESTAMP_TYPE_MASK if log_append_time else 0)
        | (TRANSACTIONAL_MASK if transactional else 0)
        | (CONTROL_MASK if control else 0)
    )
    batch = bytearray(HEADER_BYTES)
    batch += body
    try:
        _CHECKED.pack_into(
            batch, CRC_START, attributes, encoded.last_offset_delta, base_timestamp,
            encoded.max_timestamp, producer_id, producer_epoch, base_sequence, encoded.record_count,
        )  # fmt: skip
        crc = crc32c(memoryview(batch)[CRC_START:])
        _UNCHECKED.pack_into(batch, 0, base_offset, len(batch) - LOG_OVERHEAD_BYTES, leader_epoch, MAGIC_V2, crc)
    except struct.error as error:
        raise ValueError(f"a field is out of range: {error}") from error
    return batch


class _Encoded(NamedTuple):
    body: bytes
    record_count: int
    last_offset_delta: int
    max_timestamp: int


def _encode_records(records: Iterable[Record], base_timestamp: int) -> _Encoded:
    varints = _VARINTS
    body = bytearray()
    count = offset_delta = 0
    max_timestamp = base_timestamp
    for offset_delta, timestamp, key, value, headers in records:
        record = b"".join((
            b"\0", varints[timestamp - base_timestamp], varints[offset_delta],
            b"\1" if key is None else varints[len(key)] + key,
            b"\1" if value is None else varints[len(value)] + value,
            _encode_headers(headers) if headers else b"\0",
        ))  # fmt: skip
        body += varints[len(record)]
        body += record
        count += 1
        max_timestamp = max(max_timestamp, timestamp)
    return _Encoded(bytes(body), count, offset_delta, max_timestamp)


def _encode_headers(headers: Headers) -> bytes:
    parts = [_VARINTS[len(headers)]]
    for key, value in headers:
        name = key.encode() if isinstance(key, str) else key
        parts += (_VARINTS[len(name)], name)
        parts += (b"\1",) if value is None else (_VARINTS[len(value)], value)
    return b"".join(parts)


class _Varints(dict[int, bytes]):
    """Zigzag varints by their value: those of common lengths and deltas are cached, others are computed each time."""

    def __missing__(self, value: int) -> bytes:
        remaining = (value << 1) ^ (value >> 63)
        if not 0 <= remaining < 1 << 64:
            raise ValueError(f"{value} does not fit 64 bits")
        encoded = bytearray()
        while remaining >= 0x80:
            encoded.append(remaining & 0x7F | 0x80)
            remaining >>= 7
        encoded.append(remaining)
        return bytes(encoded)


_VARINTS: Final = _Varints()
_VARINTS.update({value: _VARINTS[value] for value in range(_PRECOMPUTED_VARINTS)})
