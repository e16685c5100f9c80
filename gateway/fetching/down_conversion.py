"""The answers to Fetch v0 to v3: message sets, which a thread creates from the stored batches."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import structlog

from gateway.fan_out import sliced
from gateway.fetching.fetch_answer import FetchAnswer, PartitionAnswer
from gateway.fetching.fetch_session import FetchedPartition, Key
from gateway.log.registry import LogRegistry
from gateway.observability.logs import SparseLog
from protocol.kafka.batch import CorruptBatch, InvalidBatch
from protocol.kafka.buffers import Buffer, RecordChunks
from protocol.kafka.compression import DecompressionError, UnsupportedCompression
from protocol.kafka.down_conversion import down_convert
from protocol.kafka.errors import ErrorCode
from protocol.kafka.offset_span import batch_extents

FIRST_MAGIC_1_VERSION = 2

log = SparseLog(structlog.get_logger())


class Converted(NamedTuple):
    """The outcome of converting an answer's batches."""

    errors: list[ErrorCode]
    is_nothing: bool
    """There were batches, but no row has a message or an error to return."""


async def skip_empty_batches(logs: LogRegistry, fetched: Iterable[FetchedPartition], asked: Mapping[Key, int]) -> None:
    """Move the fetch offsets after the known batches that no message set can contain, starting from those in `asked`.

    Consumers continue after the last message that they got, so they would never get past a long run of control batches.
    An offset before the start of the log stays: it is an error.
    """
    async for part in sliced(fetched):
        found = logs.find(str(part.topic), part.partition)
        if found is not None and asked[part.key] >= found.start.offset:
            part.offset = found.record_free.end_of(asked[part.key])


async def down_convert_all(
    answer: FetchAnswer, version: int, limit_bytes: int, logs: LogRegistry, source: int, asked: Mapping[Key, int]
) -> Converted:
    """Convert the records of the answer's rows to the format of the request's version.

    `limit_bytes` bounds each batch, uncompressed, and ends a row. `source` is the number of the connection, for its
    turn in the threads. If a row's batches give no message, the next fetch of its offset in `asked` begins after these.
    """
    magic = 0 if version < FIRST_MAGIC_1_VERSION else 1
    errors: list[ErrorCode] = []
    had_batches = tells = False
    async for topic in sliced(answer.responses):
        async for position, row in sliced(enumerate(topic.partitions)):
            if row.records.size_bytes:
                had_batches = True
                end_offset = max(end for _, _, end in batch_extents(row.records.chunks[-1]))
                work = partial(_convert, row.records.chunks, magic, row.fetched.offset, limit_bytes)
                error = await _replace_records(row, logs.decoding.run(work, source))
                if error:
                    topic.partitions[position] = PartitionAnswer(row.fetched, error_code=error)
                    errors.append(error)
                elif not row.records.size_bytes and (found := logs.find(str(row.fetched.topic), row.partition_index)):
                    found.record_free.learn(asked[row.fetched.key], end_offset)
            tells = tells or bool(topic.partitions[position].error_code or row.records.size_bytes)
    return Converted(errors, had_batches and not tells)


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
    converted = down_convert(chunks, magic, offset, limit_bytes)
    return RecordChunks([converted], len(converted))
