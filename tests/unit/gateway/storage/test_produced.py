"""What a Produce request may carry: one whole, sound batch, or a message set that becomes one."""

import time
import uuid

import pytest

from gateway.config import Limits
from gateway.storage.errors import KafkaError, RejectedRecords, error_code
from gateway.storage.produced import Produced, check_produced
from gateway.storage.topics import Topic
from protocol.kafka.batch import CorruptBatch, InvalidBatch, parse_header
from protocol.kafka.errors import ErrorCode
from protocol.kafka.message_set import LegacyMessage, encode_message_set
from protocol.kafka.records import Record, decode_records, encode_batch

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


def test_log_append_time_is_stamped_and_signed() -> None:
    produced = check(batch(timestamp=5), to=topic(message_timestamp_type="LogAppendTime"))
    assert produced is not None
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
