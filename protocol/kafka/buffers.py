"""The buffers of a frame, so that records are sent without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

Buffer = bytes | bytearray | memoryview
Item = TypeVar("Item")


class RecordChunks(NamedTuple):
    """Record batches in several buffers, which are sent one after the other and never copied together."""

    chunks: Sequence[Buffer]
    size_bytes: int


class SharedItems(list[Item]):
    """The items of an array that many structs or messages have: structs or strings. They are encoded once for each
    version, and must not change."""

    __slots__ = ("encoded",)

    def __init__(self, items: Sequence[Item]) -> None:
        super().__init__(items)
        self.encoded: dict[int, bytes] = {}
        """The items, without the array's length, by version."""
