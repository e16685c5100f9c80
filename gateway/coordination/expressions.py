"""Clients' regular expressions (RE2) are matched in a thread: one of 32 KB takes a millisecond for each name.

All expressions share one thread, and take turns in it: the other threads stay free for other work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from coordinator.topic_regex import matching

AT_ONCE = 500
"""Names after which another expression has its turn."""
_thread = ThreadPoolExecutor(1, "expressions")


async def matching_names(regex: str, names: Iterable[str]) -> frozenset[str]:
    """The names that the expression matches as a whole. Raises InvalidRegexError."""
    loop, left, found = asyncio.get_running_loop(), tuple(names), set[str]()
    for start in range(0, max(1, len(left)), AT_ONCE):
        found |= await loop.run_in_executor(_thread, matching, regex, left[start : start + AT_ONCE])
    return frozenset(found)
