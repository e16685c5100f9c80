"""Changes the codec of a batch, as brokers do for ``compression.type``. The records are not parsed."""

import struct
from typing import Final

from crc32c import crc32c

from protocol.kafka.batch import (
    COMPRESSION_MASK,
    CRC_START,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    Buffer,
)
from protocol.kafka.compression import compress

_BATCH_LENGTH: Final = struct.Struct(">i")
_BATCH_LENGTH_OFFSET: Final = 8
_ATTRIBUTES: Final = struct.Struct(">h")
_CRC: Final = struct.Struct(">I")
_CRC_OFFSET: Final = 17


def recompress(data: Buffer, header: BatchHeader, codec: int, plain: bytes) -> bytearray:
    """The batch `data`, with its decompressed records `plain` compressed by `codec`. Raises UnsupportedCompression."""
    view = memoryview(data)
    batch = bytearray(view[:HEADER_BYTES])
    batch += compress(codec, plain)
    _BATCH_LENGTH.pack_into(batch, _BATCH_LENGTH_OFFSET, len(batch) - LOG_OVERHEAD_BYTES)
    _ATTRIBUTES.pack_into(batch, CRC_START, header.attributes & ~COMPRESSION_MASK | codec)
    _CRC.pack_into(batch, _CRC_OFFSET, crc32c(memoryview(batch)[CRC_START:]))
    return batch
