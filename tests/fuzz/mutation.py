"""Damaged inputs from valid ones: bytes and lengths changed, cut off, doubled, mixed with another input."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from random import Random

MAX_INPUT_BYTES = 64 * 1024

_LENGTHS = (0, 1, -1, 2, 5, 61, 127, 128, 255, 256, 0x7FFF, -0x8000, 0xFFFF, 0x7FFFFFFF, -0x80000000, 0xFFFFFFFF)
TELLING: tuple[bytes, ...] = (
    *(struct.pack(">q", value)[-width:] for value in _LENGTHS for width in (1, 2, 4)),
    *(struct.pack(">q", value) for value in (0, -1, 2**63 - 1, -(2**63), 2**45)),
    b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\xff" * 12, b"\x80" * 6, b"\x80\x00",
    b"\xc3\x28", b"\xed\xa0\x80", b"\x00" * 16,
)  # fmt: skip
"""Counts, lengths and varints at the edges of their types; text that is not UTF-8."""


class Mutator:
    def __init__(self, random: Random) -> None:
        self._random = random.random
        self._bits = random.getrandbits

    def mutate(self, source: bytes, others: Sequence[bytes]) -> bytearray:
        """One to six changes of `source`."""
        data = bytearray(source)
        rounds = 1 + self._bits(1) + (self._bits(2) if self._bits(1) else 0)
        for _ in range(rounds):
            self._change(data, others)
        return data[:MAX_INPUT_BYTES]

    def _change(self, data: bytearray, others: Sequence[bytes]) -> None:
        at = int(self._random() * len(data))
        kind = self._bits(4)
        if not data or kind == 0:
            data[at:at] = TELLING[int(self._random() * len(TELLING))]
        elif kind < 4:
            data[at] ^= 1 << self._bits(3)
        elif kind < 6:
            data[at] = self._bits(8)
        elif kind < 11:
            telling = TELLING[int(self._random() * len(TELLING))]
            data[at : at + len(telling)] = telling
        elif kind == 11:
            del data[at : at + 1 + self._bits(4)]
        elif kind == 12:
            del data[at:]
        elif kind == 13:
            data[at:at] = data[at : at + 1 + self._bits(6)] * (1 + self._bits(2))
        elif kind == 14:
            data[at] = (data[at] + self._bits(3) - 4) & 0xFF
        else:
            other = others[int(self._random() * len(others))]
            begin = int(self._random() * len(other))
            data[at : at + self._bits(5)] = other[begin : begin + self._bits(6)]
