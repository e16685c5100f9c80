"""The names of producers, and how those of evicted gateways are shut out.

A process that stands still between the check of its lease and the socket, or whose network is cut, may have sent an
entry that reaches the broker when another gateway leads already: behind what that one has read, it would be a record
twice. A broker takes nothing of a producer whose name another one has. It gives the name away when the connection of
the old one is closed, or does not answer it within `connectionLivenessCheckTimeoutMillis` (5 s). So gateways name their
producers by their incarnation, and a new leader takes the names of evicted ones before it reads the log's end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.position import Position

LATE_ARRIVAL_S = 0.2
"""So long the broker may still have to read what came over a broken connection."""


class WriterNames(Protocol):
    def own_name(self) -> str:
        """Of this gateway's producers."""

    def evicted(self) -> tuple[str, ...]:
        """Of gateways that may still write though others lead. The same tuple until that changes."""


class NamedByBroker:
    """Of a gateway that has no others beside it."""

    def own_name(self) -> str:
        return ""

    def evicted(self) -> tuple[str, ...]:
        return ()


async def shut_out(client: PulsarClient, topic: str, names: Sequence[str]) -> None:
    """Return when nothing of these producers can come any more. Raises PulsarError."""
    await asyncio.gather(*(_take(client, topic, name) for name in names))
    await asyncio.sleep(LATE_ARRIVAL_S)


async def _take(client: PulsarClient, topic: str, name: str) -> None:
    producer = await client.open_producer(topic, _SendsNothing(), name=name)
    await producer.close()


class _SendsNothing:
    def on_receipt(self, sequence_id: int, position: Position) -> None:
        raise AssertionError("a receipt of what was not sent")

    def on_send_error(self, sequence_id: int, error: PulsarError) -> None:
        raise AssertionError("a refusal of what was not sent")

    def on_producer_closed(self, error: PulsarError) -> None:
        """It has done its work."""
