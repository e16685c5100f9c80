"""Record batches and message sets for the cases: built field by field, so that each field can also be wrong.

Reading back uses kafka-python's decoder, which shares no code with the gateway's.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import crc32c
import lz4.frame
import zstandard
from kafka.codec import lz4_encode_old_kafka, snappy_encode
from kafka.record.legacy_records import LegacyRecordBatch
from kafka.record.memory_records import MemoryRecords

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
T0_MS = 1_600_000_000_000
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

COMPRESSORS = {
    NONE: lambda data: data,
    GZIP: gzip.compress,
    SNAPPY: snappy_encode,
    LZ4: lz4.frame.compress,
    ZSTD: zstandard.compress,
}


class Record(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int = T0_MS
    headers: Sequence[tuple[str, bytes | None]] = ()


def records(count: int, *, size: int = 10, prefix: str = "r") -> list[Record]:
    """Records of a known content, one millisecond apart."""
    return [Record(f"{prefix}{n}".encode().ljust(size, b"."), f"k{n}".encode(), T0_MS + n) for n in range(count)]


def batch(
    content: Sequence[Record],
    codec: int = NONE,
    *,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    magic: int = 2,
    base_offset: int = 0,
    leader_epoch: int = -1,
    count: int | None = None,
    last_offset_delta: int | None = None,
    body: bytes | None = None,
) -> bytes:
    """A v2 record batch. `producer` is (id, epoch, first sequence); the named fields overrule the right values."""
    times = [record.timestamp_ms for record in content] or [-1]
    base_time = times[0]
    if body is None:
        body = COMPRESSORS[codec](b"".join(_record(n, base_time, record) for n, record in enumerate(content)))
    after_crc = struct.pack(
        ">hiqqqhii",
        attributes | codec,
        len(content) - 1 if last_offset_delta is None else last_offset_delta,
        base_time,
        max(times),
        *producer,
        len(content) if count is None else count,
    )
    checked = after_crc + body
    tail = struct.pack(">ibI", leader_epoch, magic, crc32c.crc32c(checked)) + checked
    return struct.pack(">qi", base_offset, len(tail)) + tail


def with_bad_crc(data: bytes) -> bytes:
    """The batch with its last byte changed."""
    return data[:-1] + bytes([data[-1] ^ 0x01])


def with_length(data: bytes, length: int) -> bytes:
    """The batch or message with another length field."""
    return data[:8] + struct.pack(">i", length) + data[12:]


def message(record: Record, magic: int, *, offset: int = 0, codec: int = NONE, attributes: int = 0) -> bytes:
    """A v0 or v1 message with its offset and size."""
    stamp = struct.pack(">q", record.timestamp_ms) if magic == 1 else b""
    checked = struct.pack(">bb", magic, attributes | codec) + stamp + _sized(record.key) + _sized(record.value)
    return struct.pack(">qiI", offset, len(checked) + 4, zlib.crc32(checked)) + checked


def message_set(content: Sequence[Record], magic: int, codec: int = NONE) -> bytes:
    """Messages v0 or v1; with a codec, one wrapper around them (relative inner offsets in v1)."""
    inner = b"".join(message(record, magic, offset=n) for n, record in enumerate(content))
    if codec == NONE:
        return inner
    last = content[-1]
    value = COMPRESSORS[codec](inner) if codec != LZ4 or magic == 1 else _old_lz4(inner)
    return message(Record(value, None, last.timestamp_ms), magic, offset=len(content) - 1, codec=codec)


def describe(data: bytes | None) -> Any:
    """A record set as comparable values: its batches with their records, and whether a part of one follows."""
    if data is None:
        return None
    reader = MemoryRecords(bytes(data))
    batches = []
    while (item := reader.next_batch()) is not None:
        batches.append(_describe_batch(item))
    return {"batches": batches, "partial": reader.valid_bytes() < len(data)}


def _describe_batch(item: Any) -> dict[str, Any]:
    if not item.validate_crc():
        return {"bad crc": True}
    content = [(r.offset, r.timestamp, r.timestamp_type, r.key, r.value, tuple(r.headers)) for r in item]
    if isinstance(item, LegacyRecordBatch):
        return {"magic": item.magic, "codec": item.compression_type, "records": content}
    return {
        "magic": item.magic,
        "codec": item.compression_type,
        "attributes": item.attributes,
        "base offset": item.base_offset,
        "last offset": item.last_offset,
        "max timestamp": item.max_timestamp,
        "producer": (item.producer_id, item.producer_epoch, item.base_sequence),
        "records": content,
    }


def _record(index: int, base_time: int, record: Record) -> bytes:
    body = b"\x00" + _varint(record.timestamp_ms - base_time) + _varint(index)
    body += _varsized(record.key) + _varsized(record.value) + _varint(len(record.headers))
    for name, value in record.headers:
        body += _varsized(name.encode()) + _varsized(value)
    return _varint(len(body)) + body


def _varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _varsized(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def _old_lz4(data: bytes) -> bytes:
    """The LZ4 frame of 0.8 and 0.9 clients: its header checksum wrongly covers the magic number (KAFKA-3160)."""
    return bytes(lz4_encode_old_kafka(data))
