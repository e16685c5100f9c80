"""Record formats against bytes that Apache Kafka 3.9.2's own classes wrote (kafka_3_9_2_group_records.json)."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.group.records import consumer_group as c
from coordinator.group.records.codec import decode_record, encode_record
from coordinator.group.records.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from coordinator.group.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from coordinator.group.subscription import subscribed_topics
from coordinator.log import Record
from coordinator.state_machine import MalformedRecordError

KAFKA: dict[str, str] = json.loads(Path(__file__).with_name("kafka_3_9_2_group_records.json").read_text())
TOPIC_ID = bytes(range(1, 17))


def kafkas(name: str) -> bytes:
    return bytes.fromhex(KAFKA[name])


def offset_value(version: int) -> OffsetCommitValue:
    expire_ms = 1_700_000_099_999 if version == 1 else -1
    return OffsetCommitValue(1_234_567_890_123, "méta", 1_700_000_000_000, 5 if version >= 3 else -1, expire_ms)


def group_value(version: int, *, empty: bool = False) -> GroupMetadataValue:
    timestamp_ms = 1_700_000_000_000 if version >= 2 else -1
    if empty:
        return GroupMetadataValue("consumer", 4, None, None, timestamp_ms, [])
    rebalance_ms = 60_000 if version >= 1 else -1
    instance_id = "i1" if version >= 3 else None
    members = [
        MemberMetadata("m1", "c", "/127.0.0.1", 10_000, b"\x01\x02", b"\x03", rebalance_ms, instance_id),
        MemberMetadata("m2", "", "/127.0.0.1", 10_000, b"", b"", rebalance_ms, None),
    ]
    return GroupMetadataValue("consumer", 3, "range", "m1", timestamp_ms, members)


CURRENT = [
    (
        kafkas("OffsetCommitKey v1"),
        kafkas("OffsetCommitValue v3"),
        OffsetCommitKey("grüppe", "topic", 7),
        offset_value(3),
    ),
    (
        kafkas("OffsetCommitKey v1"),
        kafkas("OffsetCommitValue v1"),
        OffsetCommitKey("grüppe", "topic", 7),
        offset_value(1),
    ),
    (kafkas("GroupMetadataKey v2"), kafkas("GroupMetadataValue v3"), GroupMetadataKey("grüppe"), group_value(3)),
    (
        kafkas("GroupMetadataKey v2"),
        kafkas("GroupMetadataValue empty v3"),
        GroupMetadataKey("grüppe"),
        group_value(3, empty=True),
    ),
    (
        kafkas("ConsumerGroupMetadataKey v3"),
        kafkas("ConsumerGroupMetadataValue v0"),
        c.ConsumerGroupMetadataKey("g"),
        c.ConsumerGroupMetadataValue(9, []),
    ),
    (
        kafkas("ConsumerGroupPartitionMetadataKey v4"),
        kafkas("ConsumerGroupPartitionMetadataValue v0"),
        c.ConsumerGroupPartitionMetadataKey("g"),
        c.ConsumerGroupPartitionMetadataValue(
            [c.TopicMetadata(TOPIC_ID, "t", 3, [c.PartitionMetadata(0, ["r1", "r2"], [])], [])], []
        ),
    ),
    (
        kafkas("ConsumerGroupMemberMetadataKey v5"),
        kafkas("ConsumerGroupMemberMetadataValue v0"),
        c.ConsumerGroupMemberMetadataKey("g", "m"),
        c.ConsumerGroupMemberMetadataValue("i", None, "c", "/127.0.0.1", ["t", "u"], "", 300_000, "uniform"),
    ),
    (
        kafkas("ConsumerGroupTargetAssignmentMetadataKey v6"),
        kafkas("ConsumerGroupTargetAssignmentMetadataValue v0"),
        c.ConsumerGroupTargetAssignmentMetadataKey("g"),
        c.ConsumerGroupTargetAssignmentMetadataValue(9, []),
    ),
    (
        kafkas("ConsumerGroupTargetAssignmentMemberKey v7"),
        kafkas("ConsumerGroupTargetAssignmentMemberValue v0"),
        c.ConsumerGroupTargetAssignmentMemberKey("g", "m"),
        c.ConsumerGroupTargetAssignmentMemberValue([c.TopicPartitions(TOPIC_ID, [0, 2], [])], []),
    ),
    (
        kafkas("ConsumerGroupCurrentMemberAssignmentKey v8"),
        kafkas("ConsumerGroupCurrentMemberAssignmentValue v0"),
        c.ConsumerGroupCurrentMemberAssignmentKey("g", "m"),
        c.ConsumerGroupCurrentMemberAssignmentValue(
            9, 8, 1, [c.TopicPartitions(TOPIC_ID, [0], [])], [c.TopicPartitions(TOPIC_ID, [2], [])], []
        ),
    ),
]


@pytest.mark.parametrize(("key_bytes", "value_bytes", "key", "value"), CURRENT)
def test_kafkas_bytes_both_ways(key_bytes: bytes, value_bytes: bytes, key: Any, value: Any) -> None:
    assert decode_record(key_bytes, value_bytes) == (key, value)
    assert encode_record(key, value) == Record(key_bytes, value_bytes)
    assert encode_record(key, None) == Record(key_bytes, None)
    assert decode_record(key_bytes, None) == (key, None)


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_value_is_read(version: int) -> None:
    decoded = decode_record(kafkas(f"OffsetCommitKey v{version % 2}"), kafkas(f"OffsetCommitValue v{version}"))
    assert decoded is not None
    assert decoded[0] == OffsetCommitKey("grüppe", "topic", 7)
    assert decoded[1] == offset_value(version)
    for empty in (False, True):
        name = f"GroupMetadataValue {'empty ' if empty else ''}v{version}"
        decoded = decode_record(kafkas("GroupMetadataKey v2"), kafkas(name))
        assert decoded is not None
        value: Any = decoded[1]
        members = [MemberMetadata(**{**vars(m), "tagged_fields": ()}) for m in value.members]
        assert {**vars(value), "members": members, "tagged_fields": ()} == vars(group_value(version, empty=empty))


def test_kinds_of_records_from_the_future_are_not_known() -> None:
    assert decode_record(b"\x00\x09abc", b"\x00\x00") is None


def test_strings_that_fit_no_record_are_refused() -> None:
    with pytest.raises(ValueError, match="OffsetCommitKey"):
        encode_record(OffsetCommitKey("g" * 32_768, "t", 0), None)


@given(st.sampled_from(sorted(KAFKA)), st.data())
def test_broken_bytes_raise_malformed_record_only(name: str, data: st.DataObject) -> None:
    """Mutated, cut and arbitrary keys and values."""
    original = kafkas(name)
    at = data.draw(st.integers(0, len(original) - 1))
    broken = data.draw(
        st.sampled_from([original[:at], original[:at] + b"\xff" + original[at + 1 :], original[:at] + b"\x80" * 40])
        | st.binary(max_size=60)
    )
    for key, value in [(broken, None), (broken, broken), *((key, broken) for key, *_ in CURRENT)]:
        with contextlib.suppress(MalformedRecordError):
            decode_record(key, value)


@given(st.binary(max_size=80))
def test_any_subscription_bytes_are_read_or_passed_over(metadata: bytes) -> None:
    topics = subscribed_topics([metadata])
    assert topics is None or all(topic.encode() in metadata for topic in topics)


def test_subscriptions_of_newer_versions_start_the_same() -> None:
    version_3 = bytes.fromhex("0003 00000001 0001 74 ffffffff 00000000 00000001 0004 7261636b")
    assert subscribed_topics([version_3]) == frozenset({"t"})
