"""What a log knows of its idempotent producers. It is read from the log's tail before the first batch is checked, and
then kept up to date.

The first batch over a new connection is checked after everything has been read that the broker had received by then:
the client may come from another gateway, which may have written the batch already. This ends soon after a takeover, for
these reasons:

1. Other gateways accept idempotent batches only while they lead: not after this gateway has become the only leader.
2. A living leader releases a partition when each of its entries is written or has failed, or when the broker has
   received it, or when the connection was reset over which it was sent. The broker reads such an entry within
   LATE_ARRIVAL_S, or never.
3. The name of an evicted leader is taken over before the log is read (`writer_names`): nothing of it arrives later.
4. So a read that began LATE_ARRIVAL_S after this gateway became the only leader finds every entry of other gateways:
   before it reads, it waits until the broker has written all that it had received.
5. The broker that is read owns the topic: it knows the newest ledger (`bounds/topic_owner`).
6. The log is closed at once when another gateway may lead, even if this one leads again immediately afterwards. The
   next log begins anew.

A partition that is replicated between clusters is read for each new connection: a client may come from another cluster,
and copies of what it has written there may arrive at any time. Whether it is replicated is seen by the broker's cursors
for copies to other clusters, and by copies from them. Replication can be enabled at any time, so no read serves
connections for longer than `READ_AGAIN_S`. What the log's end passes over unread may be such copies: the tail is read
again (`missed`).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any

from gateway.background import run_shared
from gateway.log.bounds.log_end import LogEnd
from gateway.log.bounds.transaction_flag import REPLICATORS
from gateway.log.entries.log_entry import LogEntry
from gateway.log.reading.end_refresh import EndRefresh
from gateway.log.resources import Resources
from gateway.log.shared_run import SharedRun, outcome_of
from gateway.log.writing.producer_ids import ProducerIds
from gateway.log.writing.producer_scan import Tail, read_tail
from gateway.log.writing.producer_state import ActiveProducer, AllProducers, ProducerState
from gateway.log.writing.writer_names import LATE_ARRIVAL_S, WriterNames, fence_writers
from gateway.pulsar.admin.topics import InternalStats
from protocol.kafka.batch import BatchHeader, iter_headers
from protocol.kafka.offset_span import is_gap

READ_AGAIN_S = 60.0
MAX_READS = 10
"""While entries are missed again and again, the tail is read so many times; then clients get an error and retry."""


class KnownProducers:
    """``state`` may check batches only when ``loaded`` is true."""

    def __init__(
        self,
        pulsar_topic: str,
        resources: Resources,
        end: LogEnd[Any],
        refresh: EndRefresh,
        ids: ProducerIds,
        everywhere: AllProducers,
        names: WriterNames,
        own_producer: Callable[[], str],
    ) -> None:
        """``own_producer`` returns the name of the Pulsar producer that writes the log."""
        self.state = ProducerState(resources.limits.max_producers_per_partition, everywhere)
        self.loaded = False
        self.has_missed = False
        """No batch may be checked until the log's tail has been read again."""
        self._misses = 0
        self._topic = pulsar_topic
        self._resources = resources
        self._end = end
        self._taken_over = end.last
        self._refresh = refresh
        self._ids = ids
        self._loading: asyncio.Task[None] | None = None
        self._held: list[BatchHeader] = []
        self._catch_up = SharedRun(self._read_what_others_sent)
        self._names = names
        self._own_producer = own_producer
        self._fenced: tuple[str, ...] = ()
        """The producer names of evicted gateways that are shut out: no entry of theirs can arrive any more."""
        self._fencing = SharedRun(self._fence_evicted)
        self._loading_since = -math.inf
        """When the log's tail began to be read, by the monotonic clock."""
        self._judges_since = math.inf
        """Since then, writes of idempotent producers are known: no other gateway accepts any while this log is open."""
        self._leads_since = math.inf
        """Since then, or earlier, this gateway is the only leader; by the monotonic clock."""

        self._is_replicated = False
        """Copies from other clusters may arrive, as far as it is known."""

    def leads_alone(self) -> None:
        """This gateway is the only leader now. The log is closed when that ends."""
        self._leads_since = min(self._leads_since, time.monotonic())

    # Checking batches

    def may_judge(self, header: BatchHeader, source: int, arrived_s: float) -> bool:
        """Whether all batches that other gateways may have had of the producer are known. ``prepare`` ensures this."""
        if not self.loaded or self._names.evicted() != self._fenced:
            return False
        others_sent_by = arrived_s
        if not self._is_replicated:
            all_sent_by = max(self._leads_since + LATE_ARRIVAL_S, time.monotonic() - READ_AGAIN_S)
            others_sent_by = min(arrived_s, all_sent_by)
        if self._catch_up.covers(others_sent_by) or others_sent_by < self._loading_since:
            return True
        if header.producer_id in self.state:
            return self.state.trusts(header, source, time.monotonic())
        return header.base_sequence == 0 and self._ids.allocated_after(header.producer_id, self._judges_since)

    async def prepare(self, header: BatchHeader, source: int, arrived_s: float) -> None:
        """Make sure that the batch may be checked. Raises PulsarError, KafkaError and TimeoutError."""
        await self._fence_evicted_gateways()
        if not self.loaded:
            await self.load()
            self._judges_since = min(self._judges_since, time.monotonic())
        if self.may_judge(header, source, arrived_s):  # also if the load had begun before the batch arrived
            return
        if self.state.came_from(header, source):
            await self._refresh.refresh()
        else:
            await self._catch_up.wait()
            self._judges_since = min(self._judges_since, time.monotonic())
        await self.load()  # again, if something was missed

    def has_passed(self, header: BatchHeader, sequence: int) -> bool:
        """Whether the producer of ``header`` has written ``sequence``, has it in flight, or has a later epoch."""
        return self.loaded and self.state.has_passed(header, sequence)

    async def active(self) -> list[ActiveProducer]:
        """The producers with batches at the log's end. Raises PulsarError, KafkaError and TimeoutError."""
        if self.loaded:
            await self._refresh.refresh()
        await self.load()
        return self.state.active()

    # Loading

    async def load(self) -> None:
        """Read what other gateways sent, and the log's tail. All callers share one run. Raises as ``active`` does."""
        await self._fence_evicted_gateways()
        if self.loaded:
            return
        if self._loading is None:
            self._loading = run_shared("producers of a log", self._load())
        await outcome_of(self._loading)

    async def _fence_evicted_gateways(self) -> None:
        while self._names.evicted() != self._fenced:
            await self._fencing.wait()

    async def _fence_evicted(self) -> None:
        names = self._names.evicted()
        later = [name for name in names if name not in {*self._fenced, self._own_producer()}]
        if later:
            await fence_writers(self._resources.client, self._topic, later, self._resources.writing_turns)
            if self.loaded or self._loading is not None:  # otherwise ``load`` reads it, which begins later
                await self._refresh.read_what_others_sent()
        self._fenced = names

    async def _load(self) -> None:
        try:
            for _ in range(MAX_READS):
                misses = self._misses
                await self._read_tail()
                if misses == self._misses:  # otherwise what was held follows what was missed since
                    self._replay(self._held)
                    self.loaded, self.has_missed = True, False
                    return
                self._held.clear()
            raise TimeoutError("entries are missed faster than the tail of the log is read")
        finally:
            self._loading = None
            self._held.clear()

    async def _read_tail(self) -> None:
        client, admin, limits, _, decoding, turns, _ = self._resources
        async with turns.turn(self, urgent=True):
            self._loading_since = time.monotonic()
            stats = await self._read_what_others_sent()
            tail = Tail(self._end.last, self._taken_over)
            await read_tail(client, admin, self._topic, stats, tail, limits, decoding, self._take)

    async def _read_what_others_sent(self) -> InternalStats:
        stats = await self._refresh.read_what_others_sent()
        if any(name.startswith(REPLICATORS) for name in stats.cursors):
            self._is_replicated = True
        return stats

    def _take(self, entry: LogEntry) -> None:
        self._is_replicated = self._is_replicated or entry.is_copy
        self._replay(_idempotent(entry))

    def _replay(self, headers: list[BatchHeader]) -> None:
        for header in headers:
            if header.is_control and not is_gap(header):
                self.state.fence(header.producer_id, header.producer_epoch)
            else:
                self.state.replay(header, header.base_offset)

    def appended(self, entry: LogEntry) -> None:
        """Take an entry that was read at the log's end and was not in flight here."""
        if self.loaded:
            self._take(entry)
        elif self._loading is not None:  # it follows the tail that is being read
            self._is_replicated = self._is_replicated or entry.is_copy
            self._held.extend(_idempotent(entry))

    def missed(self) -> None:
        """Entries before the log's end were not read. Copies from another cluster may be among them."""
        self._misses += 1
        self.has_missed, self.loaded = True, False

    def close(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
        self._catch_up.cancel()
        self._fencing.cancel()
        self.state.close()


def _idempotent(entry: LogEntry) -> list[BatchHeader]:
    return [header for _, header in iter_headers(entry.data) if header.producer_id >= 0]
