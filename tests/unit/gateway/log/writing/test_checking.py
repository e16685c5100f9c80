"""What a Produce request may contain: one complete, valid batch, or a message set that becomes one."""

import struct
import time
import uuid

import pytest
from crc32c import crc32c

from gateway.config.limits import Limits
from gateway.errors import KafkaError, RejectedRecords, error_code
from gateway.log.writing.checking import IN_THE_LOOP, MAX_NAMED_RECORDS, HeavyRecordsError, Produced, check_produced
from gateway.topics.topic import Topic
from protocol.kafka.batch import CorruptBatch, InvalidBatch, check_batch, parse_header
from protocol.kafka.compression import GZIP, ZSTD
from protocol.kafka.errors import ErrorCode
from protocol.kafka.message_set import LegacyMessage, encode_message_set
from protocol.kafka.records import Record, encode_batch
from tests.support.records import decode_records

NOW_MS = 1_700_000_000_000
LIMITS = Limits()


def topic(**configs: str) -> Topic:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    return Topic("t", "persistent://kafka/default/t", uuid.uuid4(), 1, True, named, time.monotonic())


def batch(*, key: bytes | None = b"k", timestamp: int = NOW_MS, compression: int = 0) -> bytearray:
    return encode_batch(
        [Record(0, timestamp, key, b"v", ()), Record(1, timestamp, key, b"w", ())], compression=compression
    )


def check(records: bytes | bytearray | None, version: int = 9, to: Topic | None = None) -> Produced | None:
    view = None if records is None else memoryview(bytearray(records))
    return check_produced(view, version, to or topic(), LIMITS, NOW_MS, transactional=False)


def refusal(records: bytes | bytearray | None, version: int = 9, to: Topic | None = None) -> ErrorCode:
    with pytest.raises((KafkaError, CorruptBatch, InvalidBatch)) as caught:
        check(records, version, to)
    return error_code(caught.value)


def test_a_sound_batch_stays_as_it_is() -> None:
    data = batch()
    produced = check(data)
    assert produced is not None
    assert bytes(produced.data) == bytes(data)
    assert produced.log_append_time_ms == -1


def test_less_than_a_header_behind_the_batch_is_dropped() -> None:
    produced = check(batch() + b"12345")
    assert produced is not None
    assert bytes(produced.data) == bytes(batch())


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (batch()[:40], ErrorCode.INVALID_RECORD),
        (batch() + batch(), ErrorCode.INVALID_RECORD),
        (batch() + bytes(40), ErrorCode.CORRUPT_MESSAGE),
        (batch()[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE),
        (encode_message_set([LegacyMessage(1, 0, 0, NOW_MS, b"k", b"v")]), ErrorCode.INVALID_RECORD),
    ],
    ids=["null", "empty", "cut", "two batches", "zeros behind", "bad checksum", "message set"],
)
def test_what_newer_clients_may_not_send(records: bytes | None, code: ErrorCode) -> None:
    assert refusal(records) == code


def test_zstd_came_with_version_7() -> None:
    assert refusal(batch(compression=4), version=6) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert check(batch(compression=4), version=7) is not None


def test_a_message_set_becomes_a_batch() -> None:
    message_set = encode_message_set([LegacyMessage(1, 0, number, NOW_MS, b"k", b"%d" % number) for number in range(3)])
    produced = check(message_set, version=2)
    assert produced is not None
    records = decode_records(produced.data, 0, produced.header, LIMITS.max_decompressed_bytes)
    assert [(record.offset_delta, record.value) for record in records] == [(0, b"0"), (1, b"1"), (2, b"2")]


def test_an_empty_message_set_is_taken_and_not_written() -> None:
    assert check(b"", version=2) is None


def test_the_topic_bounds_the_size() -> None:
    small = topic(max_message_bytes=str(len(batch()) - 1))
    assert refusal(batch(), to=small) == ErrorCode.MESSAGE_TOO_LARGE
    assert check(batch(), to=topic(max_message_bytes=str(len(batch())))) is not None


def test_the_size_is_that_of_what_was_sent_too() -> None:
    large = encode_batch([Record(0, NOW_MS, b"k", bytes(5_000))])
    for configs in ({"compression_type": "zstd"}, {"compression_type": "zstd", "entry_format": "pulsar"}):
        assert refusal(large, to=topic(max_message_bytes="2000", **configs)) == ErrorCode.MESSAGE_TOO_LARGE
        assert check(large, to=topic(max_message_bytes="6000", **configs)) is not None


def test_log_append_time_is_stamped_and_signed() -> None:
    records = memoryview(batch(timestamp=5))
    to = topic(message_timestamp_type="LogAppendTime")
    first = check_produced(records, 9, to, LIMITS, NOW_MS, transactional=False)
    produced = check_produced(records, 9, to, LIMITS, NOW_MS, transactional=False)
    assert first is not None and produced is not None
    assert bytes(first.data) == bytes(produced.data), "the first transaction of a compacted topic has it checked again"
    assert produced.log_append_time_ms == NOW_MS
    header = parse_header(produced.data)
    assert header.log_append_time
    assert header.max_timestamp == NOW_MS


@pytest.mark.parametrize(("timestamp", "refused"), [(NOW_MS + 1_001, True), (NOW_MS + 1_000, False)])
def test_timestamps_may_be_so_far_ahead(timestamp: int, refused: bool) -> None:
    bounded = topic(message_timestamp_after_max_ms="1000")
    if refused:
        assert refusal(batch(timestamp=timestamp), to=bounded) == ErrorCode.INVALID_TIMESTAMP
    else:
        assert check(batch(timestamp=timestamp), to=bounded) is not None


def test_compacted_topics_want_keys_and_name_the_records_without() -> None:
    with pytest.raises(RejectedRecords) as caught:
        check(batch(key=None), to=topic(cleanup_policy="compact"))
    assert sorted(caught.value.reasons) == [0, 1]
    assert check(batch(), to=topic(cleanup_policy="compact,delete")) is not None


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize(
    ("name", "expected"), [("uncompressed", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)]
)
def test_compression_type_compresses_anew(codec: int, name: str, expected: int) -> None:
    sent = batch(compression=codec)
    produced = check(sent, to=topic(compression_type=name))
    assert produced is not None
    header = produced.header
    assert header == parse_header(produced.data)
    check_batch(produced.data, 0, header)
    assert header.compression == expected
    assert decode_records(produced.data, 0, header, 1 << 20) == decode_records(sent, 0, parse_header(sent), 1 << 20)


def test_compression_type_producer_leaves_batches_alone() -> None:
    produced = check(batch(compression=3), to=topic(compression_type="producer"))
    assert produced is not None
    assert bytes(produced.data) == bytes(batch(compression=3))


def test_the_size_that_counts_is_the_one_that_is_stored() -> None:
    large = encode_batch([Record(0, NOW_MS, b"k", bytes(10_000))], compression=1)
    assert check(large, to=topic(max_message_bytes="1000")) is not None
    assert refusal(large, to=topic(max_message_bytes="1000", compression_type="uncompressed")) == (
        ErrorCode.MESSAGE_TOO_LARGE
    )


def test_records_become_messages_where_the_topic_holds_those() -> None:
    plain, native = check(batch()), check(batch(), to=topic(entry_format="pulsar"))
    assert plain is not None
    assert native is not None
    assert plain.messages is None
    assert native.messages
    earlier = batch(timestamp=NOW_MS - 5)
    appended = check(earlier, to=topic(entry_format="pulsar", message_timestamp_type="LogAppendTime"))
    assert appended is not None
    assert appended.messages == native.messages, "they have the time of the append"


def test_records_that_cannot_be_read_become_no_messages() -> None:
    damaged = bytearray(batch())
    damaged[-1] ^= 0xFF
    damaged[-3] ^= 0xFF
    struct.pack_into(">I", damaged, 17, crc32c(memoryview(damaged)[21:]))
    assert refusal(damaged) == ErrorCode.INVALID_RECORD
    assert refusal(damaged, to=topic(entry_format="pulsar")) == ErrorCode.INVALID_RECORD


def test_one_bound_for_past_and_future() -> None:
    bounded = topic(message_timestamp_difference_max_ms="1000")
    assert refusal(batch(timestamp=NOW_MS - 1_001), to=bounded) == ErrorCode.INVALID_TIMESTAMP
    assert refusal(batch(timestamp=NOW_MS + 1_001), to=bounded) == ErrorCode.INVALID_TIMESTAMP
    assert check(batch(timestamp=NOW_MS + 1_000), to=bounded) is not None


def test_a_bound_that_is_set_to_its_default_is_not_set() -> None:
    default = str(2**63 - 1)
    bounded = topic(
        message_timestamp_difference_max_ms="1000", message_timestamp_before_max_ms=default,
        message_timestamp_after_max_ms=default,
    )  # fmt: skip
    for offset_ms in (-1_001, 1_001):
        assert refusal(batch(timestamp=NOW_MS + offset_ms), to=bounded) == ErrorCode.INVALID_TIMESTAMP


def bomb(records: int, *, size: int = 1) -> bytearray:
    """A few hundred bytes that decompress to a large size."""
    return encode_batch([Record(number, NOW_MS, b"k", bytes(size)) for number in range(records)], compression=ZSTD)


@pytest.mark.parametrize(
    "configs", [{"entry_format": "pulsar"}, {"cleanup_policy": "compact"}, {"compression_type": "gzip"}]
)
@pytest.mark.parametrize("heavy", [bomb(1, size=1 << 20), bomb(5_000)], ids=["bytes", "records"])
def test_what_unfolds_to_much_is_not_looked_at_in_the_event_loop(configs: dict[str, str], heavy: bytearray) -> None:
    data, to = memoryview(bytearray(heavy)), topic(**configs)
    with pytest.raises(HeavyRecordsError):
        check_produced(data, 9, to, LIMITS, NOW_MS, transactional=False, effort=IN_THE_LOOP)
    assert data == heavy
    produced = check_produced(data, 9, to, LIMITS, NOW_MS, transactional=False)
    assert produced is not None
    assert produced.header.record_count == parse_header(heavy).record_count


def test_a_message_set_that_unfolds_to_much() -> None:
    messages = [LegacyMessage(1, 0, number, NOW_MS, b"k", bytes(1_000)) for number in range(1_000)]
    data = memoryview(bytearray(encode_message_set(messages, GZIP)))
    with pytest.raises(HeavyRecordsError):
        check_produced(data, 2, topic(), LIMITS, NOW_MS, transactional=False, effort=IN_THE_LOOP)
    produced = check_produced(data, 2, topic(), LIMITS, NOW_MS, transactional=False)
    assert produced is not None
    assert produced.header.record_count == 1_000


def test_what_unfolds_to_more_than_the_limit_is_refused() -> None:
    small = Limits(max_decompressed_bytes=1 << 20)
    with pytest.raises(KafkaError) as error:
        check_produced(
            memoryview(bomb(1, size=1 << 21)), 9, topic(entry_format="pulsar"), small, NOW_MS, transactional=False
        )
    assert error.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_messages_that_could_not_be_read_again_are_refused() -> None:
    """Each record becomes a longer message."""
    small = Limits(max_decompressed_bytes=1 << 20)
    with pytest.raises(KafkaError) as error:
        check_produced(memoryview(bomb(80_000)), 9, topic(entry_format="pulsar"), small, NOW_MS, transactional=False)
    assert error.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_so_many_bad_records_are_named() -> None:
    keyless = encode_batch([Record(number, NOW_MS, None, b"v") for number in range(5_000)])
    with pytest.raises(RejectedRecords) as error:
        check(keyless, to=topic(cleanup_policy="compact"))
    assert list(error.value.reasons) == list(range(MAX_NAMED_RECORDS))


def test_more_records_than_bytes_can_hold() -> None:
    """In a batch of which only the beginning is checked."""
    data = bytearray(encode_batch([Record(n, NOW_MS, b"k", b"v" * 70) for n in range(200)]))
    count = 2**31 - 1
    struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">i", data, 57, count)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    assert len(data) > 8 * 1024
    assert refusal(data) is ErrorCode.INVALID_RECORD
