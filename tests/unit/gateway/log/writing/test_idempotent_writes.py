"""Idempotent producers while writers, readers, connections and gateways fail.

The model client has five batches in flight, retries failed ones in order, and takes the acknowledgement of a batch as
that of all before it, as librdkafka does. Every batch that it considers acknowledged is in the log, once and in order,
at the acknowledged offset.
"""
from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.log.bounds import drained
from gateway.log.reading import tail_follower
from gateway.log.writing import known_producers, producer_supply
from tests.unit.gateway.log.writing.idempotent_world import World
from tests.unit.gateway.log.writing.played import play


@pytest.fixture(autouse=True)
def no_pauses() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer_supply, "LATE_ARRIVAL_S", 0)
        patch.setattr(producer_supply, "RETRY_S", 0)
        patch.setattr(producer_supply, "AGAIN_S", 0)
        patch.setattr(known_producers, "LATE_ARRIVAL_S", math.inf)
        patch.setattr(drained, "DRAIN_PAUSE_S", 0)
        patch.setattr(tail_follower, "RETRY_MS", 0)
        yield


STEPS = ["send", "receive", "write", "confirm"]
DISTURBANCES = [
    "write_native", "lose_writer", "lose_reader", "unload", "fail", "reconnect", "move", "lead", "kill",
]  # fmt: skip
actions = st.lists(st.tuples(st.sampled_from(STEPS * 4 + DISTURBANCES), st.integers(0, 5)), max_size=60)


LEAD_AND_COME_BACK = [
    ("send", 0), ("receive", 2), ("write", 5), ("confirm", 5), ("lead", 3), ("send", 0), ("send", 3),
    ("receive", 5), ("write", 5), ("confirm", 5), ("lead", 0), ("send", 0), ("send", 3),
]  # fmt: skip
"""The former leader has refused a batch that the other one wrote."""


@settings(max_examples=120, deadline=None)
@given(script=actions)
@example(script=LEAD_AND_COME_BACK)
def test_what_clients_take_for_written_is_in_the_log_once_and_in_order(script: list[tuple[str, int]]) -> None:
    """Although both gateways accept batches at the same time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_producers, "LATE_ARRIVAL_S", math.inf)
        asyncio.run(play(World, script))


@settings(max_examples=120, deadline=None)
@given(script=actions)
@example(script=LEAD_AND_COME_BACK)
def test_the_only_leader_reads_what_others_sent_once(script: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_producers, "LATE_ARRIVAL_S", 0)
        asyncio.run(play(partial(World, one_leader=True), script))
