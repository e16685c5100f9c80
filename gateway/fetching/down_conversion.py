"""The answers to Fetch v0 to v3: message sets, made in a thread of the batches that are stored."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import structlog

from gateway.fetching.fetch_answer import FetchAnswer, PartitionAnswer
from gateway.requests.call import Call
from protocol.kafka.batch import CorruptBatch, InvalidBatch
from protocol.kafka.codec import Buffer, RecordChunks
from protocol.kafka.compression import DecompressionError, UnsupportedCompression
from protocol.kafka.down_conversion import down_convert
from protocol.kafka.errors import ErrorCode

FIRST_MAGIC_1_VERSION = 2

log = structlog.get_logger()


async def down_converted(call: Call, answer: FetchAnswer) -> FetchAnswer:
    """The same records in the format that the request's version has."""
    for topic in answer.responses:
        topic.partitions = [await _converted(call, row) if row.records.size_bytes else row for row in topic.partitions]
    return answer


async def _converted(call: Call, row: PartitionAnswer) -> PartitionAnswer:
    magic = 0 if call.version < FIRST_MAGIC_1_VERSION else 1
    limit = call.services.config.limits.max_decompressed_bytes
    work = partial(_convert, row.records.chunks, magic, row.fetched.offset, limit)
    try:
        row.records = await call.services.logs.decoding.run(work, call.client.number)
    except UnsupportedCompression:
        return _refused(call, row, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    except (CorruptBatch, InvalidBatch, DecompressionError) as error:
        log.error("cannot convert down", error=str(error), client_id=call.client_id)
        return _refused(call, row, ErrorCode.CORRUPT_MESSAGE)
    return row


def _convert(chunks: Sequence[Buffer], magic: int, offset: int, limit: int) -> RecordChunks:
    converted = [down_convert(chunk, magic, offset, limit) for chunk in chunks]
    return RecordChunks(converted, sum(map(len, converted)))


def _refused(call: Call, row: PartitionAnswer, code: ErrorCode) -> PartitionAnswer:
    call.count_error(code)
    return PartitionAnswer(row.fetched, error_code=code)
