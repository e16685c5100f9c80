"""Lengths in front of strings and arrays."""

from __future__ import annotations

import struct

_INT = struct.Struct(">i")
_ONE_BYTE = [bytes([length + 1]) for length in range(0x7F)]


def array_length(count: int, *, flexible: bool) -> bytes:
    """The length as an int32; in flexible versions (KIP-482) length + 1, as an unsigned varint."""
    return compact_length(count) if flexible else _INT.pack(count)


def encoded_string(text: str, *, flexible: bool) -> bytes:
    """UTF-8 after its length in bytes, which is an int16; in flexible versions length + 1, as an unsigned varint."""
    data = text.encode()
    return (compact_length(len(data)) if flexible else len(data).to_bytes(2, "big")) + data


def compact_length(length: int) -> bytes:
    """length + 1, as an unsigned varint."""
    return _ONE_BYTE[length] if length < len(_ONE_BYTE) else varint(length + 1)


def varint(value: int) -> bytes:
    """`value` as an unsigned varint."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
