"""The buffers of a frame, so that records are sent without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Buffer = bytes | bytearray | memoryview


class RecordChunks(NamedTuple):
    """Record batches in several buffers, which are sent one after the other and never copied together."""

    chunks: Sequence[Buffer]
    size_bytes: int
