"""Receipts behind a gap that nothing is read of: the admin API is asked for their entries' indexes.

Brokers hold back what lies behind an open transaction of a native producer, and our entries with it: written they are.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import structlog

from gateway.background import run_once
from gateway.log.log_end import Unresolved
from gateway.log.reading.entry_lookup import EntryLookup
from gateway.pulsar.errors import PulsarError

LOOK_UP_AFTER_S = 2.0
"""Readers bring entries within milliseconds; and a write is given up after `producer.STALLED_S`."""

log = structlog.get_logger()


class UnresolvedLog(Protocol):
    """The partition log, as its lookup knows it."""

    pulsar_topic: str

    @property
    def closed(self) -> bool: ...

    @property
    def first_unresolved(self) -> Unresolved | None: ...

    def receipt_looked_up(self, receipt: Unresolved, index: int) -> None: ...


class ReceiptLookup:
    """Watches the first receipt that waits."""

    def __init__(self, log: UnresolvedLog, entries: EntryLookup) -> None:
        self._log = log
        self._entries = entries
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """Some receipt waits."""
        first = self._log.first_unresolved
        if first is not None and self._timer is None and self._task is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_UP_AFTER_S, self._look, first)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _look(self, first: Unresolved) -> None:
        self._timer = None
        if self._log.first_unresolved is not first:
            self.watch()
        elif not self._log.closed:
            self._task = run_once("receipt lookup", self._look_up(first))

    async def _look_up(self, first: Unresolved) -> None:
        try:
            entry = await self._entries.entry(self._log.pulsar_topic, first.position)
        except (PulsarError, TimeoutError) as error:
            log.info("a written entry cannot be looked up", topic=self._log.pulsar_topic, error=str(error))
            entry = None
        self._task = None
        if entry is not None and entry.index is not None and self._log.first_unresolved is first:
            self._log.receipt_looked_up(first, entry.index)
        self.watch()
