"""How long a fetch may wait."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.fetching.delayed_fetch import MAX_WAIT_MS
from gateway.handlers.records.fetch_bounds import LARGE_WAIT_MS, max_wait_ms
from gateway.requests.call import LARGE_FRAME_BYTES


@pytest.mark.parametrize(
    ("asked_ms", "frame_bytes", "expected_ms"),
    [(500, 100, 500), (2**31 - 1, LARGE_FRAME_BYTES, MAX_WAIT_MS), (-1, 100, 0), (500, LARGE_FRAME_BYTES + 1, 500),
     (2**31 - 1, LARGE_FRAME_BYTES + 1, LARGE_WAIT_MS), (2**31 - 1, None, MAX_WAIT_MS)],
)  # fmt: skip
def test_a_large_fetch_holds_its_memory_for_a_short_time(
    asked_ms: int, frame_bytes: int | None, expected_ms: int
) -> None:
    frame = None if frame_bytes is None else bytearray(frame_bytes)
    call: Any = SimpleNamespace(frame=frame, request=SimpleNamespace(max_wait_ms=asked_ms))
    assert max_wait_ms(call) == expected_ms
