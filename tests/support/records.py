"""Decodes record batches and message sets completely."""

from protocol.kafka.batch import BatchHeader, Buffer
from protocol.kafka.compression import NONE
from protocol.kafka.message_set import LegacyMessage, iter_messages, unwrap
from protocol.kafka.records import Record, iter_records


def decode_records(buffer: Buffer, position: int, header: BatchHeader, max_bytes: int) -> list[Record]:
    """The records of the batch at `position`, at most `max_bytes` when decompressed. Raises InvalidBatch."""
    return list(iter_records(buffer, position, header, max_bytes))


def parse_message_set(data: Buffer, max_bytes: int) -> list[LegacyMessage]:
    """The messages of a set with absolute offsets, wrappers decompressed to at most `max_bytes` in total.

    Raises CorruptBatch (checksums, sizes) and InvalidBatch (bad wrappers).
    """
    messages: list[LegacyMessage] = []
    for message in iter_messages(data):
        if message.compression == NONE:
            messages.append(message)
        else:
            inner = unwrap(message, max_bytes)
            max_bytes -= sum(len(each.key or b"") + len(each.value or b"") for each in inner)
            messages += inner
    return messages
