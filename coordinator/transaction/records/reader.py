"""Reads the fields of a record one after the other, in one of Kafka's two encodings (KIP-482).

All functions raise ValueError, IndexError or struct.error where the bytes end early or are invalid.
"""

from struct import Struct
from typing import Any

_INT16, _INT32 = Struct(">h"), Struct(">i")
_VARINT_MAX_BYTES = 5


def compact_length(length: int) -> bytes:
    """The length of a compact string or array: an unsigned varint of length + 1."""
    rest = length + 1
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


class Reader:
    """The older encoding: lengths are big-endian and signed, -1 for null; there are no tagged fields."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def unpack(self, form: Struct) -> tuple[Any, ...]:
        values = form.unpack_from(self._data, self._at)
        self._at += form.size
        return values

    def string(self) -> str:
        return self._bytes(self._string_length()).decode()

    def count(self) -> int:
        """The number of elements of an array; 0 also for null."""
        return max(0, self._array_length())

    def tagged_fields(self) -> dict[int, bytes]:
        return {}

    def _string_length(self) -> int:
        length: int = self.unpack(_INT16)[0]
        return length

    def _array_length(self) -> int:
        length: int = self.unpack(_INT32)[0]
        return length

    def _bytes(self, length: int) -> bytes:
        begin, self._at = self._at, self._at + length
        if length < 0 or self._at > len(self._data):
            raise ValueError(f"{length} bytes at {begin} of {len(self._data)}")
        return self._data[begin : self._at]


class CompactReader(Reader):
    """The flexible encoding: lengths are unsigned varints of length + 1; each struct ends with tagged fields."""

    def tagged_fields(self) -> dict[int, bytes]:
        """The bytes of the tagged fields, by tag."""
        fields = {}
        for _ in range(self._varint()):
            tag = self._varint()
            fields[tag] = self._bytes(self._varint())
        return fields

    def _string_length(self) -> int:
        return self._varint() - 1

    def _array_length(self) -> int:
        return self._varint() - 1

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 7 * _VARINT_MAX_BYTES, 7):
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError(f"a varint of more than {_VARINT_MAX_BYTES} bytes")
