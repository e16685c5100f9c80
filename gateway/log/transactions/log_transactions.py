"""The transactions of one log: which are open and aborted up to its end.

The state is a function of the log's prefix, and changes in the same turn of the event loop as the log's end: any
gateway may answer by it. If a log never had a transaction, the bounds that it was opened with say so. Otherwise the
log is read from its newest checkpoint on (`checkpoints`), or from its flag (`bounds.transaction_flag`). Entries that
the follower skipped are read in the same way. Older aborted transactions are looked up when a client reads there.
What the leader may append: `transactional_writes`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import structlog

from gateway.background import run_shared
from gateway.log.bounds.copied_transactions import FROM_THE_START
from gateway.log.bounds.log_bounds import LogBounds
from gateway.log.bounds.log_end import LogEnd
from gateway.log.bounds.transaction_flag import encode_none_up_to
from gateway.log.entries.log_entry import Buffer
from gateway.log.reading.log_start import LogStart
from gateway.log.reading.waiters import Waiters
from gateway.log.resources import Resources
from gateway.log.shared_run import SharedRun, outcome_of
from gateway.log.transactions.checkpoint import MAX_ENDED, NO_ENTRY, Checkpoint, MalformedCheckpointError
from gateway.log.transactions.checkpoints import KEPT_EVERY, Checkpoints, NextTag, Tag, find_last, keep, read_checkpoint
from gateway.log.transactions.cleaned import CleanedPlace
from gateway.log.transactions.copied import is_copied
from gateway.log.transactions.events import EntryEvents, events_of
from gateway.log.transactions.flag import Flag
from gateway.log.transactions.past_aborted import EVERYTHING, PastAborted
from gateway.log.transactions.scan import scan_events
from gateway.log.transactions.state import AbortedTransaction, OpenTransaction, PartitionTransactions
from gateway.log.transactions.verifications import Verifications
from gateway.pulsar.position import Position
from protocol.kafka.batch import NO_PRODUCER_EPOCH
from protocol.kafka.transaction_marker import MarkerType

RETRY_S = 1.0
"""After this time, a log whose transactions could not be read is read again, if fetches wait for that."""
MAX_ABORTED, KEPT_ABORTED = 50_000, 25_000
"""The aborted transactions of one log in memory: above the first number, the oldest ones are removed down to the
second. They are looked up again when needed."""

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
        is_compacted: Callable[[], bool],
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
        self.state = PartitionTransactions()
        """Whole only if ``loaded``."""
        self._is_replicated = False
        self._may_lack_some = bounds.replication.transactions_after is not None
        """There may be transactions up to the log's end, although there is no flag: another cluster's have none."""
        self._seen = False
        self._position = bounds.flag or bounds.replication.transactions_after or bounds.last
        """The last entry that the state covers. ``_next_offset`` is the offset after it."""
        self._next_offset = bounds.next_offset
        self._loading: asyncio.Task[None] | None = None
        self._held: list[EntryEvents] | None = None
        """Events that arrived in the meantime, while older entries are read. None if some events were missed."""
        self._failed = False
        """The last load has failed, RETRY_S ago at most."""
        self.checkpoints = Checkpoints()
        self._looked_for_checkpoint = False
        self._knows_trimmed = False
        """What only the compacted log has is covered, up to the offset ``_trimmed_to``."""
        self._trimmed_to = -1
        self._written = 0
        self._keeping = SharedRun(self._keep_newest)
        self._past = PastAborted(NO_ENTRY)
        """The transactions that were aborted before those in the state."""
        self._cleaned = CleanedPlace(resources, pulsar_topic, is_compacted)
        self._drop_cached = drop_cached
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
        return self.loaded and self._flag.position is None and not self._seen

    def knows(self, fetch_offset: int) -> bool:
        """Whether the open transactions are known, and those that were aborted with records there."""
        return self.known_to(fetch_offset) > fetch_offset

    def known_to(self, fetch_offset: int) -> int:
        """All that were aborted with records from `fetch_offset` on and below the result are known, if ``knows``."""
        if self.loaded and self._flag.position is None and not self._seen:
            return EVERYTHING
        if not self.loaded or (self.flagged and self._cleaned.is_outdated):
            return fetch_offset
        offset = max(fetch_offset, self._start.offset)
        if offset >= self.state.aborted_from:
            return EVERYTHING
        found = self._past.known_to(offset)
        return found if found > offset else fetch_offset

    @property
    def last_stable_offset(self) -> int:
        """All transactions up to this offset are decided. Valid only if ``loaded``."""
        end_offset = self._end.next_offset
        if not self.state.open:
            return end_offset
        return max(self._start.offset, self.state.last_stable_offset(end_offset))

    def aborted_between(self, fetch_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in this range, in the order of their beginnings. Valid only if they are
        ``known_to`` its end."""
        from_offset = self.state.aborted_from
        found = self.state.aborted_between(max(fetch_offset, from_offset), upper_offset)
        if max(fetch_offset, self._start.offset) >= from_offset:
            return found
        return _in_order(self._past.between(max(fetch_offset, self._start.offset), upper_offset) + found)

    async def read_aborted(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """As ``aborted_between``, for any range. Raises PulsarError, KafkaError and TimeoutError."""
        found: list[AbortedTransaction] = []
        while from_offset < to_offset:
            await self.prepare_to_read(from_offset)
            upper_offset = min(self.known_to(from_offset), to_offset)
            found += self.aborted_between(from_offset, upper_offset)
            from_offset = upper_offset
        return _in_order(found)

    def of_producer(self, producer_id: int) -> OpenTransaction | None:
        """The producer's open transaction. Valid only if ``loaded``."""
        return self.state.open.get(producer_id)

    @property
    def open(self) -> Mapping[int, OpenTransaction]:
        """The open transactions by producer id. Valid only if ``loaded``."""
        return self.state.open

    def has_open(self, producer_id: int) -> bool | None:
        """Whether the producer has an open transaction; None if that is not known now."""
        if producer_id in self.state.open:
            return True
        return False if self.loaded else None

    def doubt(self, producer_id: int) -> None:
        """Verify the producer's batches again until a marker ends its transaction, although that is open."""
        self.verifications.doubt(producer_id)

    def is_doubted(self, producer_id: int, first_offset: int) -> bool:
        """Whether the transaction that began there is still open, and no batch of it was verified since the doubt."""
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
        return self.state.coordinator_epoch(producer_id)

    # The log grows

    def appended(self, position: Position, base_offset: int, next_offset: int, data: Buffer | None) -> None:
        """The log's end now moves to the end of this entry. ``data`` are its batches; None if none is transactional."""
        if base_offset != self._next_offset or not (self.loaded or self._loading is not None):
            self._not_taken(base_offset, data)
            return
        self._next_offset = next_offset
        if self.loaded:
            self._position = position
        if data is not None and (events := events_of(data, base_offset)):
            of_entry = EntryEvents(position, next_offset, events)
            if self.loaded:
                self._take(of_entry)
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

    def _take(self, entry: EntryEvents) -> None:
        is_much = False
        for event in entry.events:
            event.apply_to(self.state)
            if event.marker is not None:
                self.verifications.ended(event.producer_id)
                if event.marker.type is MarkerType.ABORT:
                    is_much = self.checkpoints.aborted() or is_much
        if is_much:
            self.checkpoints.keep_place(self._place(entry.position, entry.next_offset))
        self._seen = self._seen or bool(entry.events)
        newest = self.checkpoints.newest
        if self.state.aborted_count > MAX_ABORTED and newest is not None:
            self.state.keep_aborted(KEPT_ABORTED, told_below=newest.offset)
            self._past.extended(newest.entry)
        if entry.events:  # for example another cluster's transactions
            self._flag.start_writing()

    # Checkpoints

    def checkpoint_written(self, entry: Position, checkpoint: Checkpoint) -> None:
        """The checkpoint was sent with this entry, which is now in the log."""
        self.checkpoints.written(entry, checkpoint.offset)
        self._written += 1
        if self._written % KEPT_EVERY == 0:
            self._keeping.start()

    async def _keep_newest(self) -> None:
        if self.checkpoints.newest is not None:
            await keep(self._resources, self._topic, self.checkpoints.newest.entry)

    def next_tag(self, size_bytes: int, room_bytes: int) -> Tag:
        """The tag of an entry that is about to be sent."""
        if self.flagged or self._seen:
            return self.checkpoints.next_tag(size_bytes, room_bytes, self._checkpoint if self.loaded else None)
        self.start_loading(self._end.next_offset)  # what is not known here, the next gateway has to read
        return Tag(encode_none_up_to(self._position))

    def _checkpoint(self, kept: Checkpoint | None) -> Checkpoint:
        """The checkpoint for the kept place or, if there is none, for what is resolved by now."""
        place = kept or self._place(self._position, self._next_offset)
        newest = self.checkpoints.newest
        since, before = (0, NO_ENTRY) if newest is None else (newest.offset, newest.entry)
        aborted = tuple(self.state.aborted_from_to(since, place.offset))
        return place._replace(aborted=aborted, aborted_from=since, before=before)

    def cleaned_to(self, position: Position, offset: int, aborted: Sequence[AbortedTransaction]) -> Checkpoint:
        """Behind this entry, below which all is decided and only these may still have records. If it is ``loaded``."""
        return Checkpoint(position, offset, {}, tuple(aborted), ended=self.state.last_ended(MAX_ENDED))

    def _place(self, position: Position, next_offset: int) -> Checkpoint:
        """The open transactions after this entry, up to which all is applied, and the ones that ended last."""
        return Checkpoint(position, next_offset, dict(self.state.open), ended=self.state.last_ended(MAX_ENDED))

    # Loading

    async def prepare(self) -> None:
        """Wait until ``loaded``. Raises PulsarError, KafkaError and TimeoutError."""
        while not self.loaded:
            await outcome_of(self._loading or self._begin_loading(self._end.next_offset))

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
            self._forget()
            self._looked_for_checkpoint = True
            await self._load_present()

    def _forget(self) -> None:
        """Begin at the flag again."""
        self.loaded = self._looked_for_checkpoint = self._knows_trimmed = False
        self.state, self._position = PartitionTransactions(), self._flag.position or FROM_THE_START
        self.checkpoints, self._past = Checkpoints(), PastAborted(NO_ENTRY)
        self._cleaned.forget()

    async def _load_older(self, fetch_offset: int) -> None:
        """Read the checkpoints that have what was aborted there, and at first all checkpoints from there on."""
        while self.loaded and not self.knows(fetch_offset):
            past, cleaned, offset = self._past, self._cleaned.place, max(fetch_offset, self._start.offset)
            entry, found = past.wanted(offset), None
            if cleaned is not None and entry <= cleaned.position:
                past.ended(cleaned.position, self.state.aborted_from, cleaned.aborted, cleaned.offset)
                continue
            if entry != NO_ENTRY:
                compacted = cleaned is not None
                found = await read_checkpoint(self._resources, self._topic, entry, compacted=compacted)
            if past is not self._past or entry != past.wanted(offset):
                continue
            if found is not None:
                past.found(entry, found, offset)
            elif not await self._cleaned.moved():
                past.ended(entry, self.state.aborted_from)

    async def _begin_at_checkpoint(self) -> None:
        compacted = self._cleaned.place is not None
        found = await find_last(self._resources, self._topic, self._end.last, compacted=compacted)
        self._looked_for_checkpoint = True
        if found is not None and found[1].position > self._position:
            entry, checkpoint = found
            self.state, self._position, self._knows_trimmed = checkpoint.transactions(), checkpoint.position, True
            self._past, self._seen = PastAborted(checkpoint.before), True
            self.checkpoints.written(entry, checkpoint.offset)

    async def _begin_where_cleaned(self, *, read_meanwhile: bool = False) -> bool:
        """True if it was cleaned since: the state then begins there. What was read meanwhile may lack markers."""
        if not await self._cleaned.moved():
            return False
        cleaned = self._cleaned.place
        assert cleaned is not None
        if cleaned.position > self._position or read_meanwhile:
            self.state, self._position = cleaned.transactions(), cleaned.position
            self._past, self._seen = PastAborted(NO_ENTRY), True
            self._drop_cached()  # it does not name aborted records that were compacted away earlier
        return True

    async def _load_present(self) -> None:
        if self.flagged:
            await self._begin_where_cleaned()
            looks = not self._looked_for_checkpoint and not self._cleaned.hides_checkpoints
            if looks and self._position < self._end.last:
                await self._begin_at_checkpoint()
        while not self.loaded:
            last, self._next_offset = self._end.last, self._end.next_offset
            self._held = []
            was_read = True
            if last.entry_id < 0 and self._cleaned.compacted and await self._may_hold_transactions():
                cleaned = self._cleaned.place
                last = await self._scan_compacted(0 if cleaned is None else cleaned.offset, self._next_offset)
            elif self._position < last and await self._may_hold_transactions():
                await self._scan(last)
            else:
                was_read = False
            if was_read and self._cleaned.compacted and await self._begin_where_cleaned(read_meanwhile=True):
                continue
            self._position = last
            if self._held is not None:
                for entry in self._held:
                    self._take(entry)
                self._position, self.loaded = max(last, self._end.last), True
                self._may_lack_some = False

    async def _scan(self, last: Position) -> None:
        compacted = self._cleaned.place is not None
        async for entry in scan_events(self._resources, self._topic, self._position, last, compacted=compacted):
            if self._cleaned.compacted and not compacted and not self._knows_trimmed:
                await self._scan_trimmed(entry)
            self._take(entry)
            self._position = entry.position

    async def _scan_trimmed(self, first: EntryEvents) -> None:
        """Read what only the compacted log still has: retention has deleted the entries before the first one.

        A marker may be missing wherever entries are: what is open there is taken as decided, so that no transaction is
        open for ever, and nothing committed counts as a part of a later one that was aborted.
        """
        async for entry in scan_events(self._resources, self._topic, self._position, first.position, compacted=True):
            if entry.base_offset != self._trimmed_to:
                self.state.forget_open()
            if entry.position >= first.position:
                break
            self._take(entry)
            self._position, self._trimmed_to = entry.position, entry.next_offset
        if first.base_offset != self._trimmed_to:
            self.state.forget_open()
        self._knows_trimmed = True

    async def _scan_compacted(self, reached: int, end_offset: int) -> Position:
        """Read a log of which retention has left only what was compacted before. Returns the last entry that was read.

        The state covers the offsets below `reached`. An open transaction stays open only if the compacted entries reach
        up to the log's end: Pulsar's truncation may have deleted its marker, which was not compacted yet.
        """
        last = await self._resources.client.last_position(self._topic, read_compacted=True)
        async for entry in scan_events(self._resources, self._topic, self._position, last, compacted=True):
            if entry.next_offset > end_offset:  # written since: it is in `_held`
                break
            self._take(entry)
            self._position, reached = entry.position, max(reached, entry.next_offset)
        if reached < end_offset:
            self.state.forget_open()
        return self._position

    async def _may_hold_transactions(self) -> bool:
        if not self.flagged:
            await self._flag.look()
            if self.flagged:
                await self._begin_where_cleaned()
        return self._seen or self.flagged or self._may_lack_some

    async def prepare_to_append(self) -> None:
        """Wait until ``loaded``, and until the flag of a log with transactions is written. Raises as ``prepare``."""
        await self.prepare()
        await self._flag.ensure()

    def _last_before_any(self) -> Position:
        return FROM_THE_START if self._seen or self._may_lack_some else self._end.last

    def close(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
        self._flag.close()
        self._keeping.cancel()


def _in_order(aborted: Sequence[AbortedTransaction]) -> list[AbortedTransaction]:
    """Each once, in the order of their beginnings. Two checkpoints may have the same one, the later one in full."""
    found = {(each.producer_id, each.first_offset): each for each in aborted}
    return sorted(found.values(), key=attrgetter("first_offset"))
