"""How long a fetch may wait."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.fetching.delayed_fetch import MAX_WAIT_MS
from gateway.handlers.records.fetch_bounds import LARGE_PARTITIONS, LARGE_WAIT_MS, max_wait_ms
from gateway.requests.call import LARGE_FRAME_BYTES


@pytest.mark.parametrize(
    ("asked_ms", "frame_bytes", "partitions", "expected_ms"),
    [(500, 100, 1, 500), (2**31 - 1, LARGE_FRAME_BYTES, 1, MAX_WAIT_MS), (-1, 100, 1, 0),
     (500, LARGE_FRAME_BYTES + 1, 1, 500), (2**31 - 1, LARGE_FRAME_BYTES + 1, 1, LARGE_WAIT_MS),
     (2**31 - 1, None, 1, MAX_WAIT_MS), (2**31 - 1, 100, LARGE_PARTITIONS, MAX_WAIT_MS),
     (2**31 - 1, 100, LARGE_PARTITIONS + 1, LARGE_WAIT_MS), (500, None, LARGE_PARTITIONS + 1, 500)],
)  # fmt: skip
def test_a_large_fetch_holds_its_memory_for_a_short_time(
    asked_ms: int, frame_bytes: int | None, partitions: int, expected_ms: int
) -> None:
    """In a session, a small request fetches any number of partitions."""
    frame = None if frame_bytes is None else bytearray(frame_bytes)
    call: Any = SimpleNamespace(
        frame=frame, request=SimpleNamespace(max_wait_ms=asked_ms), client=SimpleNamespace(has_ended=False)
    )
    assert max_wait_ms(call, partitions) == expected_ms
