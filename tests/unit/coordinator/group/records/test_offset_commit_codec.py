"""The two handwritten formats are equal to the declared ones."""

import contextlib
from dataclasses import replace

import pytest
from construct import ConstructError
from hypothesis import given
from hypothesis import strategies as st

from coordinator.group.records.offset_commit import OFFSET_COMMIT, OffsetCommitKey, OffsetCommitValue
from coordinator.group.records.offset_commit_codec import decode_key, decode_value, encode_key, encode_value

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=40)
keys = st.builds(OffsetCommitKey, texts, texts, int32s)
values = st.builds(OffsetCommitValue, int64s, texts, int64s, int32s)
DECLARED_VALUE = OFFSET_COMMIT.values[OFFSET_COMMIT.write_version]


@given(keys)
def test_keys(key: OffsetCommitKey) -> None:
    data = encode_key(key)
    assert data == OFFSET_COMMIT.key_version.to_bytes(2, "big") + OFFSET_COMMIT.key.build(key)
    assert decode_key(data) == key


@given(values)
def test_values(value: OffsetCommitValue) -> None:
    data = encode_value(value)
    assert data == OFFSET_COMMIT.write_version.to_bytes(2, "big") + DECLARED_VALUE.build(value)
    assert decode_value(data) == value


@given(keys, values, st.data())
def test_broken_bytes_are_read_alike_or_refused_alike(
    key: OffsetCommitKey, value: OffsetCommitValue, data: st.DataObject
) -> None:
    for encoded, decode, declared in (
        (encode_key(key), decode_key, OFFSET_COMMIT.key),
        (encode_value(value), decode_value, DECLARED_VALUE),
    ):
        broken = bytearray(encoded[: data.draw(st.integers(2, len(encoded)))])
        if len(broken) > 2:
            broken[data.draw(st.integers(2, len(broken) - 1))] = data.draw(st.integers(0, 255))
        expected = found = None
        with contextlib.suppress(ConstructError, UnicodeDecodeError):
            expected = declared.parse(bytes(broken[2:]))
        with contextlib.suppress(ValueError):
            found = decode(bytes(broken))
        assert found == expected


@pytest.mark.parametrize("key", [OffsetCommitKey("g" * 32_768, "t", 0), OffsetCommitKey("g", "t", 2**31)])
def test_keys_that_do_not_fit(key: OffsetCommitKey) -> None:
    with pytest.raises(ValueError):
        encode_key(key)


@pytest.mark.parametrize("value", [OffsetCommitValue(0, "ü" * 16_384, 0), OffsetCommitValue(2**63, "", 0)])
def test_values_that_do_not_fit(value: OffsetCommitValue) -> None:
    with pytest.raises(ValueError):
        encode_value(value)


@given(values, st.binary(min_size=16, max_size=16))
def test_values_with_the_topics_id(value: OffsetCommitValue, topic_id: bytes) -> None:
    value = replace(value, topic_id=topic_id)
    data = encode_value(value)
    assert data == b"\x00\x04" + OFFSET_COMMIT.values[4].build(value)
    assert decode_value(data) == value == OFFSET_COMMIT.values[4].parse(data[2:])


@given(values, st.binary(min_size=16, max_size=16), st.data())
def test_broken_values_with_an_id_are_read_as_declared_or_not_here(
    value: OffsetCommitValue, topic_id: bytes, data: st.DataObject
) -> None:
    broken = bytearray(encode_value(replace(value, topic_id=topic_id)))
    broken = broken[: data.draw(st.integers(2, len(broken)))]
    if len(broken) > 2:
        broken[data.draw(st.integers(2, len(broken) - 1))] = data.draw(st.integers(0, 255))
    expected = found = None
    with contextlib.suppress(ConstructError, UnicodeDecodeError):
        expected = OFFSET_COMMIT.values[4].parse(bytes(broken[2:]))
    with contextlib.suppress(ValueError):
        found = decode_value(bytes(broken))
    assert found in (None, expected)


def test_a_value_with_its_topics_id_is_as_kafka_writes_it() -> None:
    """The bytes that Apache Kafka 4.2.0's own class (OffsetCommitValue, version 4) writes for the same fields."""
    kafkas = bytes.fromhex("0004000000000000000700000003026d000000000000000901001000000000000000010000000000000002")
    topic_id = (1).to_bytes(8, "big") + (2).to_bytes(8, "big")
    assert encode_value(OffsetCommitValue(7, "m", 9, 3, topic_id=topic_id)) == kafkas
