"""The offsets of batches: finding them in a log, and batches that have fewer records than offsets."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from crc32c import crc32c

from protocol.kafka.batch import CRC_START, HEADER_BYTES, LOG_OVERHEAD_BYTES, NO_TIMESTAMP, BatchHeader
from protocol.kafka.records import Record, encode_batch

_LAST_OFFSET_DELTA: Final = struct.Struct(">i")
_LAST_OFFSET_DELTA_OFFSET: Final = 23
_EXTENT = struct.Struct(">qi11xi")  # base_offset, batch_length, last_offset_delta
_MAX_COUNT: Final = 2**31 - 1
_COMMIT_KEY: Final = struct.pack(">hh", 0, 1)
_COMMIT_VALUE: Final = struct.pack(">hi", 0, 0)
_CRC: Final = struct.Struct(">I")
_CRC_OFFSET: Final = 17


def gap_batch(
    base_offset: int, offset_count: int, *, producer_id: int = -1, producer_epoch: int = -1, base_sequence: int = -1
) -> bytearray:
    """A batch that stands for ``offset_count`` offsets without a record; all consumers skip it.

    It is a control batch with a commit marker of no transaction, at the last offset. An empty batch is not enough: of
    an answer that holds nothing else, librdkafka reports a message that is too large, and KafkaJS asks for the same
    again. A control batch without a record stops Sarama and aiokafka.
    """
    return encode_batch(
        [Record(offset_count - 1, NO_TIMESTAMP, _COMMIT_KEY, _COMMIT_VALUE)], base_offset=base_offset, control=True,
        producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence,
    )  # fmt: skip


def gap_batches(base_offset: int, next_offset: int) -> bytearray:
    """Batches without records up to, not including, an offset: one batch, unless it cannot cover so many offsets."""
    found = bytearray()
    while base_offset < next_offset:
        count = min(_MAX_COUNT, next_offset - base_offset)
        found += gap_batch(base_offset, count)
        base_offset += count
    return found


def is_gap(header: BatchHeader) -> bool:
    """Whether a control batch was made by `gap_batch`: those that end transactions are transactional."""
    return header.is_control and not header.is_transactional


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
