"""What the conversion for old consumers remembers of batches without records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.fetching.down_conversion import skip_empty_batches
from gateway.log.record_free import RecordFree


@pytest.mark.parametrize(("log_start", "expected"), [(0, 9), (5, 9), (6, 5)])
async def test_an_offset_of_deleted_records_is_not_passed_over(log_start: int, expected: int) -> None:
    """From 5 to 8 are transaction markers."""
    log = SimpleNamespace(record_free=RecordFree(), start=SimpleNamespace(offset=log_start))
    log.record_free.learn(5, 9)
    part = SimpleNamespace(key=("topic", 0), topic="topic", partition=0, offset=5)
    await skip_empty_batches(cast(Any, SimpleNamespace(find=lambda *_: log)), [cast(Any, part)], {("topic", 0): 5})
    assert part.offset == expected
