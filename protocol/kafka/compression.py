"""The compression codecs of Kafka's record formats: none, gzip, snappy, lz4, zstd.

Compressed bytes come from clients, so every decoder is bounded by `max_bytes` of output before it allocates: a few
bytes can claim gigabytes. Sources: KIP-57 (lz4 framing), KIP-110 (zstd), KAFKA-3160 (lz4 checksum), and the stream
format of xerial's snappy-java, which Kafka's Java clients write.
"""

import gzip
import io
import struct
import threading
import zlib
from typing import Final, NamedTuple, Protocol

import cramjam
import lz4.frame
import zstandard

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

_GZIP_WINDOW_BITS: Final = zlib.MAX_WBITS | 16
_READ_CHUNK_BYTES: Final = 256 * 1024
_ZSTD_MAX_WINDOW_BYTES: Final = 2**27  # The window size of level 22, which is also zstd's own default limit.

# snappy-java: magic, version 1, compatible with 1; then blocks, each a length and raw snappy.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_LENGTH = struct.Struct(">i")

# lz4 frame header: magic, flags, block size, optional content size (8) and dictionary id (4), header checksum.
_LZ4_FLAGS_OFFSET: Final = 4
_LZ4_CHECKSUM_OFFSET: Final = 6
_LZ4_CONTENT_SIZE_BYTES: Final = 8
_LZ4_CONTENT_SIZE_FLAG: Final = 0x08
_LZ4_DICTIONARY_FLAG: Final = 0x01
_LZ4_MAX_RATIO: Final = 255

Buffer = bytes | bytearray | memoryview


_of_thread = threading.local()


class UnsupportedCompression(ValueError):
    """Unknown codec, or not allowed in this record format. On the wire: UNSUPPORTED_COMPRESSION_TYPE (76)."""


class DecompressionError(ValueError):
    """The compressed bytes are damaged or cut short. A cut between two zstd blocks shows only in the record count."""


class DecompressedTooLarge(DecompressionError):
    """The bytes hold more than the caller allows. Raised before much more than that is allocated."""


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def decompress(codec: int, data: Buffer, max_bytes: int, *, magic: int = 2) -> bytes:
    """The decompressed bytes of `data`, at most `max_bytes`. `magic` is that of the message: lz4 differs in magic 0.

    Raises DecompressionError, DecompressedTooLarge or UnsupportedCompression.
    """
    if max_bytes < 0:
        raise DecompressedTooLarge("no bytes left to decompress into")
    try:
        plain = _decompress(codec, data, max_bytes, magic)
    except _LIBRARY_ERRORS as error:
        raise DecompressionError(f"codec {codec}: {error}") from error
    if len(plain) > max_bytes:
        raise DecompressedTooLarge(f"codec {codec}: more than {max_bytes} bytes")
    return plain


# What the four libraries raise on bad input: gzip, cramjam, lz4 and zstandard, in this order.
_LIBRARY_ERRORS: Final = (OSError, EOFError, zlib.error, cramjam.DecompressionError, RuntimeError, zstandard.ZstdError)


def _decompress(codec: int, data: Buffer, max_bytes: int, magic: int) -> bytes:
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        return _read_bounded(gzip.GzipFile(fileobj=io.BytesIO(data)), max_bytes)
    if codec == SNAPPY:
        return _snappy_decompress(memoryview(data), max_bytes)
    if codec == LZ4:
        return _lz4_decompress(data if magic > 0 else _with_right_lz4_checksum(data), max_bytes)
    if codec == ZSTD:
        return _read_bounded(_zstd_context().stream_reader(data, read_across_frames=True), max_bytes)
    raise UnsupportedCompression(f"codec {codec}")


def _zstd_context() -> zstandard.ZstdDecompressor:
    """An instance for each thread, because to create one takes longer than to use it."""
    context: zstandard.ZstdDecompressor | None = getattr(_of_thread, "zstd", None)
    if context is None:
        context = _of_thread.zstd = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_BYTES)
    return context


class Start(NamedTuple):
    """The first decompressed bytes; `whole` if there are no more."""

    plain: bytes
    whole: bool


def decompress_start(codec: int, data: Buffer, max_bytes: int) -> Start | None:
    """At least some of the first `max_bytes`, even if later bytes are damaged. None if there is no cheap way.

    Raises DecompressionError or UnsupportedCompression.
    """
    try:
        return _start(codec, memoryview(data), max_bytes)
    except _LIBRARY_ERRORS as error:
        raise DecompressionError(f"codec {codec}: {error}") from error


def _start(codec: int, data: memoryview, max_bytes: int) -> Start | None:
    if codec == NONE:
        return Start(bytes(data[:max_bytes]), len(data) <= max_bytes)
    if codec == GZIP:
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        plain = member.decompress(data, max_bytes)
        return Start(plain, member.eof and not member.unused_data)
    if codec == LZ4:
        frame = lz4.frame.LZ4FrameDecompressor()
        plain = bytes(frame.decompress(data, max_length=max_bytes))
        return Start(plain, frame.eof and not frame.unused_data)
    if codec == ZSTD:
        plain = _zstd_context().stream_reader(data, read_across_frames=True).read(max_bytes)
        return Start(plain, len(plain) < max_bytes)
    if codec == SNAPPY:
        return _snappy_start(data, max_bytes)
    raise UnsupportedCompression(f"codec {codec}")


def _snappy_start(data: memoryview, max_bytes: int) -> Start | None:
    whole = True
    if bytes(data[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
        start = len(_XERIAL_HEADER) + _LENGTH.size
        if start >= len(data):
            return Start(b"", whole=True)
        end = start + _LENGTH.unpack_from(data, len(_XERIAL_HEADER))[0]
        if not start < end <= len(data):
            raise DecompressionError("snappy: block cut short")
        data, whole = data[start:end], end == len(data)
    if cramjam.snappy.decompress_raw_len(data) > max(max_bytes, _XERIAL_BLOCK_BYTES):
        return None
    return Start(bytes(cramjam.snappy.decompress_raw(data)), whole)


def _read_bounded(stream: _Readable, max_bytes: int) -> bytes:
    """All of `stream`, or enough of it to see that there are more than `max_bytes`."""
    chunks: list[bytes] = []
    remaining = max_bytes + 1
    while remaining > 0 and (chunk := stream.read(min(remaining, _READ_CHUNK_BYTES))):
        chunks.append(chunk)
        remaining -= len(chunk)
    return b"".join(chunks)


def _snappy_decompress(data: memoryview, max_bytes: int) -> bytes:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(data, max_bytes)
    blocks: list[bytes] = []
    position = len(_XERIAL_HEADER)
    while position < len(data):
        start = position + _LENGTH.size
        if start > len(data):
            raise DecompressionError("snappy: block length cut short")
        position = start + _LENGTH.unpack_from(data, position)[0]
        if not start < position <= len(data):
            raise DecompressionError("snappy: block cut short")
        blocks.append(_snappy_block(data[start:position], max_bytes))
        max_bytes -= len(blocks[-1])
    return b"".join(blocks)


def _snappy_block(data: memoryview, max_bytes: int) -> bytes:
    # The library allocates the length in the block's header, so that length is checked first.
    declared = cramjam.snappy.decompress_raw_len(data)
    if declared > max_bytes:
        raise DecompressedTooLarge(f"snappy: block of {declared} bytes")
    return bytes(cramjam.snappy.decompress_raw(data))


def _lz4_decompress(data: Buffer, max_bytes: int) -> bytes:
    decoder = lz4.frame.LZ4FrameDecompressor()
    # The library allocates all of max_length. So it is also limited to what this size of input can contain at most.
    plain: bytes = decoder.decompress(data, max_length=min(max_bytes + 1, len(data) * _LZ4_MAX_RATIO + 1))
    if not decoder.eof and len(plain) <= max_bytes:
        raise DecompressionError("lz4: frame cut short")
    return plain


def compress(codec: int, data: Buffer, magic: int = 2) -> bytes:
    """`data` compressed like Kafka's own clients do, for a message of `magic`. Raises UnsupportedCompression."""
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        return zlib.compress(data, wbits=31)
    if codec == SNAPPY:
        return _xerial_compress(memoryview(data))
    if codec == LZ4:
        # Kafka's Java reader refuses blocks that refer to earlier ones.
        frame: bytes = lz4.frame.compress(data, block_linked=False, store_size=False)
        return frame if magic > 0 else _with_wrong_lz4_checksum(frame)
    if codec == ZSTD and magic >= 2:
        return zstandard.ZstdCompressor().compress(data)
    raise UnsupportedCompression(f"codec {codec} in a message of magic {magic}")


def _xerial_compress(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _with_right_lz4_checksum(frame: Buffer) -> bytes:
    """KAFKA-3160: clients of magic 0 included the magic bytes in the header checksum. Readers of magic 0 ignore it."""
    position = _lz4_checksum_offset(frame)
    return _with_byte(frame, position, _lz4_header_checksum(bytes(frame[_LZ4_FLAGS_OFFSET:position])))


def _with_wrong_lz4_checksum(frame: bytes) -> bytes:
    """KAFKA-3160 in the other direction: old readers of magic 0 require the checksum that includes the magic bytes."""
    position = _lz4_checksum_offset(frame)
    return _with_byte(frame, position, _lz4_header_checksum(frame[:position]))


def _with_byte(data: Buffer, position: int, byte: int) -> bytes:
    changed = bytearray(data)
    changed[position] = byte
    return bytes(changed)


def _lz4_checksum_offset(frame: Buffer) -> int:
    flags = frame[_LZ4_FLAGS_OFFSET] if len(frame) > _LZ4_FLAGS_OFFSET else 0
    position = _LZ4_CHECKSUM_OFFSET + (_LZ4_CONTENT_SIZE_BYTES if flags & _LZ4_CONTENT_SIZE_FLAG else 0)
    if position >= len(frame) or flags & _LZ4_DICTIONARY_FLAG:
        raise DecompressionError("lz4: header cut short, or with a dictionary")
    return position


def _lz4_header_checksum(header: bytes) -> int:
    """Second byte of xxHash32 with seed 0, for the less than 16 bytes that a header has."""
    prime_1, prime_2, prime_3, prime_4, prime_5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    mask = 0xFFFFFFFF
    value = prime_5 + len(header)
    whole = len(header) & ~3
    for (word,) in struct.iter_unpack("<I", header[:whole]):
        value = (value + word * prime_3) & mask
        value = ((value << 17 | value >> 15) * prime_4) & mask
    for byte in header[whole:]:
        value = (value + byte * prime_5) & mask
        value = ((value << 11 | value >> 21) * prime_1) & mask
    value = ((value ^ value >> 15) * prime_2) & mask
    value = ((value ^ value >> 13) * prime_3) & mask
    value ^= value >> 16
    return value >> 8 & 0xFF
