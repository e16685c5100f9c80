"""Converts the records of Produce v0 to v2 to record batches, the only format that is stored.

As Kafka 3.9's broker: codec and timestamps are kept, offsets begin at 0, magic 0 has no timestamp (-1).
"""

from typing import Final

from protocol.kafka.batch import (
    MAGIC_V2,
    NO_TIMESTAMP,
    Buffer,
    InvalidBatch,
    InvalidTimestamp,
    check_batch,
    parse_header,
)
from protocol.kafka.compression import NONE
from protocol.kafka.message_set import LegacyMessage, iter_messages, message_size, unwrap
from protocol.kafka.records import Record, encode_batch

_MAGIC_OFFSET: Final = 16


def up_convert(data: Buffer, *, max_bytes: int) -> bytearray:
    """One batch with the records of a message set; empty for an empty set. A record batch is checked and returned.

    A message that is cut short at the end is skipped, as in Kafka.

    `max_bytes` limits the size of a compressed wrapper after decompression. Raises CorruptBatch and InvalidBatch.
    """
    if len(data) > _MAGIC_OFFSET and data[_MAGIC_OFFSET] == MAGIC_V2:
        return _checked_batch(memoryview(data)) if message_size(memoryview(data)) is not None else bytearray()
    messages = list(iter_messages(data))
    if not messages:
        return bytearray()
    if any(message.magic != messages[0].magic for message in messages):
        raise InvalidBatch("messages of several magics in one set")
    codecs = {message.compression for message in messages}
    if codecs == {NONE}:
        return _as_batch(messages, NONE)
    if len(messages) > 1:
        raise InvalidBatch("a compressed wrapper must be alone in its set")
    return _as_batch(unwrap(messages[0], max_bytes), codecs.pop())


def _checked_batch(data: memoryview) -> bytearray:
    header = parse_header(data)
    check_batch(data, 0, header)
    if message_size(data[header.size_bytes :]) is not None:
        raise InvalidBatch(f"{len(data) - header.size_bytes} bytes after the one batch that a request may hold")
    return bytearray(data[: header.size_bytes])


def _as_batch(messages: list[LegacyMessage], compression: int) -> bytearray:
    if min(message.timestamp for message in messages) < NO_TIMESTAMP:
        raise InvalidTimestamp("a timestamp below -1")
    records = [
        Record(offset_delta, message.timestamp, message.key, message.value)
        for offset_delta, message in enumerate(messages)
    ]
    return encode_batch(records, compression=compression)
