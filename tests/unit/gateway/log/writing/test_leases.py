"""Idempotent producers while leases expire with entries in flight, and topics go to other brokers.

Every batch that a client considers acknowledged is in the log, once and in order, at the acknowledged offset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.log.bounds import drained
from gateway.log.reading import tail_follower
from gateway.log.writing import appender, known_producers, producer_supply
from tests.unit.gateway.log.writing.idempotent_broker import Gateway
from tests.unit.gateway.log.writing.idempotent_world import Producer, World
from tests.unit.gateway.log.writing.played import play


@pytest.fixture(autouse=True)
def no_pauses() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(appender, "UNANSWERED_S", -1)
        patch.setattr(producer_supply, "LATE_ARRIVAL_S", 0)
        patch.setattr(producer_supply, "RETRY_S", 0)
        patch.setattr(producer_supply, "AGAIN_S", 0)
        patch.setattr(known_producers, "LATE_ARRIVAL_S", 0)
        patch.setattr(drained, "DRAIN_PAUSE_S", 0)
        patch.setattr(tail_follower, "RETRY_MS", 0)
        yield


class Leases(World):
    """As long as a gateway has no lease, it accepts no batches, and closes connections with entries in flight."""

    def __init__(self) -> None:
        super().__init__(one_leader=True)

    def run(self, action: str, number: int) -> None:
        self._tick()
        super().run(action, number)
        self._tick()

    def expire(self, gateway: Gateway, client: Producer, number: int) -> None:
        """The broker has received some of what is in flight, and no receipt arrives."""
        for producer in gateway.producers:
            self.broker.receive(producer, number % 3)
        gateway.has_lease = False

    def renew(self, gateway: Gateway, client: Producer, number: int) -> None:
        gateway.has_lease = True

    def _tick(self) -> None:
        """As the fleet does regularly."""
        for producer in self.broker.producers:
            producer.connection.close = lambda _, lost=producer: lost.closed or lost.lose()
        for gateway in self.gateways:
            if not gateway.has_lease and gateway.log is not None:
                gateway.log.writer.on_lease_lost()

    async def finish(self) -> None:
        for gateway in self.gateways:
            gateway.has_lease = True
        await super().finish()


STEPS = ["send", "send", "receive", "write", "confirm", "renew"]
DISTURBANCES = ["expire", "expire", "unload", "lose_writer", "lose_reader", "fail", "reconnect", "reconnect", "lead"]
actions = st.lists(st.tuples(st.sampled_from(STEPS * 3 + DISTURBANCES), st.integers(0, 5)), max_size=70)

OTHER_BROKER = [
    ("send", 0), ("receive", 2), ("write", 5), ("confirm", 5), ("send", 4), ("expire", 0), ("unload", 0),
    ("reconnect", 1), ("send", 4), ("renew", 0), ("send", 4),
]  # fmt: skip
"""The lease expires, and returns after another broker owns the topic."""


@settings(max_examples=150, deadline=None)
@given(script=actions)
@example(script=OTHER_BROKER)
def test_batches_are_written_once_and_in_order(script: list[tuple[str, int]]) -> None:
    asyncio.run(play(Leases, script))
