"""The transactions of one log: which are open and aborted up to its end.

The state is a function of the log's prefix, and changes in the same turn of the event loop as the log's end: any
gateway may answer by it. If a log never had a transaction, the bounds that it was opened with say so. Otherwise the
log is read from its newest checkpoint on (`checkpoints`), or from its flag (`bounds.transaction_flag`). Entries that
the follower skipped are read in the same way. Older aborted transactions are looked up when a client reads there.
What the leader may append: `transactional_writes`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any

import structlog

from gateway.background import run_shared
from gateway.fan_out import Slices
from gateway.log.bounds.copied_transactions import FROM_THE_START
from gateway.log.bounds.log_bounds import LogBounds
from gateway.log.bounds.log_end import LogEnd
from gateway.log.bounds.transaction_flag import encode_none_up_to
from gateway.log.entries.log_entry import Buffer
from gateway.log.reading.log_start import LogStart
from gateway.log.reading.waiters import Waiters
from gateway.log.resources import Resources
from gateway.log.shared_run import SharedRun, outcome_of
from gateway.log.transactions.aborted_list import AbortedTransaction, by_beginning, in_order
from gateway.log.transactions.checkpoint import NO_ENTRY, Checkpoint, MalformedCheckpointError
from gateway.log.transactions.checkpoints import KEPT_EVERY, NextTag, Tag, keep, read_checkpoint
from gateway.log.transactions.cleaned import CleanedPlace
from gateway.log.transactions.copied import is_copied
from gateway.log.transactions.events import EntryEvents, events_of
from gateway.log.transactions.flag import Flag
from gateway.log.transactions.log_prefix import LogPrefix
from gateway.log.transactions.past_aborted import EVERYTHING
from gateway.log.transactions.state import OpenTransaction
from gateway.log.transactions.verifications import Verifications
from gateway.pulsar.position import Position
from protocol.kafka.batch import NO_PRODUCER_EPOCH

RETRY_S = 1.0
"""After this time, a log whose transactions could not be read is read again, if fetches wait for that."""

log = structlog.get_logger()


class LogTransactions:
    def __init__(
        self,
        pulsar_topic: str,
        resources: Resources,
        bounds: LogBounds,
        end: LogEnd[Any],
        start: LogStart,
        waiters: Waiters,
        tag_entries: Callable[[NextTag], None],
        compaction: Callable[[], int],
        drop_cached: Callable[[], None],
    ) -> None:
        """``tag_entries`` sets the function that returns what each entry carries from now on. ``drop_cached`` has
        readers read all entries again."""
        self.verifications = Verifications()
        self.loaded = bounds.flag is None and bounds.replication.transactions_after is None
        """Whether the open and the aborted transactions up to the log's end are known."""
        self._topic = pulsar_topic
        self._resources = resources
        self._end = end
        self._start = start
        self._waiters = waiters
        self._tag_entries = partial(tag_entries, self.next_tag)
        self._flag = Flag(resources, pulsar_topic, self._last_before_any, self._tag_entries)
        self._is_replicated = False
        self._may_lack_some = bounds.replication.transactions_after is not None
        """There may be transactions up to the log's end, although there is no flag: another cluster's have none."""
        self._cleaned = CleanedPlace(resources, pulsar_topic, compaction)
        begins_behind = bounds.flag or bounds.replication.transactions_after or bounds.last
        self.prefix = LogPrefix(pulsar_topic, resources, self._cleaned, begins_behind, self._taken, drop_cached)
        """Up to the log's end if ``loaded``."""
        self._next_offset = bounds.next_offset
        """What is behind it was neither taken nor held."""
        self._loading: asyncio.Task[None] | None = None
        self._held: list[EntryEvents] | None = None
        """Events that arrived in the meantime, while older entries are read. None if some events were missed."""
        self._failed = False
        """The last load has failed, RETRY_S ago at most."""
        self._written = 0
        self._keeping = SharedRun(self._keep_newest)
        self._drop_cached = drop_cached
        self._flag.notes = bounds.replication.has_several_sources
        self._flag.found(bounds.flag)
        if bounds.replication.is_replicated:
            self.replicated()

    # The state

    @property
    def flagged(self) -> bool:
        """Whether the log has, or had, transactions."""
        return self._flag.position is not None

    @property
    def are_absent(self) -> bool:
        """The log never had a transaction: its end is its last stable offset."""
        return self.loaded and self._flag.position is None and not self.prefix.seen

    def knows(self, fetch_offset: int) -> bool:
        """Whether the open transactions are known, and those that were aborted with records there."""
        return self.known_to(fetch_offset) > fetch_offset

    def known_to(self, fetch_offset: int) -> int:
        """All that were aborted with records from `fetch_offset` on and below the result are known, if ``knows``."""
        if self.loaded and self._flag.position is None and not self.prefix.seen:
            return EVERYTHING
        if not self.loaded or (self.flagged and self._cleaned.is_outdated):
            return fetch_offset
        offset = max(fetch_offset, self._start.offset)
        if offset >= self.prefix.state.aborted_from:
            return EVERYTHING
        found = self.prefix.past.known_to(offset)
        return found if found > offset else fetch_offset

    @property
    def last_stable_offset(self) -> int:
        """All transactions up to this offset are decided. Valid only if ``loaded``."""
        end_offset = self._end.next_offset
        if not self.prefix.state.open:
            return end_offset
        return max(self._start.offset, self.prefix.state.last_stable_offset(end_offset))

    def aborted_between(self, fetch_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in this range, in the order of their beginnings. Valid only if they are
        ``known_to`` its end."""
        from_offset = self.prefix.state.aborted_from
        found = self.prefix.state.aborted_between(max(fetch_offset, from_offset), upper_offset)
        if max(fetch_offset, self._start.offset) >= from_offset:
            return found
        return in_order(self.prefix.past.between(max(fetch_offset, self._start.offset), upper_offset) + found)

    async def read_aborted(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """As ``aborted_between``, for any range. Raises PulsarError, KafkaError and TimeoutError."""
        found, slices = by_beginning(()), Slices()
        while from_offset < to_offset:
            await slices.pause()  # there may be hundreds of thousands
            await self.prepare_to_read(from_offset)
            upper_offset = min(self.known_to(from_offset), to_offset)
            found |= by_beginning(self.aborted_between(from_offset, upper_offset))
            from_offset = upper_offset
        return sorted(found.values(), key=attrgetter("first_offset"))

    def of_producer(self, producer_id: int) -> OpenTransaction | None:
        """The producer's open transaction. Valid only if ``loaded``."""
        return self.prefix.state.open.get(producer_id)

    @property
    def open(self) -> Mapping[int, OpenTransaction]:
        """The open transactions by producer id. Valid only if ``loaded``."""
        return self.prefix.state.open

    def has_open(self, producer_id: int) -> bool | None:
        """Whether the producer has an open transaction; None if that is not known now."""
        if producer_id in self.prefix.state.open:
            return True
        return False if self.loaded else None

    def suspect_hanging(self, producer_id: int) -> None:
        """Verify the producer's batches again until a marker ends its transaction, although that is open."""
        self.verifications.suspect_hanging(producer_id)

    def is_suspected(self, producer_id: int, first_offset: int) -> bool:
        """Whether the transaction that began there is open and suspected, and no batch of it was verified since."""
        found = self.of_producer(producer_id)
        is_same = found is not None and found.first_offset == first_offset
        return is_same and self.verifications.epoch(producer_id) == NO_PRODUCER_EPOCH

    async def is_copied(self, first_offset: int) -> bool:
        """Whether the transaction that began there came from another cluster, as far as that can be found out.

        Raises PulsarError and TimeoutError.
        """
        compacted = self._cleaned.place is not None
        return await is_copied(self._resources, self._topic, first_offset, self._end.last, compacted=compacted)

    def coordinator_epoch(self, producer_id: int) -> int:
        """The coordinator epoch of the producer's last marker in this log; -1 if none is known."""
        return self.prefix.state.coordinator_epoch(producer_id)

    # The log grows

    def appended(self, position: Position, base_offset: int, next_offset: int, data: Buffer | None) -> None:
        """The log's end now moves to the end of this entry. ``data`` are its batches; None if none is transactional."""
        if base_offset != self._next_offset or not (self.loaded or self._loading is not None):
            self._not_taken(base_offset, data)
            return
        self._next_offset = next_offset
        if self.loaded:
            self.prefix.position = position
            if self._flag.notes:
                self._flag.passed(position)
        if data is not None and (events := events_of(data, base_offset)):
            of_entry = EntryEvents(position, next_offset, events)
            if self.loaded:
                self.prefix.take(of_entry)
            elif self._held is not None:
                self._held.append(of_entry)

    def replicated(self) -> None:
        """Other clusters' entries come into the log: each entry says from now on what this gateway knows."""
        if not self._is_replicated:
            self._is_replicated = True
            self._tag_entries()

    def skipped(self) -> None:
        """The log's end passes over entries that nobody has read. They may be another cluster's transactions."""
        self._may_lack_some = True

    def _not_taken(self, base_offset: int, data: Buffer | None) -> None:
        """Entries of others, or undelivered ones, are before these batches, or they are known, or will be read."""
        if base_offset < self._next_offset:
            return
        if data is not None and not self.flagged and events_of(data, base_offset):
            self._may_lack_some = True
            self._flag.start_writing()  # the log may be closed before it is read
        if base_offset > self._next_offset and (self.loaded or self._loading is not None):
            self._missed()

    def _missed(self) -> None:
        self.loaded, self._held = False, None
        self._may_lack_some = self._may_lack_some or self._is_replicated
        self.verifications.clear()

    def _taken(self, entry: EntryEvents) -> None:
        for event in entry.events:
            if event.marker is not None:
                self.verifications.ended(event.producer_id)
        self._flag.start_writing()  # for example another cluster's transactions

    # Checkpoints

    def checkpoint_written(self, entry: Position, checkpoint: Checkpoint) -> None:
        """The checkpoint was sent with this entry, which is now in the log."""
        self.prefix.checkpoint_written(entry, checkpoint.offset)
        self._written += 1
        if self._written % KEPT_EVERY == 0:
            self._keeping.start()

    async def _keep_newest(self) -> None:
        if self.prefix.checkpoints.newest is not None:
            await keep(self._resources, self._topic, self.prefix.checkpoints.newest.entry)

    def next_tag(self, size_bytes: int, room_bytes: int) -> Tag:
        """The tag of an entry that is about to be sent."""
        if self.flagged or self.prefix.seen:
            return self.prefix.checkpoints.next_tag(size_bytes, room_bytes, self._checkpoint if self.loaded else None)
        self.start_loading(self._end.next_offset)  # what is not known here, the next gateway has to read
        return Tag(encode_none_up_to(self.prefix.position))

    def _checkpoint(self, kept: Checkpoint | None) -> Checkpoint:
        """The checkpoint for the kept place or, if there is none, for what is resolved by now."""
        place = kept or self.prefix.place(self.prefix.position, self._next_offset)
        newest = self.prefix.checkpoints.newest
        since, before = (0, NO_ENTRY) if newest is None else (newest.offset, newest.entry)
        aborted = tuple(self.prefix.state.aborted_from_to(since, place.offset))
        return place._replace(aborted=aborted, aborted_from=since, before=before)

    # Loading

    async def prepare(self) -> None:
        """Wait until ``loaded``. Raises PulsarError, KafkaError and TimeoutError."""
        while not self.loaded:
            await outcome_of(self._loading or self._begin_loading(self._end.next_offset))

    async def prepare_to_clean(self) -> None:
        """Have it know what was aborted in all that readers get now. Raises as ``prepare`` does."""
        await self.prepare()
        await self._cleaned.check()
        await self.prepare_to_read(self._start.offset)

    @property
    def has_removed_ones(self) -> bool:
        """Readers get records again that cleanings had removed. Valid only if ``loaded``."""
        return self._cleaned.hides_checkpoints

    async def prepare_to_read(self, offset: int) -> None:
        """Have it know what was aborted from that offset on. Raises as ``prepare`` does."""
        while not self.knows(offset):
            await outcome_of(self._loading or self._begin_loading(offset))

    def start_loading(self, fetch_offset: int) -> None:
        """Begin to load what is needed from that offset on. Wakes the log's waiters at the end and for a retry."""
        if self._loading is None and not self._failed and not self.knows(fetch_offset):
            self._begin_loading(fetch_offset)

    def _begin_loading(self, fetch_offset: int) -> asyncio.Task[None]:
        self._loading = run_shared("transactions of a log", self._load(fetch_offset))
        return self._loading

    async def _load(self, fetch_offset: int) -> None:
        try:
            async with self._resources.scan_turns.turn(self, urgent=True):
                await self._load_from(fetch_offset)
        except Exception as error:
            log.warning("cannot read the transactions of a log", topic=self._topic, error=repr(error))
            self._failed = True
            asyncio.get_running_loop().call_later(RETRY_S, self._retry)
            raise
        finally:
            self._loading = self._held = None
            self._waiters.wake()

    def _retry(self) -> None:
        self._failed = False
        self._waiters.wake()

    async def _load_from(self, fetch_offset: int) -> None:
        if self._cleaned.is_outdated and self.flagged:
            self._forget()
            self._drop_cached()  # what was read as it was before
        elif self._cleaned.is_outdated:
            self._cleaned.forget()
        try:
            await self._load_present()
            await self._load_older(fetch_offset)
        except MalformedCheckpointError as error:  # not written by a gateway: read everything
            log.warning("invalid checkpoint: reading the whole log", topic=self._topic, error=str(error))
            self._forget(without_checkpoint=True)
            await self._load_present()

    def _forget(self, *, without_checkpoint: bool = False) -> None:
        """Begin at the flag again."""
        self.loaded = False
        self.prefix.forget(self._flag.position or FROM_THE_START, without_checkpoint=without_checkpoint)

    async def _load_older(self, fetch_offset: int) -> None:
        """Read the checkpoints that have what was aborted there, and at first all checkpoints from there on."""
        while self.loaded and not self.knows(fetch_offset):
            past, cleaned, offset = self.prefix.past, self._cleaned.place, max(fetch_offset, self._start.offset)
            entry, found = past.wanted(offset), None
            if cleaned is not None and entry <= cleaned.position:
                past.ended(cleaned.position, self.prefix.state.aborted_from, cleaned.aborted, cleaned.offset)
                continue
            if entry != NO_ENTRY:
                compacted = cleaned is not None
                found = await read_checkpoint(self._resources, self._topic, entry, compacted=compacted)
            if past is not self.prefix.past or entry != past.wanted(offset):
                continue
            if found is not None:
                past.found(entry, found, offset)
            elif not await self._cleaned.moved():
                past.ended(entry, self.prefix.state.aborted_from)

    async def _load_present(self) -> None:
        prefix = self.prefix
        if self.flagged:
            await prefix.begin_where_cleaned()
            await prefix.begin_at_checkpoint(self._end.last)
        while not self.loaded:
            last, self._next_offset = self._end.last, self._end.next_offset
            self._held = []
            was_read = True
            if last.entry_id < 0 and self._cleaned.compacted and await self._may_hold_transactions():
                await prefix.read_compacted(self._next_offset)
                last = prefix.position
            elif prefix.position < last and await self._may_hold_transactions():
                await prefix.read_to(last)
            else:
                was_read = False
            if was_read and self._cleaned.compacted and await prefix.begin_where_cleaned(read_meanwhile=True):
                continue
            prefix.position = last
            if self._held is not None:
                for entry in self._held:
                    prefix.take(entry)
                prefix.position, self.loaded = max(last, self._end.last), True
                self._may_lack_some = False
                if was_read:
                    self._flag.note_none(last)

    async def _may_hold_transactions(self) -> bool:
        if not self.flagged:
            await self._flag.look()
            if self.flagged:
                await self.prefix.begin_where_cleaned()
        return self.prefix.seen or self.flagged or self._may_lack_some

    async def prepare_to_append(self) -> None:
        """Wait until ``loaded``, and until the flag of a log with transactions is written. Raises as ``prepare``."""
        await self.prepare()
        await self._flag.ensure()

    def _last_before_any(self) -> Position:
        return FROM_THE_START if self.prefix.seen or self._may_lack_some else self._end.last

    def close(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
        self._flag.close()
        self._keeping.cancel()
