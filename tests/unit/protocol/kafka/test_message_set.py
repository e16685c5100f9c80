"""Message sets of magic 0 and 1, compared with bytes written by Kafka 3.9.2 and with kafka-python's classes."""

import json
import struct
import zlib
from pathlib import Path

import pytest
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from protocol.kafka.batch import CorruptBatch, InvalidBatch
from protocol.kafka.compression import GZIP, UnsupportedCompression, compress, decompress
from protocol.kafka.message_set import LegacyMessage, encode_message_set, iter_messages
from protocol.kafka.records import Record, encode_batch
from tests.support.records import parse_message_set

KAFKA = json.loads((Path(__file__).parent / "kafka_3_9_2_records.json").read_text())
CODECS = ["none", "gzip", "snappy", "lz4"]
T0 = 1_700_000_000_000
# kafka-python wants the xxhash package to write or read lz4 in magic 0; Kafka's own bytes stand in for it.
KAFKA_PYTHON = [(magic, codec) for magic in (0, 1) for codec in range(4) if (magic, codec) != (0, 3)]


def three(magic: int, offset: int = 5) -> list[LegacyMessage]:
    """The messages of the recorded sets."""
    times = (T0, T0 + 123, T0 - 1) if magic else (-1, -1, -1)
    return [
        LegacyMessage(magic, 0, offset, times[0], b"k1", b"value value value value"),
        LegacyMessage(magic, 0, offset + 1, times[1], None, b"v2"),
        LegacyMessage(magic, 0, offset + 2, times[2], b"k3", None),
    ]


def wrapper(magic: int, inner: bytes | None, *, codec: int = 1, offset: int = 0, attributes: int = 0) -> bytes:
    """A wrapper around any bytes, for sets that no encoder writes."""
    value = None if inner is None else compress(codec, inner, 2)
    return encode_message_set([LegacyMessage(magic, codec | attributes, offset, T0, None, value)])


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_what_kafka_wrote_is_read(magic: int, codec: str) -> None:
    assert parse_message_set(bytes.fromhex(KAFKA[f"magic {magic}, {codec}, create time"]), 1 << 20) == three(magic)


@pytest.mark.parametrize("codec", CODECS)
def test_broker_time_reaches_every_message(codec: str) -> None:
    expected = [message._replace(attributes=8, timestamp=T0 + 999) for message in three(1)]
    assert parse_message_set(bytes.fromhex(KAFKA[f"magic 1, {codec}, log append time"]), 1 << 20) == expected
    assert all(message.log_append_time for message in expected)


@pytest.mark.parametrize("magic", [0, 1])
def test_what_is_written_is_what_kafka_writes(magic: int) -> None:
    assert encode_message_set(three(magic)).hex() == KAFKA[f"magic {magic}, none, create time"]


@pytest.mark.parametrize("codec", range(4))
@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers_carry_what_kafkas_carry(magic: int, codec: int) -> None:
    ours = encode_message_set(three(magic), codec)
    kafkas = bytes.fromhex(KAFKA[f"magic {magic}, {CODECS[codec]}, create time"])
    assert parse_message_set(ours, 1 << 20) == three(magic)
    assert [each._replace(value=b"") for each in iter_messages(ours)] == [
        each._replace(value=b"") for each in iter_messages(kafkas)
    ]


@pytest.mark.parametrize(("magic", "offsets"), [(0, [5, 6, 7]), (1, [0, 1, 2])])
def test_offsets_in_a_written_wrapper(magic: int, offsets: list[int]) -> None:
    (outer,) = iter_messages(encode_message_set(three(magic), GZIP))
    assert outer.value is not None
    assert [message.offset for message in iter_messages(decompress(GZIP, outer.value, 1 << 20))] == offsets


@pytest.mark.parametrize(("magic", "codec"), KAFKA_PYTHON)
def test_kafka_python_reads_what_is_written(magic: int, codec: int) -> None:
    batches = list(MemoryRecords(encode_message_set(three(magic), codec)))
    assert all(batch.validate_crc() for batch in batches)
    read = [record for batch in batches for record in batch]
    assert all(record.validate_crc() for record in read)
    assert [
        LegacyMessage(magic, 0, record.offset, record.timestamp if magic else -1, record.key, record.value)
        for record in read
    ] == three(magic)


@pytest.mark.parametrize(("magic", "codec"), KAFKA_PYTHON)
def test_what_kafka_python_wrote_is_read(magic: int, codec: int) -> None:
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for message in three(magic, offset=0):
        assert builder.append(message.offset, message.timestamp, message.key, message.value) is not None
    assert parse_message_set(bytes(builder.build()), 1 << 20) == three(magic, offset=0)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_cut_takes_the_message_that_it_goes_through_and_no_other(magic: int, wrapped: bool) -> None:
    messages = three(magic, offset=0)
    data = encode_message_set(messages)
    ends = [len(encode_message_set(messages[:count])) for count in range(4)]
    for cut in range(ends[1], len(data) + 1):
        whole = sum(end <= cut for end in ends) - 1
        kept = wrapper(magic, data[:cut]) if wrapped else data[:cut]
        assert len(parse_message_set(kept, 1 << 20)) == whole


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 13, 2**31 - 1])
def test_a_size_that_cannot_be_is_corrupt(size: int) -> None:
    first, second = (encode_message_set([message]) for message in three(1)[:2])
    with pytest.raises(CorruptBatch):
        parse_message_set(first + second[:8] + struct.pack(">i", size) + second[12:], 1 << 20)


@pytest.mark.parametrize("magic", [0, 1])
def test_every_byte_under_the_checksum_is_watched(magic: int) -> None:
    data = bytearray(encode_message_set(three(magic)[:1]))
    for position in [*range(12, 16), *range(17, len(data))]:
        data[position] ^= 0x40
        with pytest.raises(CorruptBatch):
            parse_message_set(data, 1 << 20)
        data[position] ^= 0x40


def test_damage_inside_a_wrapper_is_seen() -> None:
    inner = bytearray(encode_message_set(three(1, offset=0)))
    inner[-1] ^= 1
    with pytest.raises(CorruptBatch):
        parse_message_set(wrapper(1, bytes(inner)), 1 << 20)


@pytest.mark.parametrize(("offset", "first"), [(0, 0), (2, 0), (77, 75)])
def test_offsets_in_magic_1_count_back_from_the_wrapper(offset: int, first: int) -> None:
    data = wrapper(1, encode_message_set(three(1, offset=0)), offset=offset)
    assert [message.offset for message in parse_message_set(data, 1 << 20)] == [first, first + 1, first + 2]


def test_offsets_in_magic_0_are_absolute() -> None:
    data = wrapper(0, encode_message_set(three(0, offset=40)), offset=99)
    assert [message.offset for message in parse_message_set(data, 1 << 20)] == [40, 41, 42]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(wrapper(1, wrapper(1, encode_message_set(three(1)))), id="wrapper in a wrapper"),
        pytest.param(wrapper(1, encode_message_set(three(0))), id="magic 0 in magic 1"),
        pytest.param(wrapper(0, encode_message_set(three(1))), id="magic 1 in magic 0"),
        pytest.param(wrapper(1, bytes(encode_batch([Record(0, T0, None, None)]))), id="magic 2 in magic 1"),
        pytest.param(wrapper(1, b""), id="empty wrapper"),
        pytest.param(wrapper(1, None), id="wrapper without value"),
        pytest.param(wrapper(1, encode_message_set(three(1, offset=0)), offset=1), id="wrapper's offset too low"),
        pytest.param(wrapper(1, encode_message_set(three(1)), codec=4), id="zstd"),
        pytest.param(wrapper(1, encode_message_set(three(1)), codec=1, attributes=4), id="codec 5"),
        pytest.param(wrapper(1, encode_message_set(three(1)), codec=1, attributes=2), id="lz4 that is gzip"),
        pytest.param(bytes(encode_batch([Record(0, T0, None, None)])), id="magic 2"),
    ],
)
def test_sets_that_clients_may_not_send_are_invalid(data: bytes) -> None:
    with pytest.raises(InvalidBatch):
        parse_message_set(data, 1 << 20)


@pytest.mark.parametrize("fields", [b"\0\0\0\x05k\0\0\0\0", b"\xff\xff\xff\xff\x7f\xff\xff\xff"])
def test_fields_longer_than_their_message_are_invalid(fields: bytes) -> None:
    checked = b"\0\0" + fields
    data = struct.pack(">qiI", 0, len(checked) + 4, zlib.crc32(checked)) + checked
    with pytest.raises(InvalidBatch):
        parse_message_set(data, 1 << 20)


@pytest.mark.parametrize("magic", [3, 255])
def test_unknown_magic_is_corrupt(magic: int) -> None:
    data = bytearray(encode_message_set(three(1)))
    data[16] = magic
    with pytest.raises(CorruptBatch):
        parse_message_set(data, 1 << 20)


def test_the_limit_is_on_what_wrappers_unfold_to_together() -> None:
    inner = encode_message_set([LegacyMessage(1, 0, 0, T0, None, bytes(10_000))])
    assert parse_message_set(wrapper(1, inner), len(inner))
    with pytest.raises(InvalidBatch):
        parse_message_set(wrapper(1, inner), len(inner) - 1)
    with pytest.raises(InvalidBatch):
        parse_message_set(wrapper(1, inner) * 3, 2 * len(inner))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError):
        encode_message_set([LegacyMessage(1, 0, 2**63, T0, None, None)])
    with pytest.raises(UnsupportedCompression):
        encode_message_set(three(1), 4)
