"""The handwritten encoder of members' records is equal to their declared formats."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.group.records import consumer_group as records
from coordinator.group.records.codec import encode_record

int32s = st.integers(-(2**31), 2**31 - 1)
texts = st.text(max_size=8) | st.just("long" * 50)
maybe = st.none() | texts
topics = st.lists(
    st.builds(records.TopicPartitions, st.binary(min_size=16, max_size=16), st.lists(int32s, max_size=3)), max_size=3
)
protocols = st.lists(st.builds(records.ClassicProtocol, texts, st.binary(max_size=8)), max_size=3)
classic = st.none() | st.builds(records.ClassicMemberMetadata, int32s, protocols)
members = st.builds(
    records.ConsumerGroupMemberMetadataValue,
    maybe, maybe, texts, texts, st.lists(texts, max_size=3), maybe, int32s, maybe, classic,
)  # fmt: skip
targets = st.builds(records.ConsumerGroupTargetAssignmentMemberValue, topics)
states = st.integers(-128, 127)
currents = st.builds(records.ConsumerGroupCurrentMemberAssignmentValue, int32s, int32s, states, topics, topics)
BY_CLASS = {record_type.key_class: record_type for record_type in records.CONSUMER_RECORDS}


@given(texts, texts, members, targets, currents)
def test_members(group: str, member_id: str, member: Any, target: Any, current: Any) -> None:
    for key_class, value in (
        (records.ConsumerGroupMemberMetadataKey, member),
        (records.ConsumerGroupTargetAssignmentMemberKey, target),
        (records.ConsumerGroupCurrentMemberAssignmentKey, current),
        (records.ConsumerGroupCurrentMemberAssignmentKey, None),
    ):
        key, declared = key_class(group, member_id), BY_CLASS[key_class]
        record = encode_record(key, value)
        assert record.key == declared.key_version.to_bytes(2, "big") + declared.key.build(key)
        assert record.value == (None if value is None else b"\0\0" + declared.values[0].build(value))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (records.ConsumerGroupTargetAssignmentMemberKey("g", "m" * 32_768), None),
        (
            records.ConsumerGroupTargetAssignmentMemberKey("g", "m"),
            records.ConsumerGroupTargetAssignmentMemberValue([records.TopicPartitions(b"t" * 16, [2**31])]),
        ),
    ],
)
def test_fields_that_do_not_fit(key: Any, value: Any) -> None:
    with pytest.raises(ValueError):
        encode_record(key, value)
