"""Kafka record batches (magic 2): header, checksum, offsets. Records are not parsed here.

Layout of a batch, big-endian; the checksum covers everything from `attributes` to the end:

    base_offset            int64    0
    batch_length           int32    8   bytes that follow this field
    partition_leader_epoch int32   12
    magic                  int8    16
    crc                    uint32  17   CRC32-C
    attributes             int16   21
    last_offset_delta      int32   23
    base_timestamp         int64   27   milliseconds
    max_timestamp          int64   35   milliseconds
    producer_id            int64   43
    producer_epoch         int16   51
    base_sequence          int32   53
    record_count           int32   57
    records                        61   compressed as the attributes say

Source: https://kafka.apache.org/39/documentation/#recordbatch, KIP-98, KIP-534 (delete horizon).
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

MAGIC_V2: Final = 2
HEADER_BYTES: Final = 61
LOG_OVERHEAD_BYTES: Final = 12
CRC_START: Final = 21

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1

_MAX_INT32: Final = 2**31 - 1
_LAST_COMPRESSION: Final = 4
_MAGIC_OFFSET: Final = 16
_CRC_OFFSET: Final = 17
_MIN_LENGTH: Final = HEADER_BYTES - LOG_OVERHEAD_BYTES

Buffer = bytes | bytearray | memoryview
WritableBuffer = bytearray | memoryview

_HEADER = struct.Struct(">qiibIhiqqqhii")
_MAGIC_EXTENT = struct.Struct(">i4xb6xi")  # batch_length, magic and last_offset_delta, read from _EXTENT_OFFSET
_EXTENT_OFFSET: Final = 8
_MARKED_EXTENT = struct.Struct(">i9xh")  # batch_length and attributes, read from _EXTENT_OFFSET
_UNCHECKED = struct.Struct(">qii")  # the fields before magic: base_offset, batch_length, partition_leader_epoch
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_OFFSET: Final = 35


class CorruptBatch(ValueError):
    """The bytes are damaged or cut short. On the wire: CORRUPT_MESSAGE (2)."""


class InvalidBatch(ValueError):
    """The bytes are whole but contradict themselves, or no producer may send them. On the wire: INVALID_RECORD (87)."""


class InvalidTimestamp(InvalidBatch):
    """Timestamps no producer may send. On the wire: INVALID_TIMESTAMP (32)."""


class BatchHeader(NamedTuple):
    """The fixed part of a record batch, field by field in wire order."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch, base offset and length included."""
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def compression(self) -> int:
        """Codec id: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & COMPRESSION_MASK

    @property
    def log_append_time(self) -> bool:
        return bool(self.attributes & TIMESTAMP_TYPE_MASK)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_MASK)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; sequences wrap from 2**31-1 to 0. NO_SEQUENCE stays NO_SEQUENCE."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & _MAX_INT32


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`, its values unchecked. Raises CorruptBatch when fewer than HEADER_BYTES are there."""
    try:
        return tuple.__new__(BatchHeader, _HEADER.unpack_from(buffer, position))
    except struct.error as error:
        raise CorruptBatch(f"no batch header fits at byte {position} of {len(buffer)}") from error


def iter_headers(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch, for batches that follow one another up to the end of `buffer`.

    Raises InvalidBatch for message sets (magic 0 and 1) and CorruptBatch for any other magic, for an impossible length,
    and if the last batch is cut short.
    """
    position, end = 0, len(buffer)
    while position < end:
        _require_magic_v2(buffer, position)
        header = parse_header(buffer, position)
        following = position + header.batch_length + LOG_OVERHEAD_BYTES
        if header.batch_length < _MIN_LENGTH or following > end:
            raise CorruptBatch(f"batch at byte {position} of {end} claims a length of {header.batch_length}")
        yield position, header
        position = following


def iter_transactional(buffer: Buffer) -> Iterator[int]:
    """The positions of transactional batches, including control batches, in a `buffer` of whole batches. No other field
    is checked, because most logs have no such batches."""
    position, end = 0, len(buffer)
    while position + HEADER_BYTES <= end:
        batch_length, attributes = _MARKED_EXTENT.unpack_from(buffer, position + _EXTENT_OFFSET)
        if attributes & TRANSACTIONAL_MASK:
            yield position
        position += batch_length + LOG_OVERHEAD_BYTES


def _require_magic_v2(buffer: Buffer, position: int) -> None:
    # Checked before the header is read: a whole message of magic 0 or 1 can be shorter than a v2 header.
    if position + _MAGIC_OFFSET >= len(buffer):
        raise CorruptBatch(f"no batch header fits at byte {position} of {len(buffer)}")
    magic = buffer[position + _MAGIC_OFFSET]
    if magic == MAGIC_V2:
        return
    if magic < MAGIC_V2:
        raise InvalidBatch(f"magic {magic} at byte {position}: not a record batch of magic 2")
    raise CorruptBatch(f"unknown magic {magic} at byte {position}")


def check_batch(buffer: memoryview, position: int, header: BatchHeader) -> None:
    """The checks that Kafka's broker makes for a batch from a client, except for its records, which stay compressed.

    Raises CorruptBatch for a bad length, magic or CRC32-C, and InvalidBatch for a batch that no client may send.
    """
    end = position + header.batch_length + LOG_OVERHEAD_BYTES
    if header.batch_length < _MIN_LENGTH or end > len(buffer):
        raise CorruptBatch(f"batch at byte {position} of {len(buffer)} claims a length of {header.batch_length}")
    if header.magic != MAGIC_V2:
        _require_magic_v2(buffer, position)
    if crc32c(buffer[position + CRC_START : end]) != header.crc:
        raise CorruptBatch(f"batch at byte {position} does not match its CRC32-C")
    if header.base_offset != 0:
        raise InvalidBatch(f"base offset {header.base_offset} from a client, must be 0")
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise InvalidBatch(f"{header.record_count} records with a last offset delta of {header.last_offset_delta}")
    if header.attributes & CONTROL_MASK:
        raise InvalidBatch("control batch from a client")
    if header.producer_id > NO_PRODUCER_ID and header.base_sequence < 0:
        raise InvalidBatch(f"base sequence {header.base_sequence} with producer id {header.producer_id}")
    if header.attributes & TIMESTAMP_TYPE_MASK:
        raise InvalidTimestamp("log append time from a client")
    if header.attributes & COMPRESSION_MASK > _LAST_COMPRESSION:
        raise InvalidBatch(f"unknown compression codec {header.compression}")


def stamp_offsets(buffer: WritableBuffer, base_offset: int, leader_epoch: int = 0) -> int:
    """Set the offsets of the batches in `buffer` in place, starting with `base_offset`. Returns the next free offset.

    Writes only fields outside the checksum. Raises CorruptBatch if the buffer contains anything else; some batches may
    have new offsets then.
    """
    unpack, pack = _MAGIC_EXTENT.unpack_from, _UNCHECKED.pack_into
    position, end = 0, len(buffer)
    try:
        while position < end:
            batch_length, magic, last_offset_delta = unpack(buffer, position + _EXTENT_OFFSET)
            if batch_length < _MIN_LENGTH or magic != MAGIC_V2 or last_offset_delta < 0:
                raise CorruptBatch(f"no record batch at byte {position} of {end}")
            pack(buffer, position, base_offset, batch_length, leader_epoch)
            base_offset += last_offset_delta + 1
            position += batch_length + LOG_OVERHEAD_BYTES
    except struct.error as error:
        raise CorruptBatch(f"no batch header fits at byte {position} of {end}") from error
    if position != end:
        raise CorruptBatch(f"the last batch ends at byte {position} of {end}")
    return base_offset


def set_log_append_time(buffer: WritableBuffer, position: int, timestamp_ms: int) -> None:
    """Set the timestamp of all records of the batch at `position`, for message.timestamp.type=LogAppendTime, and
    rewrite the CRC. The records keep their own deltas, which readers ignore. Raises CorruptBatch."""
    header = parse_header(buffer, position)
    end = position + header.batch_length + LOG_OVERHEAD_BYTES
    if header.batch_length < _MIN_LENGTH or end > len(buffer):
        raise CorruptBatch(f"batch at byte {position} of {len(buffer)} claims a length of {header.batch_length}")
    _ATTRIBUTES.pack_into(buffer, position + CRC_START, header.attributes | TIMESTAMP_TYPE_MASK)
    _MAX_TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_OFFSET, timestamp_ms)
    _CRC.pack_into(buffer, position + _CRC_OFFSET, crc32c(memoryview(buffer)[position + CRC_START : end]))
