"""The offsets of batches: finding them in a log, and batches that have fewer records than offsets."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from crc32c import crc32c

from protocol.kafka.batch import CRC_START, HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC_V2, NO_TIMESTAMP

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LAST_OFFSET_DELTA: Final = struct.Struct(">i")
_LAST_OFFSET_DELTA_OFFSET: Final = 23
_EXTENT = struct.Struct(">qi11xi")  # base_offset, batch_length, last_offset_delta
_MAX_COUNT: Final = 2**31 - 1
_CRC: Final = struct.Struct(">I")
_CRC_OFFSET: Final = 17


def empty_batch(
    base_offset: int, offset_count: int, *, producer_id: int = -1, producer_epoch: int = -1, base_sequence: int = -1
) -> bytearray:
    """A batch without records that covers ``offset_count`` offsets; consumers skip it (KAFKA-5443)."""
    batch = bytearray(HEADER_BYTES)
    _HEADER.pack_into(
        batch, 0, base_offset, HEADER_BYTES - LOG_OVERHEAD_BYTES, 0, MAGIC_V2, 0, 0, offset_count - 1,
        NO_TIMESTAMP, NO_TIMESTAMP, producer_id, producer_epoch, base_sequence, 0,
    )  # fmt: skip
    _sign(batch)
    return batch


def empty_batches(base_offset: int, next_offset: int) -> bytearray:
    """Batches without records up to, not including, an offset: one batch, unless it cannot cover so many offsets."""
    found = bytearray()
    while base_offset < next_offset:
        count = min(_MAX_COUNT, next_offset - base_offset)
        found += empty_batch(base_offset, count)
        base_offset += count
    return found


def span_offsets(batch: bytearray, offset_count: int) -> None:
    """Set the number of offsets that the batch covers to ``offset_count``, independent of its records."""
    if _LAST_OFFSET_DELTA.unpack_from(batch, _LAST_OFFSET_DELTA_OFFSET)[0] != offset_count - 1:
        _LAST_OFFSET_DELTA.pack_into(batch, _LAST_OFFSET_DELTA_OFFSET, offset_count - 1)
        _sign(batch)


def batch_extents(data: bytes | bytearray | memoryview) -> Iterator[tuple[int, int, int]]:
    """(position, end, next offset) of each whole batch of a log; the fastest way to find them. Checks nothing."""
    position, length = 0, len(data)
    while position + HEADER_BYTES <= length:
        base_offset, batch_length, last_offset_delta = _EXTENT.unpack_from(data, position)
        end = position + batch_length + LOG_OVERHEAD_BYTES
        yield position, end, base_offset + last_offset_delta + 1
        position = end


def _sign(batch: bytearray) -> None:
    _CRC.pack_into(batch, _CRC_OFFSET, crc32c(memoryview(batch)[CRC_START:]))
