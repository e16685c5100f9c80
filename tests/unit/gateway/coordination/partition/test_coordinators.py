"""The partition of a key: Kafka's choice, which is remembered for keys of normal length."""

import pytest

from gateway.coordination.partition import coordinators
from gateway.coordination.partition.coordinators import partition_of


@pytest.mark.parametrize(
    ("key", "hash_code"),
    [("", 0), ("a", 97), ("group", 98_629_247), ("\U0001d11e", 1_772_394), ("polygenelubricants", -(2**31))],
)
def test_javas_hash_code_decides(key: str, hash_code: int) -> None:
    """`String.hashCode` in Java; abs() of the smallest integer is 0 in Kafka."""
    assert partition_of(key, 50) == (0 if hash_code == -(2**31) else abs(hash_code) % 50)


def test_long_keys_are_not_remembered() -> None:
    """Any client may name keys of 32 KB: those remembered would fill the memory."""
    before = coordinators._remembered.cache_info().currsize
    for number in range(10):
        assert partition_of(f"{number}" * 32_767, 50) == partition_of(f"{number}" * 32_767, 50)
    assert coordinators._remembered.cache_info().currsize == before
    partition_of("a short key that no other test has", 50)
    assert coordinators._remembered.cache_info().currsize == before + 1
