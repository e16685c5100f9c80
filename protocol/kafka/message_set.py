"""Message sets, the record formats before Kafka 0.11: magic 0 and magic 1 (which adds timestamps, KIP-32).

A message set is messages one after the other:

    offset     int64    in magic 1 inside a wrapper: relative to the first message of the wrapper (KIP-31)
    size       int32    bytes that follow
    crc        uint32   CRC-32 of everything after it
    magic      int8
    attributes int8     bits 0-2 codec, bit 3 timestamp type
    timestamp  int64    magic 1 only, milliseconds
    key        int32 length, bytes; null is length -1
    value      int32 length, bytes; null is length -1

Compression wraps a whole message set as the value of one message, which carries the offset of the last message inside.
Source: https://kafka.apache.org/39/documentation/#messageset.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from protocol.kafka.batch import (
    COMPRESSION_MASK,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    Buffer,
    CorruptBatch,
    InvalidBatch,
)
from protocol.kafka.compression import NONE, ZSTD, DecompressionError, UnsupportedCompression, compress, decompress

_MAGIC_OFFSET: Final = 16
_HEADERS: Final = (struct.Struct(">qiIbb"), struct.Struct(">qiIbbq"))  # by magic
_LENGTH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_CRC_OFFSET: Final = 12
_SMALLEST: Final = _HEADERS[0].size + 2 * _LENGTH.size - LOG_OVERHEAD_BYTES
_LARGEST: Final = 2**31 - 1 - LOG_OVERHEAD_BYTES
_NULL: Final = _LENGTH.pack(-1)


class LegacyMessage(NamedTuple):
    """A message of magic 0 or 1. `timestamp` is milliseconds, and -1 in magic 0, which has none."""

    magic: int
    attributes: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def compression(self) -> int:
        """Codec of the message set in `value`; none for a plain message."""
        return self.attributes & COMPRESSION_MASK

    @property
    def log_append_time(self) -> bool:
        return bool(self.attributes & TIMESTAMP_TYPE_MASK)


def iter_messages(data: Buffer) -> Iterator[LegacyMessage]:
    """The messages of a set, with wrappers unopened and checksums verified. Raises CorruptBatch, InvalidBatch.

    A message that is cut short ends the set, as in Kafka: old brokers cut a response at the requested size.
    """
    view = memoryview(data)
    position = 0
    while (size_bytes := message_size(view[position:])) is not None:
        message = view[position : position + size_bytes]
        magic = message[_MAGIC_OFFSET]
        if magic == MAGIC_V2:
            raise InvalidBatch("a record batch in a message set")
        if size_bytes < _HEADERS[magic].size + 2 * _LENGTH.size:
            raise CorruptBatch(f"message at byte {position} is smaller than its fields")
        yield _parse_message(message, magic)
        position += size_bytes


def message_size(data: memoryview) -> int | None:
    """Bytes of the message or batch that `data` begins with; None if it is cut short. Raises CorruptBatch."""
    if len(data) < LOG_OVERHEAD_BYTES:
        return None
    size: int = _LENGTH.unpack_from(data, LOG_OVERHEAD_BYTES - _LENGTH.size)[0]
    if not _SMALLEST <= size <= _LARGEST:
        raise CorruptBatch(f"a message claims a size of {size}")
    if len(data) <= _MAGIC_OFFSET:
        return None
    if data[_MAGIC_OFFSET] > MAGIC_V2:
        raise CorruptBatch(f"magic {data[_MAGIC_OFFSET]} in a message set")
    size_bytes = LOG_OVERHEAD_BYTES + size
    return size_bytes if size_bytes <= len(data) else None


def _parse_message(message: memoryview, magic: int) -> LegacyMessage:
    header = _HEADERS[magic]
    offset, _, crc, _, attributes, *timestamp = header.unpack_from(message)
    if zlib.crc32(message[_MAGIC_OFFSET:]) != crc:
        raise CorruptBatch(f"message of offset {offset} does not match its CRC-32")
    key, position = _read_bytes(message, header.size)
    value, _ = _read_bytes(message, position)
    return LegacyMessage(magic, attributes, offset, timestamp[0] if timestamp else NO_TIMESTAMP, key, value)


def _read_bytes(message: memoryview, position: int) -> tuple[bytes | None, int]:
    start = position + _LENGTH.size
    if start > len(message):
        raise InvalidBatch("the fields of a message exceed its size")
    length = _LENGTH.unpack_from(message, position)[0]
    if length < 0:
        return None, start
    if start + length > len(message):
        raise InvalidBatch("the fields of a message exceed its size")
    return bytes(message[start : start + length]), start + length


def unwrap(wrapper: LegacyMessage, max_bytes: int) -> list[LegacyMessage]:
    """The messages in a compressed wrapper, with absolute offsets and, if the broker set the time, the wrapper's.

    Raises CorruptBatch and InvalidBatch.
    """
    if wrapper.value is None:
        raise InvalidBatch("wrapper without a value")
    if wrapper.compression == ZSTD:
        raise InvalidBatch("zstd does not exist before magic 2")
    try:
        plain = decompress(wrapper.compression, wrapper.value, max_bytes, magic=wrapper.magic)
    except (DecompressionError, UnsupportedCompression) as error:
        raise InvalidBatch(f"wrapper does not decompress: {error}") from error
    inner = list(iter_messages(plain))
    if not inner:
        raise InvalidBatch("wrapper without messages")
    if any(message.magic != wrapper.magic or message.compression != NONE for message in inner):
        raise InvalidBatch("wrapped message of another magic, or itself compressed")
    if wrapper.magic == 0:
        return inner
    base_offset = _base_offset(wrapper, inner)
    inner = [message._replace(offset=base_offset + message.offset) for message in inner]
    if not wrapper.log_append_time:
        return inner
    return [message._replace(attributes=TIMESTAMP_TYPE_MASK, timestamp=wrapper.timestamp) for message in inner]


def _base_offset(wrapper: LegacyMessage, inner: Sequence[LegacyMessage]) -> int:
    # Producers may leave the wrapper's offset at 0; only wrappers from a broker have the right offset.
    if wrapper.offset == 0:
        return 0
    base_offset = wrapper.offset - inner[-1].offset
    if base_offset < 0:
        raise InvalidBatch(f"wrapper of offset {wrapper.offset} ends with relative offset {inner[-1].offset}")
    return base_offset


def encode_message_set(messages: Iterable[LegacyMessage], compression: int = NONE) -> bytes:
    """A set of plain messages of one magic, with absolute offsets; in one wrapper if there is a `compression`.

    `messages` is not copied to a list, because there may be millions. Raises UnsupportedCompression, and ValueError for
    values that do not fit into the format.
    """
    try:
        if compression == NONE:
            return _joined(messages)
        return _wrapped(iter(messages), compression)
    except struct.error as error:
        raise ValueError(f"a field is out of range: {error}") from error


def _joined(messages: Iterable[LegacyMessage]) -> bytes:
    joined = bytearray()
    for message in messages:
        joined += _encode_message(message)
    return bytes(joined)


def _wrapped(messages: Iterator[LegacyMessage], compression: int) -> bytes:
    first = last = next(messages, None)
    if first is None or last is None:
        return b""
    body = bytearray()
    timestamp = first.timestamp
    for message in chain((first,), messages):
        inner = message._replace(offset=message.offset - first.offset) if first.magic > 0 else message
        body += _encode_message(inner)
        timestamp, last = max(timestamp, message.timestamp), message
    wrapper = LegacyMessage(
        magic=first.magic,
        attributes=compression | first.attributes & TIMESTAMP_TYPE_MASK,
        offset=last.offset,
        timestamp=timestamp,
        key=None,
        value=compress(compression, bytes(body), first.magic),
    )
    return _encode_message(wrapper)


def _encode_message(message: LegacyMessage) -> bytes:
    magic, attributes, offset, timestamp, key, value = message
    header = _HEADERS[magic]
    size = header.size + 2 * _LENGTH.size + len(key or b"") + len(value or b"") - LOG_OVERHEAD_BYTES
    fields = (offset, size, 0, magic, attributes) if magic == 0 else (offset, size, 0, magic, attributes, timestamp)
    encoded = bytearray(header.pack(*fields))
    for field in (key, value):
        encoded += _NULL if field is None else _LENGTH.pack(len(field)) + field
    _CRC.pack_into(encoded, _CRC_OFFSET, zlib.crc32(memoryview(encoded)[_MAGIC_OFFSET:]))
    return bytes(encoded)
