"""All readers of older data of a gateway: decides which positions get a reader, and which readers close for others.

Positions wait in the order in which they arrived. A reader closes for the next one after it has delivered data: at once
if nothing is left to read, else when its turn is over. A reader that has delivered nothing stays open, unless no client
has fetched its data, or Pulsar has sent it nothing, for a long time: otherwise readers would close before they deliver.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterable

from gateway.config.limits import Limits
from gateway.log.entries.decoding import DecodingThreads
from gateway.log.entries.log_entry import NO_LIMIT, Slice
from gateway.log.entries.start_reader import StartReader
from gateway.log.reading.catch_up import CatchUpReader
from gateway.log.reading.entry_lookup import EntryLookup
from gateway.log.reading.positions import SparseIndex
from gateway.log.reading.read_source import ReadSource
from gateway.log.reading.start_readers import StartReaders
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient

STALLED_MS = 1_000
"""If memory is scarce, the reader of a consumer that did not fetch for this time is closed."""
TURN_S = 0.25
"""The time for which a reader continues to deliver while other positions wait."""
UNPRODUCTIVE_S = 5.0
"""The time for which a reader may deliver nothing while other positions wait."""
WANTED_S = 2.0
"""A position that was not requested for this time, and for which no fetch waits, is no longer wanted."""
CHECK_S = 0.05

ReadPosition = tuple[ReadSource, int]


class CatchUpReaders:
    """Keeps at most ``max_readers`` open at the same time."""

    def __init__(
        self, client: PulsarClient, admin: AdminClient, limits: Limits, metrics: Metrics, decoding: DecodingThreads
    ) -> None:
        self.decoding = decoding
        self.client = client
        self.admin = admin
        self.entries = EntryLookup(client, admin)
        self.limits = limits
        self.metrics = metrics
        self._readers: dict[ReadSource, list[CatchUpReader]] = {}
        self._start_readers = StartReaders()
        self._indexes: dict[str, SparseIndex] = {}
        self._count_open = 0
        self._waiting: OrderedDict[ReadPosition, float] = OrderedDict()
        """When each position was last requested; in the order in which they arrived."""
        self._timer: asyncio.Handle | None = None
        self._admit_at = 0.0
        self._gave_up_at = 0.0

    @property
    def share_bytes(self) -> int:
        """The bytes that one reader may read ahead: any number of consumers that stall must not fill the memory."""
        return min(self.limits.reader_budget_bytes, self.limits.readers_budget_bytes // max(1, self._count_open))

    def index(self, log: ReadSource) -> SparseIndex:
        return self._indexes.setdefault(log.pulsar_topic, SparseIndex())

    def holds(self, log: ReadSource, offset: int) -> bool:
        """Whether ``read`` would find data."""
        reader = self._find(log, offset)
        if reader is None:
            return False
        return reader.holds(offset) or (reader.is_broken and self.holds(log, offset))

    def read(
        self, log: ReadSource, offset: int, max_bytes: int, *, at_least_one: bool, before: int = NO_LIMIT
    ) -> Slice | None:
        """Batches from a reader that holds ``offset``; None if there are none (yet)."""
        reader = self._find(log, offset)
        found = None if reader is None else reader.read(offset, max_bytes, at_least_one=at_least_one, before=before)
        if found is None and reader is not None and reader.is_broken:  # another reader may hold the data already
            return self.read(log, offset, max_bytes, at_least_one=at_least_one, before=before)
        if self._waiting and found is not None:
            self._admit_soon(0)
        return found

    def keep(self, log: ReadSource, reader: StartReader) -> None:
        """The log was opened with this reader. A position at the log's start can go on with it."""
        self._start_readers.keep(log, reader)

    def start(self, log: ReadSource, offset: int) -> None:
        """Ensure that a reader works on ``offset``, now or when it is its turn."""
        if self._find(log, offset) is not None:
            return
        position = (log, offset)
        if not self._waiting and self._count_open < self.limits.max_readers:
            self._open(position)
            return
        self._waiting[position] = time.monotonic()
        self._admit_soon(0)

    def close_all(self, log: ReadSource) -> None:
        self._start_readers.close(log)
        for reader in self._readers.pop(log, []):
            reader.close()
        self._indexes.pop(log.pulsar_topic, None)
        self._count()

    def close_idle(self) -> None:
        """Close readers that no fetch has used for a while; sooner if one entry for each exceeds the common budget."""
        self._start_readers.close_old()
        held_bytes = sum(reader.held_bytes for reader in self._all())
        idle_ms = STALLED_MS if held_bytes > self.limits.readers_budget_bytes else self.limits.reader_idle_ms
        deadline = time.monotonic() - idle_ms / 1000
        self._close_for_others([reader for reader in self._all() if reader.last_used < deadline])

    # Turns

    def _admit_soon(self, delay_s: float) -> None:
        """Schedules one call for all requests of the same turn of the event loop."""
        loop = asyncio.get_running_loop()
        at = loop.time() + delay_s
        if self._timer is not None and self._admit_at <= at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._admit_at = at
        self._timer = loop.call_later(delay_s, self._admit)

    def _admit(self) -> None:
        """Open readers for waiting positions, as far as other readers can be closed."""
        self._timer = None
        self._remove([reader for reader in self._all() if reader.is_broken])
        giving_way = self._giving_way()
        while self._waiting:
            position = next(iter(self._waiting))
            if not self._is_wanted(position):
                del self._waiting[position]
                continue
            if self._count_open >= self.limits.max_readers:
                if not giving_way:
                    self._admit_soon(CHECK_S)
                    return
                self._close_for_others([giving_way.pop()])
            del self._waiting[position]
            self._open(position)

    def _is_wanted(self, position: ReadPosition) -> bool:
        log, offset = position
        if log.closed or self._find(log, offset) is not None:
            return False
        return log.waiters.wait_for(offset) or time.monotonic() - self._waiting[position] < WANTED_S

    def _giving_way(self) -> list[CatchUpReader]:
        """The readers that may be closed; the last one is closed first."""
        now = time.monotonic()
        drained, over = [], []
        for reader in sorted(self._all(), key=lambda reader: reader.delivered_at or 0, reverse=True):
            if reader.delivered_at is None:
                continue
            if reader.drained:
                drained.append(reader)
            elif now - reader.delivered_at >= TURN_S:
                over.append(reader)
        return self._unproductive(now) + over + drained

    def _unproductive(self, now: float) -> list[CatchUpReader]:
        """At most one reader at a time: where Pulsar is slow for all readers, most continue."""
        if now - self._gave_up_at < CHECK_S:
            return []
        idle = [reader for reader in self._all() if reader.delivered_at is None]
        oldest = min(idle, key=lambda reader: reader.started_at, default=None)
        if oldest is None or now - oldest.started_at < UNPRODUCTIVE_S:
            return []
        self._gave_up_at = now
        return [oldest]

    def _open(self, position: ReadPosition) -> None:
        log, offset = position
        begun = self._start_readers.take(log, offset)
        self._readers.setdefault(log, []).append(CatchUpReader(self, log, offset, begun))
        self._count()

    def _find(self, log: ReadSource, offset: int) -> CatchUpReader | None:
        readers = self._readers.get(log)
        if readers is None:  # most logs of a fetch that reads many
            return None
        broken = [reader for reader in readers if reader.is_broken]
        if broken:
            self._remove(broken)
        candidates = [reader for reader in self._readers.get(log, ()) if reader.stands_at(offset)]
        return max(candidates, key=lambda reader: reader.offset, default=None)

    def _all(self) -> Iterable[CatchUpReader]:
        return (reader for readers in self._readers.values() for reader in readers)

    def _remove(self, readers: Iterable[CatchUpReader]) -> None:
        for reader in readers:
            reader.close()
            siblings = self._readers[reader.log]
            siblings.remove(reader)
            if not siblings:
                del self._readers[reader.log]
        self._count()

    def _close_for_others(self, readers: list[CatchUpReader]) -> None:
        self._remove(readers)
        for reader in readers:
            reader.log.waiters.wake()  # a fetch that waits for its data waits for another turn

    def _count(self) -> None:
        self._count_open = sum(map(len, self._readers.values()))
        self.metrics.readers.set(self._count_open)
