"""Idempotent producers that move between clusters, while these replicate to each other and parts of them fail.

Every batch is in the log of each cluster, in order, and at the offset that was acknowledged there. It is there once if
its client never moved before it had heard of all its batches.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.config.limits import Limits
from gateway.log.bounds import drained
from gateway.log.entries import entry_stream
from gateway.log.reading import end_refresh, receipt_lookup, tail_follower
from gateway.log.writing import known_producers, producer_supply
from tests.unit.gateway.log.writing import idempotent_broker
from tests.unit.gateway.log.writing.played import play
from tests.unit.gateway.log.writing.region_world import Regions


@pytest.fixture(autouse=True)
def no_pauses() -> Iterator[None]:
    limits = Limits().model_copy(update={"refresh_timeout_ms": 10})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(idempotent_broker, "Limits", lambda **_: limits)
        patch.setattr(producer_supply, "LATE_ARRIVAL_S", 0)
        patch.setattr(producer_supply, "RETRY_S", 0)
        patch.setattr(producer_supply, "AGAIN_S", 0)
        patch.setattr(known_producers, "LATE_ARRIVAL_S", math.inf)
        patch.setattr(drained, "DRAIN_PAUSE_S", 0)
        patch.setattr(tail_follower, "RETRY_MS", 0)
        patch.setattr(receipt_lookup, "LOOK_UP_AFTER_S", 0)
        patch.setattr(end_refresh, "SILENT_S", 0.002)
        patch.setattr(entry_stream, "SILENT_S", 0.002)
        yield


STEPS = ["send", "receive", "write", "confirm", "copy"]
DISTURBANCES = [
    "write_native", "write_snapshot", "lose_writer", "silence_reader", "unload", "fail", "close", "reconnect", "move",
    "move", "kill",
]  # fmt: skip
actions = st.lists(st.tuples(st.sampled_from(STEPS * 4 + DISTURBANCES), st.integers(0, 5)), max_size=80)

PASSED_OVER = [
    ("send", 2), ("lose_writer", 2), ("send", 2), ("copy", 2), ("receive", 0), ("send", 4), ("silence_reader", 5),
    ("send", 3), ("move", 5),
]  # fmt: skip
"""The reader gets no copy, and the log's end passes over some: an entry behind them was looked up for its receipt."""


@settings(max_examples=120, deadline=None)
@given(script=actions)
@example(script=PASSED_OVER)
def test_batches_are_in_both_logs_in_order(script: list[tuple[str, int]]) -> None:
    asyncio.run(play(Regions, script))
