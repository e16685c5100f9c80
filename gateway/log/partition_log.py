"""The log of one topic partition: where it starts and ends, its tail in memory, who writes it and who waits for it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

import structlog

from gateway.errors import KafkaError
from gateway.log.end_refresh import EndRefresh
from gateway.log.entries.chunked_messages import is_piece
from gateway.log.entries.decoding import OrderedConversions
from gateway.log.entries.log_entry import Buffer, LogEntry, from_pulsar
from gateway.log.entries.message_entry import Messages
from gateway.log.log_bounds import read_bounds
from gateway.log.log_end import UNKNOWN_OFFSET, LogEnd, Unresolved
from gateway.log.log_start import LogStart
from gateway.log.opening import LogBounds, Tail, read_tail, settled
from gateway.log.reading.cache import LogTail
from gateway.log.reading.positions import SparseIndex
from gateway.log.receipt_lookup import ReceiptLookup
from gateway.log.record_free import RecordFree
from gateway.log.shared import Shared
from gateway.log.shared_run import SharedRun
from gateway.log.tail_follower import TailFollower
from gateway.log.undispatched import undispatched_end
from gateway.log.waiters import QUIET_S, Waiters
from gateway.log.writing.appender import Appender, PendingBatch, SentEntry
from gateway.log.writing.known_producers import KnownProducers
from gateway.log.writing.producer_state import ActiveProducer, Done
from gateway.log.writing.writer import Writer
from gateway.pulsar.errors import ClientClosedError, ListenerError, PulsarError
from gateway.pulsar.position import Position
from gateway.pulsar.producer import STALLED_S, Producer
from gateway.pulsar.reader import Entry
from protocol.kafka.batch import BatchHeader, stamp_offsets
from protocol.kafka.errors import ErrorCode
from protocol.kafka.offset_span import empty_batches

log = structlog.get_logger()


class PartitionLog:
    """See the module; made by ``open_log``."""

    def __init__(
        self,
        pulsar_topic: str,
        shared: Shared,
        bounds: LogBounds,
        is_compacted: Callable[[], bool] = lambda: False,
        predecessor: Producer | None = None,
    ) -> None:
        self.pulsar_topic = pulsar_topic
        self.client = shared.client
        self.admin = shared.admin
        self.limits = shared.limits
        self.metrics = shared.metrics
        self.decoding = shared.decoding
        self.may_send_idempotent = shared.may_send_idempotent
        self.start = LogStart(self, bounds)
        self.last_used = time.monotonic()
        self.waiters = Waiters(self)
        self.record_free = RecordFree()
        self._shared = shared
        self._is_compacted = is_compacted
        self._end = LogEnd(bounds.last, bounds.next_offset)
        self._tail = LogTail(shared.cache)
        self._taken = self._taken_over = bounds.last
        self._known = KnownProducers(shared.limits.max_producers_per_partition, shared.producers)
        self._producers = self._known.state
        self._appender = Appender(self, predecessor)
        self._writer = Writer(self, self._appender)
        self._follower = TailFollower(self)
        self._conversions = OrderedConversions(
            self.decoding, self._convert, self._converted, self._conversion_failed, wanted=self._is_news,
            drained=self._all_converted,
        )  # fmt: skip
        self.end = EndRefresh(self, self._follower, shared.limits.refresh_timeout_ms, bounds.asked_at)
        self._lookup = ReceiptLookup(self, shared.readers.entries)
        self._written_at = 0.0
        self._judges_since = math.inf
        """What idempotent producers wrote is known since; nobody else lets them write while this log is open."""
        self._busy_since = 0.0
        self._catch_up = SharedRun(self.read_what_others_sent)
        self._closing: asyncio.Task[None] | None = None

    @property
    def compacted(self) -> bool:
        """Older data is read as Pulsar's compaction left it. Clients may change it at any time."""
        return self._is_compacted()

    # Writing

    @property
    def end_offset(self) -> int:
        """The high watermark: the offset behind the last batch known."""
        return self._end.next_offset

    @property
    def max_message_bytes(self) -> int | None:
        """What the broker takes as one entry; None while there is no producer."""
        return self._appender.producer.max_message_bytes if self._appender.producer else None

    def ready_for(self, header: BatchHeader, source: int, arrived_s: float = math.inf) -> bool:
        """``append`` may be called for this batch without ``prepare``."""
        if self._appender.producer is None or not self._appender.has_room:
            return False
        return header.producer_id < 0 or (self._known.loaded and self._may_judge(header, source, arrived_s))

    def _may_judge(self, header: BatchHeader, source: int, arrived_s: float) -> bool:
        """No other gateway can have had a batch of the producer that is not known here."""
        if self._catch_up.covers(arrived_s):
            return True
        if header.producer_id in self._producers:
            return self._producers.trusts(header, source, time.monotonic())
        return header.base_sequence == 0 and self._shared.producer_ids.allocated_after(
            header.producer_id, self._judges_since
        )

    async def prepare(self, header: BatchHeader, source: int, arrived_s: float = math.inf) -> None:
        """Have a producer; for an idempotent batch know what the log has of its producer. Raises PulsarError.

        For an idempotent batch the caller leads the partition, and nobody else does; it closes the log when that ends.

        ``source`` numbers the connection that the batch came over: behind a new one, its client may come from another
        gateway, which may have written the batch already; but not since it ``arrived_s`` (monotonic) here.
        """
        self._check_open()
        if self._appender.producer is None:
            await self._writer.wait()
        await self._appender.room.wait()
        if header.producer_id < 0:
            return
        if not self._known.loaded:
            await self._known.load(self._read_producers)
        elif self._may_judge(header, source, arrived_s):
            return
        elif self._producers.came_over(header, source):
            await self.end.refresh()
            return
        else:
            await self._catch_up.wait()
        self._judges_since = min(self._judges_since, time.monotonic())

    async def read_what_others_sent(self) -> None:
        """All that the broker had received at the time of the call. Raises PulsarError and TimeoutError."""
        await settled(self.admin, self.pulsar_topic)
        await self.end.refresh()

    async def active_producers(self) -> list[ActiveProducer]:
        """The idempotent producers of the log's end. Raises PulsarError and TimeoutError."""
        if self._known.loaded:
            await self.end.refresh()
        else:
            await self._known.load(self._read_producers)
        return self._producers.active()

    async def _read_producers(self, take: Callable[[LogEntry], None]) -> None:
        stats = await settled(self.admin, self.pulsar_topic)
        await self.end.refresh()
        tail = Tail(self._end.last, self._taken_over)
        await read_tail(self.client, self.admin, self.pulsar_topic, stats, tail, self.limits, self.decoding, take)

    def append(
        self, data: memoryview, header: BatchHeader, source: int, done: Done, messages: Messages | None = None
    ) -> bool:
        """Append one checked batch; ``done`` gets its base offset, or the error. Raises KafkaError at once.

        ``messages`` are its records as Pulsar messages, where the topic holds those.

        True if the batch repeats one of its producer's last five: then ``done`` gets that one's offset.
        """
        self._check_open()
        self.last_used = time.monotonic()
        if header.producer_id < 0:
            self._queue(PendingBatch(data, header.last_offset_delta + 1, None, done, messages))
            return False
        duplicate = self._producers.find_duplicate(header)
        if duplicate is None:
            sequenced = self._producers.begin(header)
            self._queue(PendingBatch(data, header.last_offset_delta + 1, sequenced, done, messages))
        elif duplicate.base_offset >= 0:
            done(duplicate.base_offset, None)
        else:
            duplicate.waiters.append(done)
        self._producers.heard(header, source, self.last_used)
        return duplicate is not None

    def has_passed(self, header: BatchHeader, sequence: int) -> bool:
        """The producer of ``header`` has written ``sequence``, or is about to, or its epoch is over."""
        return self._known.loaded and self._producers.has_passed(header, sequence)

    def _check_open(self) -> None:
        if self.closed:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the log is being opened anew")

    def _queue(self, batch: PendingBatch) -> None:
        if self._idle:
            self._busy_since = self.last_used
        try:
            self._appender.append(batch)
        except KafkaError as error:
            if batch.sequenced is not None:
                self._producers.abort(batch.sequenced, error)
            raise
        if self._appender.producer is None:  # it was lost after ``prepare``
            self._writer.open()

    @property
    def stalled(self) -> bool:
        """Batches wait, and for long none was written or refused. What holds them up, a new log may not have."""
        if self.closed or self._idle:
            return False
        return time.monotonic() - max(self._written_at, self._busy_since) > STALLED_S

    @property
    def _idle(self) -> bool:
        return self._appender.idle and not self._end.unresolved

    @property
    def lost_writer(self) -> Producer | None:
        """A producer that the broker may still know, and have entries of: the next one has to succeed it."""
        return self._appender.predecessor

    # What the appender reports

    def entry_written(self, sent: SentEntry, position: Position) -> None:
        def resolved(base_offset: int) -> None:
            self._entry_resolved(sent, position, base_offset)

        self._end.on_receipt(position, sent.count, resolved)
        self.end.known_up_to(self._end.last)
        if self._end.unresolved:
            self._follower.follow()
            self._lookup.watch()

    @property
    def first_unresolved(self) -> Unresolved | None:
        """The first receipt whose offset is not known."""
        return self._end.first_unresolved

    def receipt_looked_up(self, receipt: Unresolved, index: int) -> None:
        """Its entry's index is known, though nothing was read of it, nor perhaps of what others wrote before it."""
        base_offset = index - receipt.offset_count + 1
        if base_offset != self.end_offset:
            self.forget()
        self._end.on_entry(receipt.position, base_offset, index + 1)
        self.end.known_up_to(receipt.position)

    def _entry_resolved(self, sent: SentEntry, position: Position, base_offset: int) -> None:
        if base_offset == UNKNOWN_OFFSET:
            # It is in the log, which only one that reads its end anew can tell the producer when it asks again.
            self.start_closing()
            self._fail([sent], KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        if position > self._taken:  # else the follower was quicker than the receipt
            stamp_offsets(_writable(sent.data), base_offset)
            self._follower.own_entry_appended()
            self._take(LogEntry(position, base_offset, base_offset + sent.count, sent.data))
        self._complete(sent, base_offset)

    def _complete(self, sent: SentEntry, base_offset: int) -> None:
        self._written_at = time.monotonic()
        for batch in sent.batches:
            if batch.sequenced is not None:
                self._producers.complete(batch.sequenced, base_offset)
            batch.done(base_offset, None)
            base_offset += batch.count

    def entry_refused(self, sent: SentEntry, error: Exception) -> None:
        self._fail([sent], error)

    def refuse_in_flight(self) -> None:
        """It is not in the log, and will not be."""
        self._fail(self._appender.abandon_in_flight(), KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def _fail(self, entries: list[SentEntry], error: Exception) -> None:
        self._refuse([batch for sent in entries for batch in sent.batches], error)

    def _refuse(self, batches: list[PendingBatch], error: Exception) -> None:
        producer_ids = {batch.sequenced.producer_id for batch in batches if batch.sequenced is not None}
        # No batch may be written before an earlier one of its producer that will come again.
        followers = self._appender.take_queued(producer_ids) if producer_ids else []
        if followers:
            self._refuse(followers, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        for batch in reversed(batches):
            if batch.sequenced is not None:
                self._producers.abort(batch.sequenced, error)
        for batch in batches:
            batch.done(-1, error)

    def on_lease_lost(self) -> None:
        """Nothing of idempotent producers may be written any more that another leader would not see in the log."""
        self._refuse(self._appender.on_lease_lost(), KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def writer_lost(self, error: PulsarError) -> None:
        self._writer.lost(error)

    # Reading

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True) -> tuple[list[Buffer], int] | None:
        """(buffers, bytes) from ``offset`` on, empty at the end; None if they are neither in memory nor read ahead.

        Raises KafkaError OFFSET_OUT_OF_RANGE below the start; the caller checks the end.
        """
        self.last_used = time.monotonic()
        if offset >= self.end_offset:
            return [], 0
        found = self._tail.read(offset, max_bytes, at_least_one=at_least_one)
        if found is not None:
            self.metrics.cache_hits.inc()
        else:
            self.metrics.cache_misses.inc()
            found = self._shared.readers.read(self, offset, max_bytes, at_least_one=at_least_one)
        return None if found is None else (found.chunks, found.size_bytes)

    def position_before(self, offset: int) -> Position | None:
        """Where the last entry lies that ends at or before ``offset``; None if that is not in memory."""
        if offset == self.end_offset and self._end.last.entry_id >= 0:
            return self._end.last
        return self._tail.position_before(offset)

    @property
    def known_positions(self) -> SparseIndex:
        """Of older data that was read."""
        return self._shared.readers.index(self)

    def available_bytes(self, offset: int) -> int:
        """Bytes that a read at ``offset`` would find in memory."""
        return self._tail.available_bytes(offset)

    def is_read_ahead(self, offset: int) -> bool:
        """Older data from ``offset`` on has come from Pulsar."""
        return self._shared.readers.holds(self, offset)

    def prefetch(self, offset: int) -> None:
        """Start to read what ``read`` did not find; waiters hear of it."""
        self._shared.readers.start(self, offset)

    def forget(self) -> None:
        """What is in memory may not be in Pulsar any more."""
        self._tail.clear()

    # The end, as others move it

    def last_position(self) -> Position:
        return self._end.last

    def wants_entries(self) -> bool:
        """Whether the follower should have the broker send entries."""
        if self.closed:
            return False
        if self._end.unresolved or self.end.wanted:
            return True
        return self.waiters.at_end and time.monotonic() - self._written_at >= QUIET_S

    @property
    def converting(self) -> bool:
        """Entries that have come are not in the log yet."""
        return self._conversions.busy

    def _all_converted(self) -> None:
        if self.wants_entries():
            self.follow()

    def follow(self) -> None:
        self._follower.follow()

    def entry_read(self, entry: Entry) -> None:
        """The follower read an entry; it moves the end unless it was known."""
        self.metrics.entries_read.inc()
        self._conversions.take(entry)

    def _is_news(self, entry: Entry) -> bool:
        self.end.known_up_to(min(entry.position, self._end.last))
        return entry.position > self._end.last

    def _convert(self, entry: Entry) -> LogEntry | None:
        return from_pulsar(entry, max_bytes=self.limits.max_decompressed_bytes)

    def _converted(self, entry: Entry, read: LogEntry | None) -> None:
        if read is not None and entry.position > self._end.last:
            self._advance(entry, read)
        self.end.known_up_to(entry.position)

    async def pass_undispatched(self, last: Position) -> None:
        """Nothing comes: if brokers keep all entries up to the last one to themselves, know them all the same."""
        end_offset = await undispatched_end(self.admin, self.pulsar_topic, self._end.last, last)
        if end_offset is None or last <= self._end.last or end_offset <= self.end_offset:
            return
        base_offset = self.end_offset
        self._take(LogEntry(last, base_offset, end_offset, empty_batches(base_offset, end_offset)))
        self._end.on_entry(last, base_offset, end_offset)
        self.end.known_up_to(last)

    def _conversion_failed(self, error: Exception) -> None:
        self.reader_failed(ListenerError(repr(error)))

    def _advance(self, entry: Entry, read: LogEntry) -> None:
        claimed = self._appender.claim(entry.metadata.producer_name, entry.metadata.sequence_id)
        if read.base_offset != self.end_offset:
            self.forget()  # what lies between, if anything does, is not in memory: its readers look in Pulsar
        self._take(read)
        if is_piece(entry):
            self.forget()  # readers of older data put such messages together
        self._end.on_entry(read.position, read.base_offset, read.next_offset)
        if claimed is not None:
            self._complete(claimed, read.base_offset)
        else:
            self._known.appended(read)

    def _take(self, entry: LogEntry) -> None:
        self._taken = entry.position
        self._tail.append(entry)
        self.waiters.appended()

    def reader_failed(self, error: PulsarError) -> None:
        """The fate of what was written behind a gap cannot be told any more: the next log reads it from the start."""
        if not error.retriable:
            self.end.give_up(error)
            self.start_closing()

    # Its end of life

    @property
    def closed(self) -> bool:
        """To be replaced by a new log, once ``close`` has returned."""
        return self._closing is not None

    async def close(self) -> None:
        """Let go of Pulsar; the log may be opened again."""
        await asyncio.shield(self.start_closing())

    def start_closing(self) -> asyncio.Task[None]:
        """From now on it takes nothing more, and is ``closed``."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        return self._closing

    async def _close(self) -> None:
        self.waiters.wake()
        self.waiters.stop_watching()
        self._writer.cancel()
        self._known.close()
        self.start.close()
        self.end.close()
        self._catch_up.cancel()
        self._conversions.close()
        self._lookup.close()
        self._tail.clear()
        self._shared.readers.close_all(self)
        await self._follower.close()
        try:
            await self._appender.close()
        except PulsarError as error:
            log.info("producer not closed in order", topic=self.pulsar_topic, error=str(error))
        self._appender.fail_queued(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        self.refuse_in_flight()
        self.end.give_up(ClientClosedError("the log was closed"))
        for waiting in self._end.abandon():
            waiting.resolve(UNKNOWN_OFFSET)
        self.waiters.wake()


async def open_log(
    pulsar_topic: str,
    shared: Shared,
    is_compacted: Callable[[], bool] = lambda: False,
    predecessor: Producer | None = None,
) -> PartitionLog:
    """Find both ends of a partition's log; ``predecessor`` wrote it before. Raises PulsarError."""
    bounds = await read_bounds(shared.client, shared.admin, pulsar_topic)
    return PartitionLog(pulsar_topic, shared, bounds, is_compacted, predecessor)


def _writable(data: Buffer) -> bytearray | memoryview:
    assert not isinstance(data, bytes)
    return data
