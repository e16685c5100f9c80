"""The payload of an entry: one message, a batch of messages, a chunk of a large message, or encrypted bytes.

A batch is, for each message: `size u32, SingleMessageMetadata, value`, big-endian, compressed as a whole. See
https://pulsar.apache.org/docs/4.0.x/developing-binary-protocol/#batch-messages; chunks are PIP-37.
"""

import base64
import binascii
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct  # fmt: skip
from struct import error as struct_error
from typing import NamedTuple

import lz4.block
import snappy
import zstandard
from google.protobuf.message import DecodeError

from protocol.pulsar.frames import Buffer
from protocol.pulsar.pulsar_commands_pb2 import (
    CompressionType,
    KeyValue,
    MessageMetadata,
    SingleMessageMetadata,
)

_U32 = Struct(">I")
_SNAPPY_LENGTH_BYTES = 5
"""The maximum size of the varint at the start of a Snappy block."""


class EntryError(ValueError):
    """The payload contradicts its metadata, or is larger than allowed."""


class Chunk(NamedTuple):
    """Identifies a chunk of a message that its producer split over several entries."""

    uuid: bytes
    chunk_id: int
    num_chunks: int
    total_bytes: int


@dataclass(slots=True, frozen=True)
class NativeMessage:
    """A message as a Pulsar producer wrote it."""

    key: bytes | None
    ordering_key: bytes | None
    value: memoryview
    """Empty if `null_value`. Still encrypted if `encrypted`; still compressed if it is a `chunk` of a compressed
    message."""
    null_value: bool
    properties: tuple[tuple[str, bytes], ...]
    publish_time_ms: int
    event_time_ms: int | None
    batch_index: int
    compacted_out: bool = False
    """Compaction removed the message from its batch; it still takes an index."""
    encrypted: bool = False
    """The value is the encrypted payload of the entry, for all of its messages together."""
    chunk: Chunk | None = None


def decompress(metadata: MessageMetadata, payload: Buffer, max_bytes: int) -> memoryview:
    """The entry's payload, uncompressed. Raises EntryError, also if it would be longer than `max_bytes`."""
    if metadata.compression == CompressionType.NONE:
        return memoryview(payload)
    size = metadata.uncompressed_size
    if size > max_bytes:
        raise EntryError(f"{size} bytes uncompressed, at most {max_bytes} are allowed")
    decompressor = _DECOMPRESSORS.get(metadata.compression)
    if decompressor is None:
        raise EntryError(f"unknown compression type {metadata.compression}")
    data = decompressor(payload, size)
    if len(data) != size:
        raise EntryError(f"{len(data)} bytes uncompressed, {size} announced")
    return memoryview(data)


def compress(compression: int, payload: Buffer) -> bytes:
    """An entry's payload, compressed like Pulsar's own producers do, for the CompressionType in its metadata."""
    return _COMPRESSORS[compression](payload)


def iter_messages(metadata: MessageMetadata, payload: Buffer, max_bytes: int) -> Iterator[NativeMessage]:
    """The messages of an entry, in order. Raises EntryError when it reaches invalid bytes, or before.

    Encrypted entries and chunks are returned as one message with `encrypted` or `chunk` set.
    """
    if metadata.encryption_keys:
        yield _whole(metadata, memoryview(payload), encrypted=True)
    elif metadata.num_chunks_from_msg > 1:
        yield _whole(metadata, memoryview(payload), encrypted=False)
    elif metadata.HasField("num_messages_in_batch"):
        yield from _iter_batch(metadata, decompress(metadata, payload, max_bytes))
    else:
        yield _whole(metadata, decompress(metadata, payload, max_bytes), encrypted=False)


def encode_message(
    value: Buffer | None,
    *,
    key: bytes | None = None,
    ordering_key: bytes | None = None,
    properties: Iterable[tuple[str, bytes]] = (),
    event_time_ms: int | None = None,
) -> bytes:
    """One message in the format of a batch entry. A value of None deletes the key in compaction."""
    single = SingleMessageMetadata(payload_size=0 if value is None else len(value))
    if value is None:
        single.null_value = True
    if key is not None:
        single.partition_key, single.partition_key_b64_encoded = _encode_key(key)
    if ordering_key is not None:
        single.ordering_key = ordering_key
    for name, content in properties:
        single.properties.add(key=name.encode(), value=content)
    if event_time_ms is not None:
        single.event_time = event_time_ms
    head = single.SerializeToString()
    return b"".join((_U32.pack(len(head)), head, b"" if value is None else value))


def _encode_key(key: bytes) -> tuple[bytes, bool]:
    # The field is a string for Java clients: bytes that are not UTF-8 have to be base64.
    try:
        key.decode()
    except UnicodeDecodeError:
        return base64.b64encode(key), True
    return key, False


def _iter_batch(metadata: MessageMetadata, payload: memoryview) -> Iterator[NativeMessage]:
    offset = 0
    for batch_index in range(metadata.num_messages_in_batch):
        try:
            (size,) = _U32.unpack_from(payload, offset)
            start = offset + 4 + size
            single = SingleMessageMetadata.FromString(bytes(payload[offset + 4 : start]))
        except (struct_error, DecodeError) as error:
            raise EntryError(f"message {batch_index} of the batch: {error}") from None
        offset = start + single.payload_size
        if single.payload_size < 0 or offset > len(payload):
            raise EntryError(f"message {batch_index} of the batch ends at {offset}, the payload at {len(payload)}")
        yield NativeMessage(
            key=_key(single),
            ordering_key=single.ordering_key if single.HasField("ordering_key") else None,
            value=payload[start:offset],
            null_value=single.null_value,
            properties=_properties(single.properties),
            publish_time_ms=metadata.publish_time,
            event_time_ms=single.event_time if single.HasField("event_time") else None,
            batch_index=batch_index,
            compacted_out=single.compacted_out,
        )


def _whole(metadata: MessageMetadata, value: memoryview, *, encrypted: bool) -> NativeMessage:
    chunk = None
    if metadata.num_chunks_from_msg > 1:
        chunk = Chunk(
            metadata.uuid, metadata.chunk_id, metadata.num_chunks_from_msg, metadata.total_chunk_msg_size
        )  # fmt: skip
    return NativeMessage(
        key=_key(metadata),
        ordering_key=metadata.ordering_key if metadata.HasField("ordering_key") else None,
        value=value,
        null_value=metadata.null_value,
        properties=_properties(metadata.properties),
        publish_time_ms=metadata.publish_time,
        event_time_ms=metadata.event_time or None,
        batch_index=0,
        encrypted=encrypted,
        chunk=chunk,
    )


def _key(metadata: MessageMetadata | SingleMessageMetadata) -> bytes | None:
    if metadata.null_partition_key or not metadata.HasField("partition_key"):
        return None
    key = metadata.partition_key
    if not metadata.partition_key_b64_encoded:
        return key
    try:
        return base64.b64decode(key)
    except binascii.Error as error:
        raise EntryError(f"key is not base64: {error}") from None


def _properties(properties: Iterable[KeyValue]) -> tuple[tuple[str, bytes], ...]:
    return tuple((p.key.decode(errors="replace"), p.value) for p in properties)


def _lz4(payload: Buffer, size: int) -> bytes:
    try:
        data: bytes = lz4.block.decompress(payload, uncompressed_size=size)
    except lz4.block.LZ4BlockError as error:
        raise EntryError(f"LZ4: {error}") from None
    return data


def _zlib(payload: Buffer, size: int) -> bytes:
    # With one byte more than announced, a longer payload is detected; 0 would mean no limit.
    try:
        return zlib.decompressobj().decompress(payload, size + 1)
    except zlib.error as error:
        raise EntryError(f"ZLIB: {error}") from None


def _zstd(payload: Buffer, size: int) -> bytes:
    # If a frame contains its size, the library allocates that size, whatever the limit is.
    try:
        named = zstandard.frame_content_size(payload)
        if named not in {-1, size}:
            raise EntryError(f"ZSTD: frame of {named} bytes, {size} announced")
        return zstandard.ZstdDecompressor().decompress(payload, max_output_size=size)
    except zstandard.ZstdError as error:
        raise EntryError(f"ZSTD: {error}") from None


def _snappy(payload: Buffer, size: int) -> bytes:
    # The block begins with its length, which is the size that the library allocates.
    named = 0
    for position, byte in enumerate(bytes(payload[:_SNAPPY_LENGTH_BYTES])):
        named |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            break
    if named != size:
        raise EntryError(f"Snappy: block of {named} bytes, {size} announced")
    try:
        data: bytes = snappy.uncompress(bytes(payload))
    except snappy.UncompressError as error:
        raise EntryError(f"Snappy: {error}") from None
    return data


_COMPRESSORS: dict[int, Callable[[Buffer], bytes]] = {
    CompressionType.NONE: bytes,
    CompressionType.LZ4: lambda payload: bytes(lz4.block.compress(payload, store_size=False)),
    CompressionType.ZLIB: zlib.compress,
    CompressionType.ZSTD: lambda payload: zstandard.ZstdCompressor().compress(payload),
    CompressionType.SNAPPY: lambda payload: bytes(snappy.compress(bytes(payload))),
}
_DECOMPRESSORS: dict[int, Callable[[Buffer, int], bytes]] = {
    CompressionType.LZ4: _lz4,
    CompressionType.ZLIB: _zlib,
    CompressionType.ZSTD: _zstd,
    CompressionType.SNAPPY: _snappy,
}


def split_messages(messages: Sequence[bytes], max_bytes: int) -> list[list[bytes]]:
    """Splits messages into entries below `max_bytes`. Only an entry with a single large message may exceed it."""
    entries: list[list[bytes]] = [[]]
    size = 0
    for message in messages:
        if entries[-1] and size + len(message) > max_bytes:
            entries.append([])
            size = 0
        entries[-1].append(message)
        size += len(message)
    return entries
