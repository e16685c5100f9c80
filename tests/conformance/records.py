"""Record batches and message sets for the cases, built field by field, so that each field can also be wrong.

They are decoded with kafka-python, which shares no code with the gateway.
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
from kafka.codec import snappy_encode
from kafka.record.legacy_records import LegacyRecordBatch
from kafka.record.memory_records import MemoryRecords

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
T0_MS = 1_600_000_000_000
V0_VALUE_OFFSET = 26  # offset, size, CRC, magic, attributes, null key, value length
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
MARKER_VALUE_BYTES = 6

COMPRESSORS = {
    NONE: lambda data: data,
    GZIP: gzip.compress,
    SNAPPY: snappy_encode,
    LZ4: lambda data: lz4.frame.compress(data, block_linked=False),  # Kafka reads independent blocks only
    ZSTD: zstandard.compress,
}


class Record(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int = T0_MS
    headers: Sequence[tuple[str, bytes | None]] = ()


def records(count: int, *, size: int = 10, prefix: str = "r") -> list[Record]:
    """Records with fixed content, one millisecond apart."""
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
    max_timestamp_ms: int | None = None,
    body: bytes | None = None,
) -> bytes:
    """A v2 record batch. `producer` is (id, epoch, first sequence); the named fields replace the right values."""
    times = [record.timestamp_ms for record in content] or [-1]
    base_time = times[0]
    if body is None:
        body = COMPRESSORS[codec](b"".join(_record(n, base_time, record) for n, record in enumerate(content)))
    after_crc = struct.pack(
        ">hiqqqhii",
        attributes | codec,
        len(content) - 1 if last_offset_delta is None else last_offset_delta,
        base_time,
        max(times) if max_timestamp_ms is None else max_timestamp_ms,
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
    """A record set as comparable values: its complete batches; if there is none, whether it has an incomplete one."""
    if data is None:
        return None
    reader = MemoryRecords(bytes(data))
    batches = []
    while (item := reader.next_batch()) is not None:
        batches.append(_describe_batch(item))
    return {"batches": batches, "only a part": not batches and len(data) > 0}


def _describe_batch(item: Any) -> dict[str, Any]:
    if not item.validate_crc():
        return {"bad crc": True}
    if item.magic == 0 and item.compression_type == LZ4:
        return _describe_old_lz4(item)
    try:
        content = [(r.offset, r.timestamp, r.timestamp_type, r.key, r.value, tuple(r.headers)) for r in item]
    except Exception as error:  # each codec raises exceptions of its own
        return {"unreadable": type(error).__name__}
    if isinstance(item, LegacyRecordBatch):
        return {"magic": item.magic, "codec": item.compression_type, "records": content}
    is_control = bool(item.attributes & CONTROL)
    return {
        "magic": item.magic,
        "codec": item.compression_type,
        "attributes": item.attributes,
        "base offset": item.base_offset,
        "last offset": item.last_offset,
        "max timestamp": "<time>" if is_control else item.max_timestamp,
        "producer": (item.producer_id, item.producer_epoch, item.base_sequence),
        "records": [_without_server_values(*record) for record in content] if is_control else content,
    }


def _without_server_values(offset: int, time_ms: int, kind: int, key: bytes, value: bytes, headers: Any) -> Any:
    """A transaction marker: int16 version and int16 type; its value is int16 version and int32 coordinator epoch."""
    epoch = "<coordinator epoch>" if len(value) == MARKER_VALUE_BYTES else value[2:]
    return (offset, "<time>" if time_ms > 0 else time_ms, kind, key, (value[:2], epoch), headers)


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
    """The LZ4 frame of clients 0.8 and 0.9: its header checksum wrongly covers the magic number (KAFKA-3160)."""
    frame = bytearray(lz4.frame.compress(data, block_linked=False, store_size=False))
    frame[6] = _xxh32(bytes(frame[:6])) >> 8 & 0xFF
    return bytes(frame)


def _describe_old_lz4(item: LegacyRecordBatch) -> dict[str, Any]:
    """kafka-python needs one more package for these frames: correct the checksum, then read the messages inside."""
    frame = bytearray(item._buffer[V0_VALUE_OFFSET:])
    descriptor = bytes(frame[4:6])
    old_checksum = frame[6]
    mended = bytes(frame[:6]) + bytes([_xxh32(descriptor) >> 8 & 0xFF]) + bytes(frame[7:])
    inside = describe(lz4.frame.decompress(mended))
    return {
        "magic": 0,
        "codec": LZ4,
        "checksum as old clients expect": old_checksum == _xxh32(bytes(frame[:6])) >> 8 & 0xFF,
        "records": [record for one in inside["batches"] for record in one["records"]],
    }


def _xxh32(data: bytes) -> int:
    """xxHash32, seed 0, of less than 16 bytes: all that a frame header's checksum needs."""
    prime1, prime2, prime3, prime4, prime5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    mask = 0xFFFFFFFF
    digest = prime5 + len(data)
    whole = len(data) // 4 * 4
    for start in range(0, whole, 4):
        digest = (digest + int.from_bytes(data[start : start + 4], "little") * prime3) & mask
        digest = (digest << 17 | digest >> 15) & mask
        digest = digest * prime4 & mask
    for byte in data[whole:]:
        digest = (digest + byte * prime5) & mask
        digest = (digest << 11 | digest >> 21) & mask
        digest = digest * prime1 & mask
    digest = (digest ^ digest >> 15) * prime2 & mask
    digest = (digest ^ digest >> 13) * prime3 & mask
    return digest ^ digest >> 16
