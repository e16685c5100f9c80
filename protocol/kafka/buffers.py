"""What a frame is made of when its records are sent from where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Buffer = bytes | bytearray | memoryview


class RecordChunks(NamedTuple):
    """Record batches that lie in several buffers; they are sent one after the other and never copied together."""

    chunks: Sequence[Buffer]
    size_bytes: int
