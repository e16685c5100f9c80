"""The fleet's log is opened again as soon as Pulsar permits it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.fleet import fleet_log
from gateway.fleet.fleet_log import BACKOFF_MAX_MS, FleetLog
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ClosedByBrokerError, ConnectionLostError, PulsarError, TopicClosedError
from gateway.pulsar.position import Position

WAIT_S = 10
CLOSED = TopicClosedError("unloaded")


class FakeClient:
    """Opens everything; `failures` come first."""

    def __init__(self) -> None:
        self.opened: asyncio.Queue[str] = asyncio.Queue()
        self.failures: list[PulsarError] = []

    async def last_position(self, topic: str) -> Position:
        return Position(-1, -1)

    async def open_producer(self, topic: str, listener: Any, *, backoff_max_ms: int) -> Any:
        assert backoff_max_ms == BACKOFF_MAX_MS
        return await self._open("producer")

    async def open_reader(
        self, topic: str, start: Any, listener: Any, *, inclusive: bool, backoff_max_ms: int
    ) -> Any:
        assert backoff_max_ms == BACKOFF_MAX_MS
        return await self._open("reader")

    async def _open(self, what: str) -> Any:
        if self.failures:
            raise self.failures.pop()
        self.opened.put_nowait(what)
        return SimpleNamespace(closed=False, flow=lambda permits: None, close=self._close)

    async def _close(self) -> None:
        pass

    async def both(self) -> None:
        async with asyncio.timeout(WAIT_S):
            assert {await self.opened.get(), await self.opened.get()} == {"producer", "reader"}


@pytest.mark.parametrize("failures", [0, 3])
async def test_what_is_closed_is_opened_again(failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_log, "PAUSE_S", 0)
    client = FakeClient()
    log = FleetLog(cast(PulsarClient, client), "t", lambda position, message: None)
    assert await log.open() is None
    await log.start()
    await client.both()
    client.failures = [CLOSED] * failures
    log.on_producer_closed(CLOSED)
    assert not log.writable
    log.on_reader_closed(CLOSED)
    await client.both()
    assert log.writable
    await log.close()


async def test_a_reader_that_delivers_nothing_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats continue, so no other gateway would take over."""
    monkeypatch.setattr(fleet_log, "PAUSE_S", 0)
    monkeypatch.setattr(fleet_log, "SILENT_S", 0.01)
    client = FakeClient()
    log = FleetLog(cast(PulsarClient, client), "t", lambda position, message: None)
    await log.open()
    await log.start()
    await client.both()
    log.on_receipt(0, Position(1, 0))
    async with asyncio.timeout(WAIT_S):
        assert await client.opened.get() == "reader"
    log.on_entry(cast(Any, SimpleNamespace(position=Position(1, 0), permits=1, is_marker=True)))
    await asyncio.sleep(0.05)
    while not client.opened.empty():  # one more, if the entry was late
        assert client.opened.get_nowait() == "reader"
    await asyncio.sleep(0.05)
    assert client.opened.empty()
    await log.close()


async def test_what_is_closed_again_and_again_is_not_opened_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_log, "PAUSE_S", 3_600)
    client = FakeClient()
    log = FleetLog(cast(PulsarClient, client), "t", lambda position, message: None)
    await log.start()
    await client.both()
    log.on_producer_closed(CLOSED)
    for _ in range(10):
        await asyncio.sleep(0)
    assert client.opened.empty()
    await log.close()


@pytest.mark.parametrize(
    ("error", "expected"),
    [(CLOSED, True), (ClosedByBrokerError("its process ended"), True), (ConnectionLostError("silent"), False)],
)
async def test_whether_all_gateways_have_lost_it(error: PulsarError, expected: bool) -> None:
    """Until a write is acknowledged again: a producer may be opened and still not work."""
    client = FakeClient()
    log = FleetLog(cast(PulsarClient, client), "t", lambda position, message: None)
    await log.open()
    await log.start()
    await client.both()
    assert not log.is_lost_by_all
    log.on_producer_closed(error)
    assert log.is_lost_by_all is expected
    assert await client.opened.get() == "producer"
    assert log.is_lost_by_all is expected
    log.on_receipt(0, Position(1, 0))
    assert not log.is_lost_by_all
    await log.close()
