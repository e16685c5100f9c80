"""The entries of a topic, read once: what waits in memory for a slow consumer."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import cast

import pytest

from gateway.log.entries import entry_stream
from gateway.log.entries.entry_stream import read_entries
from gateway.pulsar.client import PulsarClient
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.fake_pulsar import FakeTopic


@pytest.mark.parametrize(("entries", "size_bytes", "most"), [(400, 10_000, 12), (400, 10, 400), (5, 1_000_000, 2)])
async def test_entries_that_wait_fit_a_budget(
    monkeypatch: pytest.MonkeyPatch, entries: int, size_bytes: int, most: int
) -> None:
    """A thousand messages may be a thousand entries of several megabytes."""
    monkeypatch.setattr(entry_stream, "QUEUED_BYTES", 100_000)
    topic, taken, waited = FakeTopic(), 0, 0
    for number in range(entries):
        topic.write(bytes(size_bytes), 1, "writer", number)
    async with asyncio.timeout(10), aclosing(
        read_entries(cast(PulsarClient, topic), "topic", "earliest", topic.last)
    ) as found:
        async for _ in found:
            taken += 1
            await let_callbacks_run()
            waited = max(waited, topic.readers[0].next_entry - taken)
    assert taken == entries
    assert waited <= most
