"""The answers to Fetch v0 to v3: message sets, made in a thread of the batches that are stored."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import partial

import structlog

from gateway.fetching.fetch_answer import FetchAnswer, PartitionAnswer
from gateway.log.entries.decoding import DecodingThreads
from protocol.kafka.batch import CorruptBatch, InvalidBatch
from protocol.kafka.codec import Buffer, RecordChunks
from protocol.kafka.compression import DecompressionError, UnsupportedCompression
from protocol.kafka.down_conversion import down_convert
from protocol.kafka.errors import ErrorCode

FIRST_MAGIC_1_VERSION = 2

log = structlog.get_logger()


async def down_convert_all(
    answer: FetchAnswer, version: int, limit_bytes: int, threads: DecodingThreads, source: int
) -> list[ErrorCode]:
    """Give the answer's rows the same records in the format of the request's version; return what went wrong.

    `limit_bytes` bounds each batch, uncompressed; `source` numbers the connection, for its turn in the threads.
    """
    magic = 0 if version < FIRST_MAGIC_1_VERSION else 1
    errors = []
    for topic in answer.responses:
        for position, row in enumerate(topic.partitions):
            if row.records.size_bytes:
                work = partial(_convert, row.records.chunks, magic, row.fetched.offset, limit_bytes)
                error = await _replace_records(row, threads.run(work, source))
                if error:
                    topic.partitions[position] = PartitionAnswer(row.fetched, error_code=error)
                    errors.append(error)
    return errors


async def _replace_records(row: PartitionAnswer, converting: Awaitable[RecordChunks]) -> ErrorCode:
    try:
        row.records = await converting
    except UnsupportedCompression:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    except (CorruptBatch, InvalidBatch, DecompressionError) as error:
        log.error("cannot convert down", error=str(error), partition=row.partition_index)
        return ErrorCode.CORRUPT_MESSAGE
    return ErrorCode.NONE


def _convert(chunks: Sequence[Buffer], magic: int, offset: int, limit_bytes: int) -> RecordChunks:
    converted = [down_convert(chunk, magic, offset, limit_bytes) for chunk in chunks]
    return RecordChunks(converted, sum(map(len, converted)))
