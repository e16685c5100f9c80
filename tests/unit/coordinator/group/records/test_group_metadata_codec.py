"""The handwritten format of a classic group is equal to the declared one."""

import contextlib
from dataclasses import replace
from typing import Any

import pytest
from construct import ConstructError
from hypothesis import given
from hypothesis import strategies as st

from coordinator.group.records.codec import decode_record, encode_record
from coordinator.group.records.group_metadata import (
    GROUP_METADATA,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from coordinator.state_machine import MalformedRecordError

int32s = st.integers(-(2**31), 2**31 - 1)
texts = st.text(max_size=8)
maybe = st.none() | texts
data = st.binary(max_size=8)
members = st.lists(st.builds(MemberMetadata, texts, texts, texts, int32s, data, data, int32s, maybe), max_size=3)
values = st.builds(GroupMetadataValue, texts, int32s, maybe, maybe, st.integers(-(2**63), 2**63 - 1), members)
DECLARED = GROUP_METADATA.values[GROUP_METADATA.write_version]


@given(texts, values)
def test_groups(group: str, value: GroupMetadataValue) -> None:
    key, value_bytes = encode_record(GroupMetadataKey(group), value)
    assert key == GROUP_METADATA.key_version.to_bytes(2, "big") + GROUP_METADATA.key.build(GroupMetadataKey(group))
    assert value_bytes == GROUP_METADATA.write_version.to_bytes(2, "big") + DECLARED.build(value)
    assert decode_record(key, value_bytes) == (GroupMetadataKey(group), value)
    assert encode_record(GroupMetadataKey(group), None) == (key, None)


@given(values, st.data())
def test_broken_bytes_are_read_alike_or_refused_alike(value: GroupMetadataValue, draw: st.DataObject) -> None:
    key, value_bytes = encode_record(GroupMetadataKey("g"), value)
    assert value_bytes is not None
    broken = bytearray(value_bytes[: draw.draw(st.integers(2, len(value_bytes)))])
    if len(broken) > 2:
        broken[draw.draw(st.integers(2, len(broken) - 1))] = draw.draw(st.integers(0, 255))
    expected: Any = None
    found: Any = None
    with contextlib.suppress(ConstructError, UnicodeDecodeError):
        parsed = DECLARED.parse(bytes(broken[2:]))
        expected = GroupMetadataKey("g"), replace(parsed, members=list(parsed.members))
    with contextlib.suppress(MalformedRecordError):
        found = decode_record(key, bytes(broken))
    assert found == expected


def test_fields_that_do_not_fit() -> None:
    with pytest.raises(ValueError):
        encode_record(GroupMetadataKey("g"), GroupMetadataValue("p" * 32_768, 1, None, None))
    with pytest.raises(ValueError):
        encode_record(GroupMetadataKey("g"), GroupMetadataValue("p", 2**31, None, None))
