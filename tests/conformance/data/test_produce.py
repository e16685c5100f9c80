"""Produce (key 0), v0 to v11: formats, codecs, acks, sizes, timestamps. For invalid batches see test_batches.py."""

from __future__ import annotations

import time

import pytest

from tests.conformance.conversation import Conversation, case
from tests.conformance.records import (
    CODECS,
    GZIP,
    T0_MS,
    Record,
    batch,
    records,
    with_bad_crc,
)
from tests.conformance.requests import (
    encode_records,
    native_magic,
    produce,
    produce_fields,
    read_back,
    shared,
    try_to_write,
)

SINCE_V3 = range(3, 12)
FAR_FUTURE_MS = 4_000_000_000_000


@case("Produce")
@pytest.mark.parametrize("codec", CODECS)
def test_each_codec(conversation: Conversation, version: int, codec: str) -> None:
    """zstd needs v7: UNSUPPORTED_COMPRESSION_TYPE in older versions."""
    try_to_write(conversation, version, encode_records(records(3), native_magic(version), CODECS[codec]))


@case("Produce", [2, 7, 11])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
@pytest.mark.parametrize("stored", ["uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"])
def test_compression_type(conversation: Conversation, version: int, stored: str, codec: str) -> None:
    """The topic's codec is used."""
    topic = shared(conversation, f"compressed-{stored}", compression_type=stored)
    produce(conversation, version, topic, encode_records(records(3), native_magic(version), CODECS[codec]))
    read_back(conversation, topic)


@case("Produce")
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_each_format(conversation: Conversation, version: int, magic: int) -> None:
    try_to_write(conversation, version, encode_records(records(3), magic))


@case("Produce", [2, 3, 11])
@pytest.mark.parametrize("magic", [3, 17, -1])
def test_unknown_format(conversation: Conversation, version: int, magic: int) -> None:
    try_to_write(conversation, version, batch(records(1), magic=magic))


@case("Produce", [0, 2, 3, 9, 11])
@pytest.mark.parametrize("value", [None, b"", b"v"])
@pytest.mark.parametrize("key", [None, b""])
def test_null_and_empty(conversation: Conversation, version: int, key: bytes | None, value: bytes | None) -> None:
    try_to_write(conversation, version, encode_records([Record(value, key)], native_magic(version)))


@case("Produce", SINCE_V3)
@pytest.mark.parametrize("codec", CODECS)
def test_headers(conversation: Conversation, version: int, codec: str) -> None:
    content = [Record(b"v", None, T0_MS, [("a", b"1"), ("a", None), ("", b"")]), Record(b"w")]
    try_to_write(conversation, version, batch(content, CODECS[codec]))


@case("Produce")
def test_acks_1(conversation: Conversation, version: int) -> None:
    try_to_write(conversation, version, encode_records(records(2), native_magic(version)), acks=1)


@case("Produce")
def test_acks_0_has_no_response(conversation: Conversation, version: int) -> None:
    """The next response belongs to the next request, which finds the records."""
    topic = shared(conversation)
    data = encode_records(records(2), native_magic(version))
    conversation.client.send("Produce", version, **produce_fields(version, {topic: {0: data}}, acks=0))
    conversation.call("Produce", version, **produce_fields(version, {topic: {0: data}}))
    read_back(conversation, topic)


@case("Produce")
@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_invalid_acks(conversation: Conversation, version: int, acks: int) -> None:
    try_to_write(conversation, version, encode_records(records(2), native_magic(version)), acks=acks)


@case("Produce", [0, 3, 11])
@pytest.mark.parametrize("index", [0, 7])
@pytest.mark.parametrize("name", ["no-such-topic", "", "__consumer_offsets", None])
def test_invalid_acks_of_other_topics(conversation: Conversation, version: int, name: str | None, index: int) -> None:
    """Whether the partition exists is asked first."""
    conversation.when_loaded("FindCoordinator", 0, key="group")
    conversation.answers.clear()
    data = encode_records(records(1), native_magic(version))
    asked: dict[str, dict[int, bytes | None]] = {shared(conversation) if name is None else name: {index: data}}
    if name == "__consumer_offsets" and index:  # Kafka's has other partitions
        return
    conversation.call("Produce", version, **produce_fields(version, asked, acks=2))


@case("Produce", [0, 2, 3, 8, 11])
def test_acks_0_to_unknown_topic_closes_the_connection(conversation: Conversation, version: int) -> None:
    """There is no response for the error, so the connection is closed."""
    missing = conversation.names.prefix + "no-such-topic"
    data = encode_records(records(1), native_magic(version))
    conversation.client.send("Produce", version, **produce_fields(version, {missing: {0: data}}, acks=0))
    conversation.outcome()


@case("Produce", [0, 3, 11])
def test_acks_0_with_bad_crc(conversation: Conversation, version: int) -> None:
    topic = shared(conversation)
    data = with_bad_crc(encode_records(records(1), native_magic(version)))
    conversation.client.send("Produce", version, **produce_fields(version, {topic: {0: data}}, acks=0))
    conversation.outcome()


@case("Produce")
def test_unknown_topic(conversation: Conversation, version: int) -> None:
    missing = conversation.names.prefix + "no-such-topic"
    produce(conversation, version, missing, encode_records(records(1), native_magic(version)))


@case("Produce")
@pytest.mark.parametrize("index", [2, -1, 2**31 - 1])
def test_unknown_partition(conversation: Conversation, version: int, index: int) -> None:
    data = encode_records(records(1), native_magic(version))
    fields = produce_fields(version, {shared(conversation): {index: data}})
    conversation.call("Produce", version, **fields)


@case("Produce", [0, 3, 9, 11])
@pytest.mark.parametrize("name", ["", ".", "a b", "x" * 250, "a/b"])
def test_illegal_topic_name(conversation: Conversation, version: int, name: str) -> None:
    produce(conversation, version, name, encode_records(records(1), native_magic(version)))


@case("Produce")
def test_good_and_bad_partitions_in_one_request(conversation: Conversation, version: int) -> None:
    topic = shared(conversation)
    data = encode_records(records(1), native_magic(version))
    conversation.topic("produce-side", partitions=1)
    other = conversation.names.prefix + "no-such-topic"
    fields = produce_fields(version, {topic: {0: data, 1: with_bad_crc(data), 7: data}, other: {0: data}})
    conversation.call("Produce", version, **fields)
    read_back(conversation, topic)


@case("Produce")
def test_nothing_to_write(conversation: Conversation, version: int) -> None:
    conversation.call("Produce", version, **produce_fields(version, {}))
    conversation.call("Produce", version, **produce_fields(version, {shared(conversation): {}}))


@case("Produce", [0, 3, 8, 11])
def test_partition_named_twice(conversation: Conversation, version: int) -> None:
    topic = shared(conversation)
    fields = produce_fields(version, {topic: {0: encode_records(records(2), native_magic(version))}})
    fields["topic_data"][0]["partition_data"] *= 2
    conversation.call("Produce", version, **fields)
    read_back(conversation, topic)


@case("Produce", [0, 3, 8, 11])
def test_topic_named_twice(conversation: Conversation, version: int) -> None:
    topic = shared(conversation)
    fields = produce_fields(version, {topic: {0: encode_records(records(2), native_magic(version))}})
    fields["topic_data"] *= 2
    conversation.call("Produce", version, **fields)
    read_back(conversation, topic)


@case("Produce")
def test_message_too_large(conversation: Conversation, version: int) -> None:
    topic = shared(conversation, "produce-small", max_message_bytes="2000")
    for size in (1500, 3000):
        produce(conversation, version, topic, encode_records([Record(b"x" * size)], native_magic(version)))
    read_back(conversation, topic)


@case("Produce", [1, 2, 3, 8, 11])
def test_compressed_batch_that_is_small_enough(conversation: Conversation, version: int) -> None:
    topic = shared(conversation, "produce-small", max_message_bytes="2000")
    produce(conversation, version, topic, encode_records([Record(b"x" * 9000)], native_magic(version), GZIP))
    read_back(conversation, topic)


@case("Produce", [2, 3, 11])
@pytest.mark.parametrize("size", [1000, 3000])
def test_large_batch_that_the_server_compresses(conversation: Conversation, version: int, size: int) -> None:
    """Its size as the producer sent it counts, too."""
    topic = shared(conversation, "produce-smaller", max_message_bytes="2000", compression_type="gzip")
    produce(conversation, version, topic, encode_records([Record(b"x" * size)], native_magic(version)))
    read_back(conversation, topic)


@case("Produce", [2, 3, 7])
@pytest.mark.parametrize("timestamp", [T0_MS, FAR_FUTURE_MS])
def test_bounds_of_timestamps_with_their_defaults(conversation: Conversation, version: int, timestamp: int) -> None:
    """The older setting counts then."""
    topic = shared(
        conversation, "produce-timely-3", message_timestamp_difference_max_ms="3600000",
        message_timestamp_before_max_ms=str(2**63 - 1), message_timestamp_after_max_ms=str(2**63 - 1),
    )  # fmt: skip
    produce(conversation, version, topic, encode_records([Record(b"v", None, timestamp)], native_magic(version)))
    conversation.say(conversation.end_offset(topic) - conversation.names.start_offset)


@case("Produce")
def test_timestamp_too_late(conversation: Conversation, version: int) -> None:
    topic = shared(conversation, "produce-timely", message_timestamp_after_max_ms="3600000")
    content = [Record(b"now", None, T0_MS), Record(b"later", None, FAR_FUTURE_MS)]
    produce(conversation, version, topic, encode_records(content, native_magic(version)))
    read_back(conversation, topic)


@case("Produce")
def test_timestamp_too_early(conversation: Conversation, version: int) -> None:
    topic = shared(conversation, "produce-timely-2", message_timestamp_before_max_ms="3600000")
    now_ms = int(time.time() * 1000)
    content = [Record(b"now", None, now_ms), Record(b"early", None, T0_MS)]
    produce(conversation, version, topic, encode_records(content, native_magic(version)))
    conversation.say(conversation.end_offset(topic) - conversation.names.start_offset)


@case("Produce", [2, 3, 8, 11])
def test_all_timestamps_too_early(conversation: Conversation, version: int) -> None:
    topic = shared(conversation, "produce-timely-2", message_timestamp_before_max_ms="3600000")
    produce(conversation, version, topic, encode_records(records(2), native_magic(version)))
    read_back(conversation, topic)


@case("Produce", [2, 3, 8, 11])
@pytest.mark.parametrize("timestamp", [-1, -2, 0, FAR_FUTURE_MS, 2**63 - 1])
def test_unusual_timestamp(conversation: Conversation, version: int, timestamp: int) -> None:
    data = encode_records([Record(b"v", None, timestamp)], native_magic(version))
    try_to_write(conversation, version, data)


@case("Produce", [2, 3, 8, 11])
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_log_append_time(conversation: Conversation, version: int, codec: str) -> None:
    topic = shared(conversation, "produce-append", message_timestamp_type="LogAppendTime")
    conversation.names.hide_timestamps = True
    produce(conversation, version, topic, encode_records(records(3), native_magic(version), CODECS[codec]))
    read_back(conversation, topic)


@case("Produce", [0, 1, 2, 3, 8, 11])
@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_compacted_topic_needs_keys(conversation: Conversation, version: int, codec: str) -> None:
    topic = shared(conversation, "produce-compact", cleanup_policy="compact")
    content = [Record(b"a", b"k"), Record(b"b", None), Record(b"c", None)]
    produce(conversation, version, topic, encode_records(content, native_magic(version), CODECS[codec]))
    read_back(conversation, topic)


@case("Produce", [7, 11])
@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_batch_of_a_thousand(conversation: Conversation, version: int, codec: str) -> None:
    try_to_write(conversation, version, batch(records(1000, size=100), CODECS[codec]))
