"""Converts record batches to message sets, for Fetch v0 and v1 (magic 0) and v2 and v3 (magic 1).

As Kafka 3.9's broker: codec, offsets and timestamp type are kept, headers and control batches are not, zstd is refused.
"""

from collections.abc import Iterable, Iterator

from protocol.kafka.batch import TIMESTAMP_TYPE_MASK, BatchHeader, Buffer, CorruptBatch, InvalidBatch, iter_headers
from protocol.kafka.compression import ZSTD, DecompressionError, UnsupportedCompression
from protocol.kafka.message_set import LegacyMessage, encode_message_set
from protocol.kafka.records import Record, iter_records


def down_convert(chunks: Iterable[Buffer], magic: int, first_offset: int, max_bytes: int) -> bytes:
    """The records from `first_offset` on as messages of `magic`, in a wrapper with the batch's codec.

    Stops after the batch that reaches `max_bytes`; a batch may not be larger than that after decompression. Stops
    before a batch that cannot be converted, so that the next fetch gets its error. The result is empty if there are
    only control batches, or only older records: the caller then continues with the next batches, as otherwise the
    client would request the same offset forever. If the first batch with such records cannot be converted, raises
    CorruptBatch, InvalidBatch, DecompressionError, and UnsupportedCompression for zstd.
    """
    converted = bytearray()
    try:
        for messages in _message_sets(chunks, magic, first_offset, max_bytes):
            converted += messages
            if len(converted) >= max_bytes:
                break
    except (CorruptBatch, InvalidBatch, DecompressionError, UnsupportedCompression):
        if not converted:
            raise
    return bytes(converted)


def _message_sets(chunks: Iterable[Buffer], magic: int, first_offset: int, max_bytes: int) -> Iterator[bytes]:
    for chunk in chunks:
        for position, header in iter_headers(chunk):
            if header.is_control or header.last_offset < first_offset:
                continue
            if header.compression == ZSTD:
                raise UnsupportedCompression("zstd does not exist before magic 2")
            records = iter_records(chunk, position, header, max_bytes)
            wanted = (record for record in records if header.base_offset + record.offset_delta >= first_offset)
            yield _as_message_set(wanted, header, magic)


def _as_message_set(records: Iterable[Record], header: BatchHeader, magic: int) -> bytes:
    attributes = header.attributes & TIMESTAMP_TYPE_MASK if magic > 0 else 0
    base_offset = header.base_offset
    messages = (
        LegacyMessage(magic, attributes, base_offset + offset_delta, timestamp, key, value)
        for offset_delta, timestamp, key, value, _ in records
    )
    try:
        return encode_message_set(messages, header.compression)
    except InvalidBatch:
        raise
    except ValueError as error:
        raise InvalidBatch(f"batch at offset {base_offset} does not fit magic {magic}: {error}") from error
