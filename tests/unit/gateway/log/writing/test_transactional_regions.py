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


IN_ANOTHER_LEDGER = [
    ("send", 1), ("fail", 0), ("close", 1), ("move", 0), ("unload", 0), ("write_native", 0),
]  # fmt: skip
OPENED_AGAIN = [
    ("move", 4), ("send", 4), ("lose_writer", 4), ("confirm", 0), ("close", 0), ("send", 5), ("receive", 2),
    ("write", 2), ("move", 2),
]  # fmt: skip
"""The last entry of the copies was written before its log knew its transactions again."""
KILLED_BEFORE_IT_READ_THE_COPIES = [
    ("send", 5), ("receive", 0), ("write", 0), ("confirm", 0), ("send", 1), ("receive", 1), ("receive", 1),
    ("write", 3), ("confirm", 3), ("silence_reader", 0), ("copy", 3), ("send", 5), ("receive", 0), ("write", 0),
    ("kill", 0),
]  # fmt: skip
"""The last entry is of a gateway that had not read the copied transaction before it."""


@settings(max_examples=60, deadline=None)
@given(script=actions)
@example(script=FOLLOWED_BY_NATIVE)
@example(script=FOLLOWED_BY_A_MARKER)
@example(script=IN_ANOTHER_LEDGER)
@example(script=OPENED_AGAIN)
@example(script=KILLED_BEFORE_IT_READ_THE_COPIES)
def test_committed_reads_are_the_same_in_both(script: list[tuple[str, int]]) -> None:
    asyncio.run(play(TransactionalRegions, script))
