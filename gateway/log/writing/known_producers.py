"""What a log knows of its idempotent producers: read from its tail before the first batch is judged, then kept up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gateway.log.entries.log_entry import LogEntry
from gateway.log.shared_run import outcome_of
from gateway.log.writing.producer_state import AllProducers, ProducerState
from protocol.kafka.batch import BatchHeader, iter_headers

ReadTail = Callable[[Callable[[LogEntry], None]], Awaitable[None]]


class KnownProducers:
    """``state`` may judge batches once it is ``loaded``."""

    def __init__(self, max_producers: int, everywhere: AllProducers | None = None) -> None:
        self.state = ProducerState(max_producers, everywhere)
        self.loaded = False
        self._loading: asyncio.Task[None] | None = None
        self._held: list[BatchHeader] = []

    async def load(self, read_tail: ReadTail) -> None:
        """Have the log's tail read, once for all who ask. Raises what ``read_tail`` raises."""
        if self._loading is None:
            self._loading = asyncio.create_task(self._load(read_tail))
            self._loading.add_done_callback(self._load_ended)
        await outcome_of(self._loading)

    async def _load(self, read_tail: ReadTail) -> None:
        await read_tail(self._take)
        for header in self._held:
            self.state.replay(header, header.base_offset)
        self.loaded = True

    def _load_ended(self, task: asyncio.Task[None]) -> None:
        self._loading = None
        self._held.clear()
        if not task.cancelled():
            task.exception()  # those who waited may be gone

    def _take(self, entry: LogEntry) -> None:
        for header in _idempotent(entry):
            self.state.replay(header, header.base_offset)

    def appended(self, entry: LogEntry) -> None:
        """An entry that is not in flight here was read at the log's end."""
        if self.loaded:
            self._take(entry)
        elif self._loading is not None:  # comes behind the tail that is being read
            self._held.extend(_idempotent(entry))

    def close(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
        self.state.close()


def _idempotent(entry: LogEntry) -> list[BatchHeader]:
    return [header for _, header in iter_headers(entry.data) if header.producer_id >= 0]
