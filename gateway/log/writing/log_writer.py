"""Writing to one log: batches are checked, queued and sent, and their clients get the outcome.

When Pulsar loses the producer, entries in flight may or may not be in the log. The new producer continues where the
lost one stopped, and the log is read to its end before anything is sent. What is not in the log is sent again, first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

from gateway.background import report
from gateway.errors import KafkaError
from gateway.log.bounds.log_end import LogEnd, Receipt, Resolved
from gateway.log.entries.message_entry import EncodedEntry, Messages
from gateway.log.resources import Resources
from gateway.log.transactions.checkpoints import NextTag
from gateway.log.writing.appender import Appender
from gateway.log.writing.pending_batch import PendingBatch, SentEntry
from gateway.log.writing.producer_state import Done, ProducerState, answer
from gateway.log.writing.producer_supply import ProducerSupply
from gateway.log.writing.writer_names import WriterNames
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.position import Position
from gateway.pulsar.producer import STALLED_S, Producer
from protocol.kafka.batch import BatchHeader
from protocol.kafka.errors import ErrorCode

ANSWERED_AT_ONCE = 100
"""Refused batches whose clients get their errors in one turn of the event loop: each takes up to 30 microseconds."""

log = structlog.get_logger()


class LogWriter:
    """Owns the batches that wait or are in flight. An AppendListener."""

    def __init__(
        self,
        pulsar_topic: str,
        resources: Resources,
        may_send_idempotent: Callable[[], bool],
        end: LogEnd[SentEntry],
        producers: ProducerState,
        read_what_others_sent: Callable[[], Awaitable[object]],
        on_resolved: Callable[[list[Resolved[SentEntry]]], None],
        predecessor: Producer | None,
        names: WriterNames,
        compaction: Callable[[], int],
    ) -> None:
        """``on_resolved`` gets the entries whose offsets a receipt has made known; some wait for others' entries.

        The caller then decides the outcome of each entry: ``complete`` or ``refuse``.
        """
        self._topic = pulsar_topic
        self._end = end
        self._producers = producers
        self._read_what_others_sent = read_what_others_sent
        self._on_resolved = on_resolved
        self._appender = Appender(
            resources.limits, resources.metrics, may_send_idempotent, self, predecessor, compaction
        )
        self._supply = ProducerSupply(
            pulsar_topic, resources.client, resources.writing_turns, self._appender, self._resolve_in_flight, names
        )
        self.last_used = 0.0
        self._written_at = 0.0
        self._busy_since = 0.0
        self._stopped = False
        self._refused: list[tuple[Done, Exception]] = []
        """The clients that do not have their errors yet. A list, because an empty deque takes 760 bytes."""
        self._answers_later = False
        """Some get them in a later turn of the event loop."""

    def tag_entries(self, next_tag: NextTag) -> None:
        """From now on each entry carries, besides its batches, what ``next_tag`` returns when the entry is sent."""
        self._appender.next_tag = next_tag

    # State

    @property
    def ready(self) -> bool:
        """Whether ``append`` may be called without ``wait_until_ready``."""
        appender = self._appender
        return appender.producer is not None and appender.has_room

    async def wait_until_ready(self) -> None:
        """Wait for a producer and for room in the queue. Raises PulsarError, and KafkaError if it takes too long."""
        if self._appender.producer is None:
            await self._supply.wait()
        await self._appender.wait_for_room()

    @property
    def producer_name(self) -> str:
        """Empty while there is no producer."""
        return "" if self._appender.producer is None else self._appender.producer.name

    @property
    def lost_producer(self) -> Producer | None:
        """A producer that the broker may still know and have entries of. The next producer has to succeed it."""
        return self._appender.predecessor

    @property
    def stalled(self) -> bool:
        """Batches wait, and none was written for STALLED_S. The cause may not affect a newly opened log."""
        if self._stopped or self._idle:
            return False
        return time.monotonic() - max(self._written_at, self._busy_since) > STALLED_S

    @property
    def _idle(self) -> bool:
        return self._appender.idle and not self._end.unresolved

    # Batches

    def append(
        self, data: memoryview, header: BatchHeader, source: int, done: Done, messages: Messages | None = None
    ) -> bool:
        """See ``PartitionLog.append``."""
        now_s = self.last_used = time.monotonic()
        if header.producer_id < 0:
            self._queue(PendingBatch(data, header.last_offset_delta + 1, None, done, messages), now_s)
            return False
        if self._answers_later:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "earlier batches are being refused")
        duplicate = self._producers.find_duplicate(header)
        if duplicate is None:
            sequenced, count = self._producers.begin(header), header.last_offset_delta + 1
            transactional = header.is_transactional
            self._queue(PendingBatch(data, count, sequenced, done, messages, is_transactional=transactional), now_s)
        elif duplicate.base_offset >= 0:
            done(duplicate.base_offset, None)
        else:
            duplicate.waiters.append(done)
        self._producers.accepted(header, source, now_s)
        return duplicate is not None

    def append_control(self, data: memoryview, done: Done, messages: EncodedEntry | None) -> None:
        """Queue a control batch, which takes one offset. Raises KafkaError."""
        now_s = self.last_used = time.monotonic()
        self._queue(PendingBatch(data, 1, None, done, messages, is_transactional=True, leased=True), now_s)

    async def append_gap(self, data: memoryview, count: int, entry: EncodedEntry, *, is_removal: bool) -> None:
        """Append the leader's messages that are no records, ``data`` in their place. Returns when they are written.

        Raises PulsarError, and KafkaError.
        """
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(_: int, error: Exception | None) -> None:
            if written.done():
                return
            if error is None:
                written.set_result(None)
            else:
                written.set_exception(error)

        self._queue(PendingBatch(data, count, None, done, entry, leased=True, is_removal=is_removal), time.monotonic())
        await written

    def _queue(self, batch: PendingBatch, now_s: float) -> None:
        if self._appender.idle and not self._end.unresolved:
            self._busy_since = now_s
        try:
            self._appender.append(batch)
        except KafkaError as error:
            if batch.sequenced is not None:
                self._producers.abort(batch.sequenced, error)
            raise
        if self._appender.producer is None:  # the producer was lost after ``wait_until_ready``
            self._supply.open()

    def claim(self, producer_name: str, sequence_id: int) -> SentEntry | None:
        """The entry in flight that was just read from the log: it needs no receipt. None if it is not in flight."""
        return self._appender.claim(producer_name, sequence_id)

    def complete(self, sent: SentEntry, base_offset: int, now_s: float) -> None:
        """The entry is in the log: answer its clients."""
        self._written_at = now_s
        for batch in sent.batches:
            if batch.sequenced is not None:
                self._producers.complete(batch.sequenced, base_offset)
            try:  # as `answer`, in place
                batch.done(base_offset, None)
            except Exception as defect:
                report("answer of a batch", defect)
            base_offset += batch.count

    def refuse(self, sent: SentEntry, error: Exception) -> None:
        """The clients of the entry get the error and have to retry."""
        self._refuse(sent.batches, error)

    def _refuse(self, batches: list[PendingBatch], error: Exception, *, overtaken: Exception | None = None) -> None:
        """`overtaken` is the error of batches that precede others of their producer which are not refused."""
        producer_ids = {batch.sequenced.producer_id for batch in batches if batch.sequenced is not None}
        # No batch may be written before an earlier batch of its producer that the client will send again.
        followers = self._appender.take_queued(producer_ids) if producer_ids else []
        if followers:
            self._refuse(followers, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        errors = []
        for batch in reversed(batches):
            errors.append(error)
            if batch.sequenced is not None:
                if overtaken is not None and self._producers.overtaken(batch.sequenced):
                    errors[-1] = overtaken
                self._producers.abort(batch.sequenced, errors[-1])
        is_answering = bool(self._refused)
        self._refused += zip([batch.done for batch in batches], reversed(errors), strict=True)
        if not is_answering:
            self._answer_refused()

    def _answer_refused(self) -> None:
        """There may be tens of thousands. Until all have their answers, no sequence behind them is accepted."""
        some = self._refused[:ANSWERED_AT_ONCE]
        del self._refused[:ANSWERED_AT_ONCE]
        for done, error in some:
            answer(done, -1, error)
        self._answers_later = bool(self._refused)
        if self._answers_later:
            asyncio.get_running_loop().call_soon(self._answer_refused)

    async def all_answered(self) -> None:
        """Wait until the clients of all refused batches have their errors."""
        while self._refused:
            await asyncio.sleep(0)

    # What the appender reports

    def entry_written(self, sent: SentEntry, position: Position) -> None:
        self._on_resolved(self._end.on_receipt(Receipt(position, sent.count, sent)))

    def entry_refused(self, sent: SentEntry, error: Exception) -> None:
        # A batch that others have overtaken must not be sent again: it would be out of order, which clients treat as
        # written.
        overtaken = error if _is_final(error) else KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        self._refuse(sent.batches, error, overtaken=overtaken)

    def producer_lost(self, error: PulsarError) -> None:
        self._supply.lost(error)

    async def _resolve_in_flight(self) -> None:
        """Find the entries of a lost producer in the log. Those that are not there will not be: they are sent again."""
        await self._read_what_others_sent()
        refused = self._appender.send_again()
        self.answer_copied()
        self._refuse(refused, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def answer_copied(self) -> None:
        """What waits, and came into the log from another cluster meanwhile, is not sent."""
        for batch in self._appender.take_copied():
            if batch.sequenced is not None:
                answer(batch.done, batch.sequenced.base_offset, None)

    # Closing

    def on_lease_lost(self) -> None:
        """From now on, nothing of idempotent producers may be written that another leader would not see in the log."""
        self._refuse(self._appender.on_lease_lost(), KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def stop(self) -> None:
        """From now on, a lost producer is not replaced."""
        self._stopped = True
        self._supply.stop()

    async def close(self) -> None:
        """Wait for what is in flight, if Pulsar answers. Batches that are not written are refused."""
        self._supply.cancel()
        try:
            await self._appender.close()
        except PulsarError as error:
            log.info("producer not closed properly", topic=self._topic, error=str(error))
        self._appender.fail_queued(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        self._refuse(self._appender.abandon_in_flight(), KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))


def _is_final(error: Exception) -> bool:
    """Whether the clients will not send the batch again."""
    return isinstance(error, PulsarError) and not error.retriable
