"""The log of one topic partition: its parts, and the data that they exchange.

Receipts of entries that were written here, and entries that the follower has read, move the end of the log. Such an
entry goes into the tail cache and wakes the waiting fetches, and the clients of its batches get their answers.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence

from gateway.background import report
from gateway.errors import KafkaError
from gateway.log.bounds.end_target import EndTarget
from gateway.log.bounds.log_bounds import LogBounds, read_bounds
from gateway.log.bounds.log_end import UNKNOWN_OFFSET, LogEnd, Receipt, Resolved
from gateway.log.entries.chunked_messages import is_piece
from gateway.log.entries.log_entry import LogEntry
from gateway.log.entries.message_entry import EncodedEntry, Messages, encode_no_record, encode_removals
from gateway.log.reading.cache import LogTail
from gateway.log.reading.end_refresh import EndRefresh
from gateway.log.reading.held_back import HeldBackEntries
from gateway.log.reading.log_reader import LogReader
from gateway.log.reading.log_start import LogStart
from gateway.log.reading.passed_times import PassedTimes
from gateway.log.reading.read_source import ReadSource
from gateway.log.reading.receipt_lookup import ReceiptLookup
from gateway.log.reading.tail_follower import TailFollower
from gateway.log.reading.waiters import Waiters
from gateway.log.record_free import RecordFree
from gateway.log.shared import Shared
from gateway.log.transactions.log_transactions import LogTransactions
from gateway.log.transactions.transactional_writes import TransactionalWrites
from gateway.log.writing.known_producers import KnownProducers
from gateway.log.writing.log_writer import LogWriter
from gateway.log.writing.pending_batch import SentEntry
from gateway.log.writing.producer_state import Done
from gateway.pulsar.errors import ClientClosedError
from gateway.pulsar.position import Position
from gateway.pulsar.producer import Producer
from gateway.pulsar.reader import Entry
from protocol.kafka.batch import BatchHeader, iter_headers, stamp_offsets
from protocol.kafka.errors import ErrorCode
from protocol.kafka.offset_span import gap_batch, gap_batches, is_gap


class PartitionLog:
    """See the module's docstring. ``open_log`` creates instances."""

    def __init__(
        self,
        pulsar_topic: str,
        shared: Shared,
        bounds: LogBounds,
        compaction: Callable[[], int] = lambda: 0,
        predecessor: Producer | None = None,
    ) -> None:
        topic, resources = pulsar_topic, shared.resources
        self.resources = resources
        self.record_free = RecordFree()
        self.passed_times = PassedTimes()
        self._shared = shared
        self._end = end = LogEnd[SentEntry](bounds.last, bounds.next_offset)
        self._target = EndTarget()
        self._tail = LogTail(shared.cache)
        self._taken = bounds.last
        """The last entry that is, or was, in the tail cache."""
        self.waiters = Waiters(self._on_quiet)
        self.start = LogStart(topic, resources, bounds, end, self._tail, self.waiters, compaction)
        self.source = ReadSource(topic, self.start, end, self.waiters, compaction)
        self.reader = LogReader(self.source, self._tail, shared.readers, resources.metrics)
        self._follower = TailFollower(
            topic, resources, end, self._target, self.waiters, self._entry_read, self.start_closing
        )
        self.end = EndRefresh(
            resources.client, resources.admin, self._follower, self._target, self._undispatched,
            shared.limits.refresh_timeout_ms, HeldBackEntries(topic, resources, end, self._held_back_read),
            bounds.asked_at, is_doubtful=bounds.has_newer_ledger,
        )  # fmt: skip
        self.producers = KnownProducers(
            topic, resources, end, self.end, shared.producer_ids, shared.producers, shared.names,
            lambda: self.writer.producer_name,
        )  # fmt: skip
        self.writer = LogWriter(
            topic, resources, shared.may_send_idempotent, end, self.producers.state, self.end.read_what_others_sent,
            self._written, predecessor, shared.names, compaction,
        )  # fmt: skip
        self.transactions = LogTransactions(
            topic, resources, bounds, end, self.start, self.waiters, self.writer.tag_entries, compaction,
            self._drop_cached,
        )  # fmt: skip
        self.transactional_writes = TransactionalWrites(
            self.transactions, self.writer.append_control, self.producers.state.fence
        )
        self.producers.state.has_transaction = self.transactions.has_open
        self.producers.state.on_copied = self.writer.answer_copied
        self._lookup = ReceiptLookup(topic, shared.readers.entries, end, self._receipt_found)
        self.closed = False
        """Whether a new log has to replace this one, once ``close`` has returned."""
        self.follows_leader = False
        """Consumers read here while another gateway led the partition: what that one deleted may not be known."""
        self._closing: asyncio.Task[None] | None = None

    @property
    def end_offset(self) -> int:
        """The high watermark: the offset after the last known batch that readers get."""
        return self._end.next_offset

    @property
    def written_offset(self) -> int:
        """The offset after the last batch that is known to be written. Brokers may hold it back."""
        return self._end.written_offset

    @property
    def last_used(self) -> float:
        """When a client last read or wrote, by the monotonic clock."""
        return max(self.reader.last_used, self.writer.last_used)

    # Writing

    def ready_for(self, header: BatchHeader, source: int, arrived_s: float = math.inf) -> bool:
        """Whether ``append`` may be called for this batch without ``prepare``."""
        return self.writer.ready and (
            header.producer_id < 0
            or (
                self.producers.may_judge(header, source, arrived_s)
                and not (header.is_transactional and self.transactional_writes.needs_verification(header))
            )
        )

    def lacks_verification(self, header: BatchHeader, source: int, arrived_s: float = math.inf) -> bool:
        """Whether a verification is all that ``ready_for`` lacks, and the log knows its transactions."""
        transactions = self.transactions
        return (
            header.is_transactional
            and header.producer_id >= 0
            and transactions.loaded
            and transactions.flagged
            and self.transactional_writes.needs_verification(header)
            and self.writer.ready
            and self.producers.may_judge(header, source, arrived_s)
        )

    async def prepare(self, header: BatchHeader, source: int, arrived_s: float = math.inf) -> None:
        """Get a Pulsar producer; for an idempotent batch, read what the log has of its producer. Raises PulsarError.

        For an idempotent batch the caller must be the only leader of the partition. It closes the log when that ends.

        ``source`` is the number of the batch's connection: the client of a new connection may come from another
        gateway, which may have written the batch already, but not after ``arrived_s`` (monotonic), when the batch
        arrived here.
        """
        self._check_open()
        if header.producer_id >= 0:
            self.producers.leads_alone()
        await self.writer.wait_until_ready()
        if header.producer_id >= 0:
            await self.producers.prepare(header, source, arrived_s)
            if header.is_transactional:
                await self.transactions.prepare_to_append()

    async def prepare_for_producers(self) -> None:
        """The same as ``prepare``, for idempotent batches that may come."""
        self._check_open()
        self.producers.leads_alone()
        await self.writer.wait_until_ready()
        await self.producers.load()

    async def prepare_marker(self) -> None:
        """The same as ``prepare``, for ``transactional_writes.append_marker``."""
        await self.prepare_for_producers()
        await self.transactions.prepare_to_append()
        self._check_open()

    def append(
        self, data: memoryview, header: BatchHeader, source: int, done: Done, messages: Messages | None = None
    ) -> bool:
        """Append one checked batch. ``done`` gets its base offset, or the error. Raises KafkaError if it is refused.

        ``messages`` are its records as Pulsar messages, if the topic stores messages.

        True if the batch repeats one of its producer's last five: ``done`` then gets the offset of that one.
        """
        if self.closed:
            self._check_open()
        if header.producer_id >= 0:
            if self.producers.has_missed:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the log is being read")
            self.transactional_writes.check(header)
        return self.writer.append(data, header, source, done, messages)

    async def append_removals(self, compaction_keys: Sequence[bytes]) -> None:
        """Append tombstones of compaction keys, as the leader, and wait until they are written.

        Raises PulsarError, and KafkaError.
        """
        await self._append_gap(len(compaction_keys), encode_removals(compaction_keys), is_removal=True)

    async def append_checkpoint(self) -> None:
        """Append an entry for the sake of its checkpoint. Waits and raises as ``append_removals``."""
        self.transactions.prefix.checkpoints.want()
        await self._append_gap(1, encode_no_record(), is_removal=False)

    async def _append_gap(self, count: int, entry: EncodedEntry, *, is_removal: bool) -> None:
        await self.writer.wait_until_ready()
        self._check_open()
        await self.writer.append_gap(memoryview(gap_batch(0, count)), count, entry, is_removal=is_removal)

    def _check_open(self) -> None:
        if self.closed:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the log is being opened again")

    # What moves the end

    def _written(self, resolved: list[Resolved[SentEntry]]) -> None:
        self._answer(resolved)
        self._target.known_up_to(self._end.last)
        if self._end.unresolved:
            self._follower.follow()
            self._lookup.watch()

    def _receipt_found(self, receipt: Receipt[SentEntry], index: int, is_held_back: bool) -> None:
        """The entry was looked up for its receipt. It was not read, nor perhaps others' entries before it."""
        base_offset = index - receipt.offset_count + 1
        if is_held_back:
            self._answer(self._end.on_held_back(receipt, base_offset))
            return
        if base_offset != self.end_offset:
            self._tail.clear()
            self._skipped()
        self._answer(self._end.on_entry(receipt.position, base_offset, index + 1))
        self._target.known_up_to(self._end.last)

    def _skipped(self) -> None:
        """Others' entries before one of ours were not read."""
        self.producers.missed()
        self.transactions.skipped()

    def _entry_read(self, entry: Entry, read: LogEntry) -> bool:
        claimed = self.writer.claim(entry.metadata.producer_name, entry.metadata.sequence_id)
        if read.base_offset != self.end_offset:
            self._tail.clear()  # entries before it may not be in memory: readers look in Pulsar
        self._take(read)
        if is_piece(entry):
            self._tail.clear()  # catch-up readers assemble chunked messages
        was_held_back = self._end.is_held_back
        resolved = self._end.on_entry(read.position, read.base_offset, read.next_offset)
        for receipt, base_offset in resolved:
            if receipt.position < read.position and base_offset != UNKNOWN_OFFSET:  # the follower skipped it
                self._skipped()
                self._decided(receipt, base_offset)
        self.transactions.appended(read.position, read.base_offset, read.next_offset, read.data)
        if self.transactions.flagged:
            self.transactions.prefix.seen_in_log(entry, is_copy=read.is_copy)
        elif read.is_copy:
            self.transactions.replicated()
        self._skip_held_back(read.position, was_held_back=was_held_back)
        self._answer(resolved)
        if claimed is None:
            self.producers.appended(read)
        else:
            self.writer.complete(claimed, read.base_offset, time.monotonic())
        return claimed is not None

    def _undispatched(self, last: Position, end_offset: int) -> None:
        base_offset = self.end_offset
        if last > self._end.last and end_offset >= base_offset:
            if end_offset > base_offset:
                self._take(LogEntry(last, base_offset, end_offset, gap_batches(base_offset, end_offset)))
            was_held_back = self._end.is_held_back
            resolved = self._end.on_entry(last, base_offset, end_offset)
            self.transactions.appended(last, base_offset, end_offset, None)
            self._skip_held_back(last, was_held_back=was_held_back)
            self._answer(resolved)
            self._target.known_up_to(self._end.last)

    def _answer(self, resolved: list[Resolved[SentEntry]]) -> None:
        now_s = time.monotonic()
        for receipt, base_offset in resolved:
            position, count, sent = receipt
            if base_offset == UNKNOWN_OFFSET:
                # The entry is in the log, but only a log that reads its end anew can recognize the producer's retry.
                self.start_closing()
                self.writer.refuse(sent, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
                continue
            if position > self._end.last:
                self._held_back(receipt)
                self.writer.complete(sent, base_offset, now_s)
                continue
            was_read = position <= self._taken  # the follower was faster than the receipt
            self._follower.own_entry_written(now_s, was_read=was_read)
            if not was_read:
                assert not isinstance(sent.data, bytes)
                stamp_offsets(sent.data, base_offset)
                self._take(LogEntry(position, base_offset, base_offset + count, sent.data))
            self._decided(receipt, base_offset)
            self.writer.complete(sent, base_offset, now_s)

    def _decided(self, receipt: Receipt[SentEntry], base_offset: int) -> None:
        """The offset of an entry of ours is known."""
        position, count, sent = receipt
        data = sent.data if sent.is_transactional else None
        self.transactions.appended(position, base_offset, base_offset + count, data)
        if sent.checkpoint is not None:
            self.transactions.checkpoint_written(position, sent.checkpoint)

    def _held_back(self, receipt: Receipt[SentEntry]) -> None:
        """The entry of ours is written. It will be read from Pulsar when the broker dispatches it."""
        position, _, sent = receipt
        if sent.is_transactional:
            self._suspect_ended(sent.data)
        if sent.checkpoint is not None:
            self.transactions.checkpoint_written(position, sent.checkpoint)

    def _held_back_read(self, entry: Entry, read: LogEntry) -> None:
        """An entry that readers do not get yet was looked up: it may be in flight, or of the leader before."""
        self._suspect_ended(read.data)
        claimed = self.writer.claim(entry.metadata.producer_name, entry.metadata.sequence_id)
        if claimed is None:
            self.producers.appended(read)
        else:
            self.writer.complete(claimed, read.base_offset, time.monotonic())

    def _suspect_ended(self, held_back: bytes | bytearray | memoryview) -> None:
        """Until its marker is read, a transaction that has ended seems to be open."""
        for _, header in iter_headers(held_back):
            if header.is_control and not is_gap(header):
                self.transactions.suspect_hanging(header.producer_id)

    def _skip_held_back(self, read: Position, *, was_held_back: bool) -> None:
        """The end may have moved from this entry over entries that were held back: they are not in memory."""
        if was_held_back and not self._end.is_held_back and self._end.last > read:
            self._tail.clear()
            self.transactions.appended(self._end.last, self.end_offset, self.end_offset, None)
            self.waiters.wake()

    def _drop_cached(self) -> None:
        self._tail.clear()
        self._shared.readers.close_all(self.source)

    def _on_quiet(self) -> bool:
        return self._follower.follow_if_wanted()

    def _take(self, entry: LogEntry) -> None:
        self._taken = entry.position
        self._tail.append(entry)
        self.waiters.appended()

    # Closing

    async def close(self) -> None:
        """Release what this log uses of Pulsar. The log may then be opened again."""
        await asyncio.shield(self.start_closing())

    def start_closing(self) -> asyncio.Task[None]:
        """From now on the log accepts nothing more, and is ``closed``."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
            self.closed = self.source.closed = True
            self.waiters.stop_watching()
            self._follower.stop()
            self.writer.stop()
        return self._closing

    async def _close(self) -> None:
        self.waiters.wake()
        for close in (
            self.producers.close, self.start.close, self.end.close, self._lookup.close, self.transactions.close,
            self._drop_cached, self._follower.close,
        ):  # fmt: skip
            try:
                close()
            except Exception as defect:  # in the gateway: the next log waits for the end of this one
                report("closing of a log", defect)
        try:
            await self.writer.close()
        except Exception as defect:
            report("closing of a log", defect)
        self._target.fail(ClientClosedError("the log was closed"))
        self._answer([Resolved(receipt, UNKNOWN_OFFSET) for receipt in self._end.abandon()])
        await self.writer.all_answered()  # before a new log is opened, which knows nothing of what was refused
        self._tail.clear()  # what was written meanwhile
        self.waiters.wake()


async def open_log(
    pulsar_topic: str,
    shared: Shared,
    compaction: Callable[[], int] = lambda: 0,
    predecessor: Producer | None = None,
) -> PartitionLog:
    """Find both ends of a partition's log, and open it. ``predecessor`` wrote to it before. Raises PulsarError."""
    bounds = await read_bounds(shared.resources.client, shared.resources.admin, pulsar_topic)
    opened = PartitionLog(pulsar_topic, shared, bounds, compaction, predecessor)
    if bounds.start_reader is not None:
        shared.readers.keep(opened.source, bounds.start_reader)
    opened.transactions.start_loading(opened.end_offset)
    return opened
