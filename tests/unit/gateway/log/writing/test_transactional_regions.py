"""Transactional producers that move between clusters, while these replicate to each other and parts of them fail.

Every batch is once in the log of each cluster, and committed reads get those of committed transactions, in both.
"""

from __future__ import annotations

import asyncio

from hypothesis import example, given, settings

from tests.unit.gateway.log.writing.played import play
from tests.unit.gateway.log.writing.test_regions import actions, no_pauses
from tests.unit.gateway.log.writing.transactional_region_world import TransactionalRegions

__all__ = ["no_pauses"]


FOLLOWED_BY_NATIVE = [("send", 1), ("receive", 1), ("write_native", 1), ("copy", 3)]
FOLLOWED_BY_A_MARKER = [("send", 1), ("close", 1), ("copy", 1), ("write_snapshot", 0)]
"""The last entry names no checkpoint when the log is opened."""


@settings(max_examples=60, deadline=None)
@given(script=actions)
@example(script=FOLLOWED_BY_NATIVE)
@example(script=FOLLOWED_BY_A_MARKER)
def test_committed_reads_are_the_same_in_both(script: list[tuple[str, int]]) -> None:
    asyncio.run(play(TransactionalRegions, script))
