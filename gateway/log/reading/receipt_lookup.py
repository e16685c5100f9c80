"""Resolves receipts after a gap for which no entry arrives: the admin API returns the indexes of their entries.

Brokers hold back all entries after an open transaction of a native producer, also written entries of this gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic

import structlog

from gateway.background import run_once
from gateway.log.bounds.log_end import LogEnd, Receipt, Sent
from gateway.log.reading.entry_lookup import EntryLookup
from gateway.pulsar.errors import PulsarError

LOOK_UP_AFTER_S = 2.0
"""Readers get entries within milliseconds; and a write fails after `log_writer.STALLED_S`."""
HELD_BACK_S = 0.05
"""The same, if brokers hold back entries before it: readers get nothing before a transaction ends."""

log = structlog.get_logger()


class ReceiptLookup(Generic[Sent]):
    """Watches the first receipt that waits."""

    def __init__(
        self,
        pulsar_topic: str,
        entries: EntryLookup,
        end: LogEnd[Sent],
        on_found: Callable[[Receipt[Sent], int, bool], None],
    ) -> None:
        """``on_found``: the index of the receipt's entry is known, though the entry was not read, and whether it is
        held back."""
        self._topic = pulsar_topic
        self._entries = entries
        self._end = end
        self._on_found = on_found
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def watch(self) -> None:
        """Watch the first receipt, if one waits."""
        first = self._end.first_unresolved
        if first is not None and self._timer is None and self._task is None and not self._closed:
            pause_s = HELD_BACK_S if self._end.is_held_back else LOOK_UP_AFTER_S
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._look, first)

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _look(self, first: Receipt[Sent]) -> None:
        self._timer = None
        if self._end.first_unresolved is not first:
            self.watch()
        else:
            self._task = run_once("receipt lookup", self._look_up(first))

    async def _look_up(self, first: Receipt[Sent]) -> None:
        try:
            entry = await self._entries.entry(self._topic, first.position)
        except (PulsarError, TimeoutError) as error:
            log.info("cannot look up a written entry", topic=self._topic, error=str(error))
            entry = None
        finally:
            self._task = None
        if entry is not None and entry.index is not None and self._end.first_unresolved is first:
            self._on_found(first, entry.index, entry.is_held_back)
        self.watch()
