"""Quotas of two gateways (`both_ways`): the fast path and the general path use them alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from gateway.metering.meter import Meter
from gateway.security.quota_rates import SAMPLES, WINDOW_MS
from gateway.security.records import QuotaKey, quota_record
from tests.unit.gateway.handlers.both_ways import BothWays, Way

ANYBODY: dict[str, str | None] = {"user": None}
CLIENT_IDS = ("c", "d")
EXPIRED_MS = SAMPLES * WINDOW_MS


class BothCharged:
    """The clocks stand still unless the test moves them. Muted clients may send, so that they can be compared."""

    def __init__(self, ways: BothWays, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ways = ways
        self.now_ms = 0.0
        self.busy_s = 0.0
        self.muted_ms: dict[Way, list[int]] = {}
        monkeypatch.setattr(time, "perf_counter", lambda: self.busy_s)
        for way in (ways.general, ways.straight):
            self.muted_ms[way] = []
            _meter(way)._now_s = lambda: self.now_ms / 1_000
        self.reconnect()

    def reconnect(self) -> None:
        self.ways.each(self._reconnect)

    def _reconnect(self, way: Way) -> None:
        way.reconnect()
        way.client.connection._client.mute = self.muted_ms[way].append

    def each_takes(self, monkeypatch: pytest.MonkeyPatch, owner: type, method: str, busy_s: float) -> None:
        """Each call of the method keeps the event loop busy for this time."""
        real = getattr(owner, method)

        def slow(*arguments: Any, **options: Any) -> Any:
            self.busy_s += busy_s
            return real(*arguments, **options)

        monkeypatch.setattr(owner, method, slow)

    def set(self, quota: str, bound: float | None, entity: dict[str, str | None] = ANYBODY) -> None:
        self.ways.each(lambda way: set_quota(way, quota, bound, entity))

    async def ask(self, *frames: bytes, taken: int) -> list[int]:
        """Ask both. `taken` of the requests took the fast path. Returns for how long the client was muted."""
        self.ways.taken = 0
        await self.ways.ask(*frames)
        assert self.ways.taken == taken
        return self.compare()

    async def run(self, meanwhile: Callable[[Way], None], frame: bytes, *, taken: int) -> list[int]:
        """The same for one request. Something happens while it waits for its answer."""

        async def run(way: Way) -> list[bytes]:
            way.client.ask(frame)
            await way.scene.run()
            meanwhile(way)
            return await way.answers()

        self.ways.taken = 0
        await self.ways.run(run)
        assert self.ways.taken == taken
        return self.compare()

    async def run_and_leave(self, *frames: bytes, taken: int) -> list[int]:
        """The client disconnects before it gets an answer. Then the broker acknowledges what was sent to it."""

        async def run(way: Way) -> list[bytes]:
            for frame in frames:
                way.client.ask(frame)
            await way.scene.run()
            assert not way.client.received
            way.client.close()
            await way.scene.run()
            way.broker.say(way.broker.answers())
            await way.scene.run()
            return []

        self.ways.taken = 0
        await self.ways.run(run)
        assert self.ways.taken == taken
        found = self.compare()
        self.reconnect()
        return found

    def compare(self) -> list[int]:
        """What was used, and for how long the client was muted since the last comparison."""
        muted_ms, expected_ms = self.muted_ms[self.ways.straight], self.muted_ms[self.ways.general]
        assert muted_ms == expected_ms
        straight, general = self._used(self.ways.straight), self._used(self.ways.general)
        assert straight == general, f"{straight} instead of {general}"
        found = [*muted_ms]
        muted_ms.clear()
        expected_ms.clear()
        return found

    def used(self) -> dict[tuple[str, str], float]:
        """What each client has used recently, by client id and quota."""
        return self._used(self.ways.straight)

    def _used(self, way: Way) -> dict[tuple[str, str], float]:
        quotas = _meter(way)._quotas
        accounts = {client_id: quotas.account("ANONYMOUS", client_id) for client_id in CLIENT_IDS}
        return {
            (client_id, quota): rate.used(self.now_ms)
            for client_id, account in accounts.items()
            for quota, rate in account.rates.items()
        }


def set_quota(way: Way, quota: str, bound: float | None, entity: dict[str, str | None] = ANYBODY) -> None:
    """None removes it."""
    key = QuotaKey(frozenset(entity.items()), quota)
    way.scene.cluster.security.state.apply(quota_record(key, bound))


def _meter(way: Way) -> Meter:
    meter = way.scene._services.served.meter
    assert meter is not None
    return meter
