"""Payloads of entries: batches, compression, and what cannot be read."""

import zlib
from collections.abc import Callable

import lz4.block
import pytest
import snappy
import zstandard

from protocol.pulsar.entry import EntryError, NativeMessage, decompress, encode_message, iter_messages
from protocol.pulsar.pulsar_commands_pb2 import CompressionType, MessageMetadata, SingleMessageMetadata

MAX_BYTES = 100_000
DATA = b"the same again and again " * 1000
COMPRESSORS: dict[int, Callable[[bytes], bytes]] = {
    CompressionType.NONE: lambda data: data,
    CompressionType.LZ4: lambda data: lz4.block.compress(data, store_size=False),
    CompressionType.ZLIB: zlib.compress,
    CompressionType.ZSTD: lambda data: zstandard.ZstdCompressor().compress(data),
    CompressionType.SNAPPY: snappy.compress,
}
COMPRESSED = [kind for kind in COMPRESSORS if kind != CompressionType.NONE]


def metadata(**fields: object) -> MessageMetadata:
    return MessageMetadata(producer_name="p", sequence_id=0, publish_time=77, **fields)  # type: ignore[arg-type]


def messages(meta: MessageMetadata, payload: bytes) -> list[NativeMessage]:
    return list(iter_messages(meta, payload, MAX_BYTES))


@pytest.mark.parametrize("kind", COMPRESSORS)
@pytest.mark.parametrize("data", [DATA, b"", b"x"])
def test_decompression(kind: int, data: bytes) -> None:
    meta = metadata(compression=kind, uncompressed_size=len(data))
    assert decompress(meta, COMPRESSORS[kind](data), MAX_BYTES) == data


@pytest.mark.parametrize("kind", COMPRESSED)
@pytest.mark.parametrize("announced", [0, 1, len(DATA) - 1, len(DATA) + 1])
def test_a_wrong_size_is_an_error(kind: int, announced: int) -> None:
    meta = metadata(compression=kind, uncompressed_size=announced)
    with pytest.raises(EntryError):
        decompress(meta, COMPRESSORS[kind](DATA), MAX_BYTES)


@pytest.mark.parametrize("kind", COMPRESSED)
def test_too_large_is_refused_before_decompressing(kind: int) -> None:
    meta = metadata(compression=kind, uncompressed_size=MAX_BYTES + 1)
    with pytest.raises(EntryError, match="at most"):
        decompress(meta, b"not even looked at", MAX_BYTES)


def test_an_unknown_compression_is_not_taken_for_none() -> None:
    with pytest.raises(EntryError, match="unknown"):
        decompress(metadata(compression=77, uncompressed_size=1), b"x", MAX_BYTES)


def test_zstd_frame_without_a_size() -> None:
    compressor = zstandard.ZstdCompressor(write_content_size=False)
    meta = metadata(compression=CompressionType.ZSTD, uncompressed_size=len(DATA))
    assert decompress(meta, compressor.compress(DATA), MAX_BYTES) == DATA


def test_a_single_message() -> None:
    meta = metadata(partition_key=b"k", event_time=5, ordering_key=b"o")
    meta.properties.add(key=b"h", value=b"\xff")
    (message,) = messages(meta, b"value")
    assert (message.key, message.ordering_key, bytes(message.value)) == (b"k", b"o", b"value")
    assert message.properties == (("h", b"\xff"),)
    assert (message.publish_time_ms, message.event_time_ms) == (77, 5)
    assert not (message.null_value or message.compacted_out or message.encrypted or message.chunk)


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_a_batch(kind: int) -> None:
    payload = b"".join(
        [
            encode_message(b"one", key=b"text", properties=[("a", b"1")], event_time_ms=9),
            encode_message(b"", key=b"\xff\x00"),
            encode_message(None, key=b""),
            encode_message(b"four"),
        ]
    )
    meta = metadata(num_messages_in_batch=4, compression=kind, uncompressed_size=len(payload))
    found = messages(meta, COMPRESSORS[kind](payload))
    assert [m.key for m in found] == [b"text", b"\xff\x00", b"", None]
    assert [bytes(m.value) for m in found] == [b"one", b"", b"", b"four"]
    assert [m.null_value for m in found] == [False, False, True, False]
    assert [m.batch_index for m in found] == [0, 1, 2, 3]
    assert found[0].properties == (("a", b"1"),)
    assert [m.event_time_ms for m in found] == [9, None, None, None]


def test_compacted_messages_say_so() -> None:
    head = SingleMessageMetadata(payload_size=0, compacted_out=True).SerializeToString()
    payload = len(head).to_bytes(4, "big") + head + encode_message(b"kept")
    assert [m.compacted_out for m in messages(metadata(num_messages_in_batch=2), payload)] == [True, False]


@pytest.mark.parametrize("cut", range(1, 10))
def test_a_batch_that_ends_early(cut: int) -> None:
    payload = encode_message(b"a", key=b"k") + encode_message(b"b")
    with pytest.raises(EntryError):
        messages(metadata(num_messages_in_batch=2), payload[:-cut])


def test_a_negative_size_does_not_go_back() -> None:
    head = SingleMessageMetadata(payload_size=-1).SerializeToString()
    with pytest.raises(EntryError):
        messages(metadata(num_messages_in_batch=1), len(head).to_bytes(4, "big") + head)


def test_an_encrypted_batch_is_one_opaque_message() -> None:
    meta = metadata(num_messages_in_batch=10, compression=CompressionType.LZ4, uncompressed_size=10**9)
    meta.encryption_keys.add(key="k", value=b"v")
    (message,) = messages(meta, b"secret")
    assert message.encrypted
    assert bytes(message.value) == b"secret"


def test_a_chunk_says_which() -> None:
    meta = metadata(uuid=b"u", chunk_id=1, num_chunks_from_msg=3, total_chunk_msg_size=30)
    (message,) = messages(meta, b"piece")
    assert message.chunk == (b"u", 1, 3, 30)
    assert bytes(message.value) == b"piece"


def test_a_key_that_is_not_base64() -> None:
    with pytest.raises(EntryError):
        messages(metadata(partition_key=b"a", partition_key_b64_encoded=True), b"")


def test_a_null_key_is_none() -> None:
    (message,) = messages(metadata(partition_key=b"", null_partition_key=True), b"")
    assert message.key is None
