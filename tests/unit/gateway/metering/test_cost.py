"""The cost of authorization and quotas for each batch, in calls, which are the same on every machine.

`make security` measures the processor time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tests.bench.security.rights import produce_path

MAX_ADDED_CALLS = 30


def test_rights_and_quotas_add_few_calls() -> None:
    added = _calls(produce_path(guarded=True)) - _calls(produce_path(guarded=False))
    assert 0 < added <= MAX_ADDED_CALLS


def _calls(run: Callable[[], None]) -> int:
    """Python and C calls, when all cached values have been computed."""
    for _ in range(3):
        run()
    count = 0

    def profile(_frame: object, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count
