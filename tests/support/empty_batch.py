"""The smallest valid batch, as data of tests: without records, like those that a log cleaner leaves in Kafka."""

import struct

from crc32c import crc32c

from protocol.kafka.batch import CRC_START, HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC_V2, NO_TIMESTAMP


def empty_batch(base_offset: int, offset_count: int) -> bytearray:
    batch = bytearray(HEADER_BYTES)
    struct.pack_into(
        ">qiibIhiqqqhii", batch, 0, base_offset, HEADER_BYTES - LOG_OVERHEAD_BYTES, 0, MAGIC_V2, 0, 0, offset_count - 1,
        NO_TIMESTAMP, NO_TIMESTAMP, -1, -1, -1, 0,
    )  # fmt: skip
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[CRC_START:]))
    return batch
