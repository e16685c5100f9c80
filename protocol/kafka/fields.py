"""Reads fields of untrusted bytes: never beyond the end, and never without a limit."""

from __future__ import annotations

MAX_TAGGED_FIELDS = 1_000
MAX_STRING_BYTES = 0x7FFF
"""The limit of a string in a request, as in Kafka: a varint before it could say more than the int16 of old versions."""


def take(data: memoryview, position: int, length: int) -> memoryview:
    """A view of the next bytes. Raises IndexError if they are not all there."""
    end = position + length
    if length < 0 or end > len(data):
        raise IndexError("a field is longer than its message")
    return data[position:end]


def read_varint(data: memoryview, position: int) -> tuple[int, int]:
    """(an unsigned varint of at most five bytes, the position after it). Raises IndexError or ValueError."""
    value = 0
    for shift in range(0, 35, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("a varint is longer than five bytes")


def read_tag_count(data: memoryview, position: int) -> tuple[int, int]:
    """(the number of tagged fields that follow, the position after it). Raises IndexError or ValueError."""
    count, position = read_varint(data, position)
    if count > MAX_TAGGED_FIELDS:
        raise ValueError(f"{count} tagged fields")
    return count, position


def skip_tagged_fields(data: memoryview, position: int) -> int:
    """The position after a struct's tagged fields (KIP-482). Raises IndexError or ValueError."""
    if data[position] == 0:
        return position + 1
    count, position = read_tag_count(data, position)
    for _ in range(count):
        _tag, position = read_varint(data, position)
        size, position = read_varint(data, position)
        take(data, position, size)
        position += size
    return position
