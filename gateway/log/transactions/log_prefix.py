"""The transactions of a log up to one of its entries, and how it gets there: by what is read from Pulsar.

It begins at the newest checkpoint, or where a compacted log was cleaned, and reads on from there. Where a log has only
compacted entries left, markers may be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.log.resources import Resources
from gateway.log.transactions.aborted_list import AbortedTransaction
from gateway.log.transactions.checkpoint import MAX_ENDED, NO_ENTRY, Checkpoint
from gateway.log.transactions.checkpoints import Checkpoints, find_last
from gateway.log.transactions.cleaned import CleanedPlace
from gateway.log.transactions.events import EntryEvents
from gateway.log.transactions.past_aborted import PastAborted
from gateway.log.transactions.scan import scan_events
from gateway.log.transactions.state import PartitionTransactions
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry
from protocol.kafka.transaction_marker import MarkerType

MAX_ABORTED, KEPT_ABORTED = 50_000, 25_000
"""The aborted transactions of one log in memory: above the first number, the oldest ones are removed down to the
second. They are looked up again when needed."""


class LogPrefix:
    __slots__ = (
        "_cleaned", "_drop_cached", "_has_copies", "_knows_trimmed", "_looked_for_checkpoint", "_on_taken",
        "_resources", "_topic", "_trimmed_to", "checkpoints", "past", "position", "seen", "state",
    )  # fmt: skip

    def __init__(
        self,
        pulsar_topic: str,
        resources: Resources,
        cleaned: CleanedPlace,
        position: Position,
        on_taken: Callable[[EntryEvents], None],
        drop_cached: Callable[[], None],
    ) -> None:
        """``on_taken`` gets each entry with events. ``drop_cached`` has readers read all entries again."""
        self.position = position
        """The last entry that the state covers."""
        self.state = PartitionTransactions()
        self.seen = False
        """There was a transaction."""
        self._has_copies = False
        """Other clusters write to the log."""
        self.checkpoints = Checkpoints()
        self.past = PastAborted(NO_ENTRY)
        """The transactions that were aborted before those in the state."""
        self._topic = pulsar_topic
        self._resources = resources
        self._cleaned = cleaned
        self._on_taken = on_taken
        self._drop_cached = drop_cached
        self._looked_for_checkpoint = False
        self._knows_trimmed = False
        """What only the compacted log has is covered, up to the offset ``_trimmed_to``."""
        self._trimmed_to = -1

    def forget(self, position: Position, *, without_checkpoint: bool = False) -> None:
        """Begin behind that entry again."""
        self._looked_for_checkpoint, self._knows_trimmed = without_checkpoint, False
        self.state, self.position = PartitionTransactions(), position
        self.checkpoints, self.past = Checkpoints(), PastAborted(NO_ENTRY)
        self._cleaned.forget()

    def take(self, entry: EntryEvents) -> None:
        """Apply what the next entry says. The caller moves the position."""
        self._has_copies = self._has_copies or entry.is_copy
        if not entry.events:
            return
        is_much = False
        for event in entry.events:
            event.apply_to(self.state)
            if event.marker is not None and event.marker.type is MarkerType.ABORT:
                is_much = self.checkpoints.aborted() or is_much
        if is_much:
            self.checkpoints.keep_place(self.place(entry.position, entry.next_offset))
        self.seen = True
        self._forget_old_aborted()
        self._on_taken(entry)

    def _forget_old_aborted(self) -> None:
        newest = self.checkpoints.newest
        if self.state.aborted_count > MAX_ABORTED and newest is not None:
            before = self.state.aborted_from
            self.state.keep_aborted(KEPT_ABORTED, told_below=newest.offset)
            if self.state.aborted_from > before:
                self.past.extended(newest.entry)

    def checkpoint_written(self, entry: Position, offset: int) -> None:
        """The entry with this gateway's checkpoint is in the log."""
        self.checkpoints.written(entry, offset)
        self._forget_old_aborted()

    def seen_in_log(self, entry: Entry, *, is_copy: bool) -> None:
        """An entry of a log with transactions was read, which another gateway may have written."""
        self.checkpoints.seen(entry)
        self._has_copies = self._has_copies or is_copy

    @property
    def lacks_checkpoint(self) -> bool:
        """A new leader has to read much, because only other clusters have written to the log for long.

        A compacted log has no entries for the sake of checkpoints alone: compaction would remove them, and the cleaning
        says how far it has come.
        """
        may_have_one = self.seen and self._has_copies and not self._cleaned.compacted
        return may_have_one and self.checkpoints.is_far_behind(self.position)

    def place(self, position: Position, next_offset: int) -> Checkpoint:
        """The open transactions after this entry, up to which all is applied, and the ones that ended last."""
        return Checkpoint(position, next_offset, dict(self.state.open), ended=self.state.last_ended(MAX_ENDED))

    def cleaned_to(
        self, position: Position, offset: int, aborted: Sequence[AbortedTransaction], compacted_to: Position
    ) -> Checkpoint:
        """Behind this entry, below which all is decided and only these may still have records, as long as Pulsar has
        compacted the log up to ``compacted_to``. If it is ``loaded``."""
        ended = self.state.last_ended(MAX_ENDED)
        return Checkpoint(position, offset, {}, tuple(aborted), before=compacted_to, ended=ended)

    # Where it begins

    async def begin_at_checkpoint(self, last: Position) -> None:
        """Look for a checkpoint once."""
        if self._looked_for_checkpoint or self._cleaned.hides_checkpoints or self.position >= last:
            return
        compacted = self._cleaned.place is not None
        found = await find_last(self._resources, self._topic, last, compacted=compacted)
        self._looked_for_checkpoint = True
        if found is not None and found[1].position > self.position:
            entry, checkpoint = found
            self.state, self.position, self._knows_trimmed = checkpoint.transactions(), checkpoint.position, True
            self.past, self.seen = PastAborted(checkpoint.before), True
            self.checkpoints.written(entry, checkpoint.offset)

    async def begin_where_cleaned(self, *, read_meanwhile: bool = False) -> bool:
        """True if it was cleaned since: the state then begins there. What was read meanwhile may lack markers."""
        if not await self._cleaned.moved():
            return False
        cleaned = self._cleaned.place
        assert cleaned is not None
        if cleaned.position > self.position or read_meanwhile:
            self.state, self.position = cleaned.transactions(), cleaned.position
            self.past, self.seen = PastAborted(NO_ENTRY), True
            self._drop_cached()  # it does not name aborted records that were compacted away earlier
        return True

    # Reading on

    async def read_to(self, last: Position) -> None:
        """Raises PulsarError, KafkaError and TimeoutError, as all that read."""
        compacted = self._cleaned.place is not None
        async for entry in scan_events(self._resources, self._topic, self.position, last, compacted=compacted):
            if self._cleaned.compacted and not compacted and not self._knows_trimmed:
                await self._read_trimmed(entry)
            self.take(entry)
            self.position = entry.position

    async def _read_trimmed(self, first: EntryEvents) -> None:
        """Read what only the compacted log still has: retention has deleted the entries before the first one.

        A marker may be missing wherever entries are: what is open there is taken as decided, so that no transaction is
        open for ever, and nothing committed counts as a part of a later one that was aborted.
        """
        async for entry in scan_events(self._resources, self._topic, self.position, first.position, compacted=True):
            if entry.base_offset != self._trimmed_to:
                self.state.forget_open()
            if entry.position >= first.position:
                break
            self.take(entry)
            self.position, self._trimmed_to = entry.position, entry.next_offset
        if first.base_offset != self._trimmed_to:
            self.state.forget_open()
        self._knows_trimmed = True

    async def read_compacted(self, end_offset: int) -> None:
        """Read a log of which retention has left only what was compacted before.

        An open transaction stays open only if the compacted entries reach up to the log's end: Pulsar's truncation may
        have deleted its marker, which was not compacted yet.
        """
        reached = 0 if self._cleaned.place is None else self._cleaned.place.offset
        last = await self._resources.client.last_position(self._topic, read_compacted=True)
        async for entry in scan_events(self._resources, self._topic, self.position, last, compacted=True):
            if entry.next_offset > end_offset:  # written since: its events are held
                break
            self.take(entry)
            self.position, reached = entry.position, max(reached, entry.next_offset)
        if reached < end_offset:
            self.state.forget_open()
