"""The names of Pulsar producers, and how the producers of evicted gateways are shut out.

A process that is suspended between the check of its lease and the write to the socket, or whose network is cut, may
have sent an entry that reaches the broker after another gateway has become the leader. The new leader has not read
this entry, so the record may be written twice. A broker accepts no entry from a producer whose name was given to
another producer. It gives the name away when the connection of the old producer is closed, or does not answer the
broker within `connectionLivenessCheckTimeoutMillis` (5 s). So gateways name their producers by their incarnation,
and a new leader takes over the names of evicted gateways before it reads the log's end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from gateway.log.opening_turns import OpeningTurns
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.position import Position

LATE_ARRIVAL_S = 0.2
"""The longest time in which the broker may still read data that arrived over a broken connection."""


class WriterNames(Protocol):
    def own_name(self) -> str:
        """The name of this gateway's producers."""

    def evicted(self) -> tuple[str, ...]:
        """The names of evicted gateways that may still write. The same tuple until these names change."""


class NamedByBroker:
    """The names of a single gateway: the broker chooses them."""

    def own_name(self) -> str:
        return ""

    def evicted(self) -> tuple[str, ...]:
        return ()


async def fence_writers(client: PulsarClient, topic: str, names: Sequence[str], turns: OpeningTurns) -> None:
    """Return when no entry of these producers can arrive any more. Raises PulsarError."""
    await asyncio.gather(*(_take(client, topic, name, turns) for name in names))
    await asyncio.sleep(LATE_ARRIVAL_S)  # without a turn: meanwhile names are taken over in other logs


async def _take(client: PulsarClient, topic: str, name: str, turns: OpeningTurns) -> None:
    async with turns.turn(object(), urgent=True):
        producer = await client.open_producer(topic, _SendsNothing(), name=name)
        await producer.close()


class _SendsNothing:
    def on_receipt(self, sequence_id: int, position: Position) -> None:
        raise AssertionError("a receipt, although nothing was sent")

    def on_send_error(self, sequence_id: int, error: PulsarError) -> None:
        raise AssertionError("a send error, although nothing was sent")

    def on_producer_closed(self, error: PulsarError) -> None:
        """Nothing to do: the producer was opened only to take over a name."""
