"""Codecs, their limits, and Kafka's own peculiarities, compared with kafka-python's codecs."""

import gzip
import random
import tracemalloc
from collections.abc import Callable

import cramjam
import kafka.codec
import lz4.frame
import pytest
import zstandard

from protocol.kafka.compression import (
    _XERIAL_HEADER,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    DecompressedTooLarge,
    DecompressionError,
    UnsupportedCompression,
    compress,
    decompress,
    decompress_start,
)

FORMATS = [(codec, magic) for codec in range(5) for magic in range(3) if codec != ZSTD or magic == 2]
PLAIN = [b"", b"x", b"hello " * 30, bytes(range(256)) * 1000]
MEBIBYTE = 1 << 20


@pytest.mark.parametrize("plain", PLAIN, ids=len)
@pytest.mark.parametrize(("codec", "magic"), FORMATS)
def test_round_trip_up_to_the_limit(codec: int, magic: int, plain: bytes) -> None:
    compressed = compress(codec, plain, magic)
    for form in (bytes, bytearray, memoryview):
        assert decompress(codec, form(compressed), len(plain), magic=magic) == plain
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, compressed, len(plain) - 1, magic=magic)


@pytest.mark.parametrize(
    ("codec", "encode", "decode"),
    [
        (GZIP, kafka.codec.gzip_encode, kafka.codec.gzip_decode),
        (SNAPPY, kafka.codec.snappy_encode, kafka.codec.snappy_decode),
        (LZ4, kafka.codec.lz4_encode, kafka.codec.lz4_decode),
        (ZSTD, kafka.codec.zstd_encode, kafka.codec.zstd_decode),
    ],
)
@pytest.mark.parametrize("plain", PLAIN[1:], ids=len)
def test_kafka_python_agrees(
    codec: int, encode: Callable[[bytes], bytes], decode: Callable[[bytes], bytes], plain: bytes
) -> None:
    assert decode(compress(codec, plain)) == plain
    assert decompress(codec, encode(plain), len(plain)) == plain


def test_snappy_is_read_raw_too() -> None:
    plain = b"hello " * 30
    raw = bytes(cramjam.snappy.compress_raw(plain))
    assert decompress(SNAPPY, raw, len(plain)) == plain
    with pytest.raises(DecompressedTooLarge):
        decompress(SNAPPY, raw, len(plain) - 1)


def test_gzip_members_follow_one_another() -> None:
    assert decompress(GZIP, gzip.compress(b"one ") + gzip.compress(b"two"), 7) == b"one two"


def test_lz4_blocks_stand_alone_for_the_java_reader() -> None:
    flags = compress(LZ4, bytes(range(256)) * 1000)[4]
    assert flags & 0x20


@pytest.mark.parametrize(("magic", "checksum"), [(0, 0x1A), (1, 0x82), (2, 0x82)])
def test_lz4_header_checksum_is_wrong_in_magic_0_only(magic: int, checksum: int) -> None:
    # Kafka 3.9.2 writes both values with the same flags and block size.
    assert compress(LZ4, b"x" * 100, magic)[:7] == bytes.fromhex("04224d186040") + bytes([checksum])


@pytest.mark.parametrize("store_size", [False, True])
def test_lz4_header_checksum_is_ignored_in_magic_0_only(store_size: bool) -> None:
    frame = bytearray(lz4.frame.compress(b"x" * 100, store_size=store_size))
    frame[14 if store_size else 6] ^= 0xFF
    assert decompress(LZ4, frame, 100, magic=0) == b"x" * 100
    with pytest.raises(DecompressionError):
        decompress(LZ4, frame, 100, magic=1)


@pytest.mark.parametrize("codec", [GZIP, LZ4])
def test_streams_cut_short_are_refused(codec: int) -> None:
    compressed = compress(codec, b"hello " * 30)
    for end in range(1, len(compressed)):
        with pytest.raises(DecompressionError):
            decompress(codec, compressed[:end], 1000)


def test_snappy_blocks_cut_short_are_refused() -> None:
    compressed = compress(SNAPPY, b"hello " * 30)
    for end in range(17, len(compressed)):
        with pytest.raises(DecompressionError):
            decompress(SNAPPY, compressed[:end], 1000)


def zeros(codec: int, size: int) -> bytes:
    if codec == ZSTD:
        return zstandard.ZstdCompressor(write_content_size=False).compress(bytes(size))
    return compress(codec, bytes(size))


BOMBS = [
    *(pytest.param(codec, zeros(codec, 40 * MEBIBYTE), id=f"40 MiB of zeros, codec {codec}") for codec in range(1, 5)),
    pytest.param(SNAPPY, b"\xff\xff\xff\xff\x0f\x00a", id="snappy that declares 4 GiB"),
    pytest.param(SNAPPY, compress(SNAPPY, b"")[:16] + b"\0\0\0\x07\xff\xff\xff\xff\x0f\x00a", id="the same in a block"),
    pytest.param(LZ4, lz4.frame.compress(bytes(40 * MEBIBYTE), store_size=True), id="lz4 that declares 40 MiB"),
    pytest.param(ZSTD, zstandard.compress(bytes(40 * MEBIBYTE)), id="zstd that declares 40 MiB"),
    pytest.param(GZIP, gzip.compress(b"x" * 100) * 20_000, id="20,000 gzip members"),
]


@pytest.mark.parametrize("max_bytes", [MEBIBYTE, 0, -5])
@pytest.mark.parametrize(("codec", "bomb"), BOMBS)
def test_bombs_are_stopped_before_they_unfold(codec: int, bomb: bytes, max_bytes: int) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(DecompressedTooLarge):
            decompress(codec, bomb, max_bytes)
        assert tracemalloc.get_traced_memory()[1] < 4 * MEBIBYTE
    finally:
        tracemalloc.stop()


def test_unknown_codecs() -> None:
    for codec in (5, 6, 7):
        with pytest.raises(UnsupportedCompression):
            decompress(codec, b"", 10)
        with pytest.raises(UnsupportedCompression):
            compress(codec, b"")
    with pytest.raises(UnsupportedCompression):
        compress(ZSTD, b"", magic=1)


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 40_000])
def test_the_start_says_whether_there_is_more(codec: int, size: int) -> None:
    plain = random.Random(size).randbytes(size)
    start = decompress_start(codec, compress(codec, plain), 100)
    assert start is not None
    assert start.plain == plain[: len(start.plain)]
    assert len(start.plain) >= min(size, 100)
    if start.whole:
        assert start.plain == plain
    elif codec != ZSTD:  # which may need one more call
        assert size >= 100


def test_the_start_of_several_members_and_blocks_is_not_the_whole() -> None:
    for data in (gzip.compress(b"a") + gzip.compress(b"b"), _XERIAL_HEADER + 2 * _block(b"a")):
        codec = GZIP if data[:2] == b"\x1f\x8b" else SNAPPY
        assert decompress_start(codec, data, 100) == (b"a", False)


def _block(plain: bytes) -> bytes:
    packed = bytes(cramjam.snappy.compress_raw(plain))
    return len(packed).to_bytes(4, "big") + packed
