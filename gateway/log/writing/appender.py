"""Writing to one partition: batches are queued, share entries while earlier sends are in flight, and get their offsets.

An idle partition sends at once. While entries are in flight, batches wait in the queue and are sent together, in the
order of arrival, so that many small requests need few Pulsar entries.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from gateway.background import report, run_once
from gateway.config.limits import Limits
from gateway.errors import KafkaError
from gateway.log.entries.log_entry import KAFKA_FORMAT_PROPERTIES, Buffer
from gateway.log.entries.message_entry import EncodedEntry, encode_entry
from gateway.log.transactions.checkpoints import NextTag
from gateway.log.writing.pending_batch import PendingBatch, SentEntry
from gateway.observability.metrics import Metrics
from gateway.pulsar.connection import ConnectionState
from gateway.pulsar.errors import ConnectionLostError, MessageTooLargeError, PulsarError, RetriableError
from gateway.pulsar.position import Position
from gateway.pulsar.producer import METADATA_BYTES, Producer
from gateway.pulsar.send_window import SendWindow
from protocol.kafka.batch import parse_header
from protocol.kafka.errors import ErrorCode

SHARE_ABOVE_IN_FLIGHT = 2
"""From this number of entries in flight on, small batches wait and share an entry."""
UNANSWERED_S = 0.05
"""A responsive broker has answered within this time. With the default settings it is shorter than the time
between the end of a lease and the eviction of its holder (`coordinator/fleet/times.py`)."""
MAX_MESSAGES = 2**31 - 1
"""The largest count of messages of an entry."""
LARGE_BATCH_BYTES = 16 * 1024
"""From this amount of queued data on, batches no longer wait to share an entry."""
MAX_LOSSES = 5
"""After so many producers that were lost with a batch as the first one that they had not written, it is not sent again:
brokers may close the connection because of it. What waits behind it would not be written either."""


class TooLargeTogetherError(RetriableError):
    """Batches that shared an entry were refused, and may be written when they are sent again."""


class AppendListener(Protocol):
    """Receives the outcome of batches."""

    def entry_written(self, sent: SentEntry, position: Position) -> None: ...

    def entry_refused(self, sent: SentEntry, error: Exception) -> None: ...

    def producer_lost(self, error: PulsarError) -> None: ...


class Appender:
    """The queue of batches, and the entries in flight through one Pulsar producer. A SendListener."""

    def __init__(
        self,
        limits: Limits,
        metrics: Metrics,
        may_send_idempotent: Callable[[], bool],
        listener: AppendListener,
        predecessor: Producer | None = None,
        compaction: Callable[[], int] = lambda: 0,
    ) -> None:
        """``may_send_idempotent`` returns True while no other gateway can have become the leader."""
        self._limits = limits
        self._metrics = metrics
        self._may_send_idempotent = may_send_idempotent
        self._listener = listener
        self._compaction = compaction
        self._max_entry_bytes = limits.append_max_entry_bytes
        """Batches that share an entry have at most this size together."""
        self._queue: list[PendingBatch] = []
        self._queued_bytes = 0
        self._in_flight: dict[int, SentEntry] = {}
        self._in_flight_bytes = 0
        self.producer: Producer | None = None
        """The producer that sends the entries; None while there is none."""
        self._lost = predecessor
        self._window: SendWindow | None = None
        """That of the producer's connection, if its namespace has its own."""
        self.next_tag: NextTag | None = None
        self._pump_scheduled = False
        self._unblocking: asyncio.Task[None] | None = None
        self.has_room = True
        """More batches may be queued. Otherwise callers wait, and their clients' sockets are not read."""
        self._room: asyncio.Event | None = None
        """Set when there is room again; None if no caller waits for that."""

    # The producer

    @property
    def predecessor(self) -> Producer | None:
        """The lost producer, which the next one succeeds. Until then, entries that it sent may still be written."""
        return self._lost

    async def wait_for_room(self) -> None:
        if not self.has_room:
            self._room = self._room or asyncio.Event()
            await self._room.wait()

    def _set_room(self, *, has_room: bool) -> None:
        self.has_room = has_room
        if has_room and self._room is not None:
            self._room.set()
            self._room = None

    @property
    def idle(self) -> bool:
        return not self._queue and not self._in_flight

    def use(self, producer: Producer) -> None:
        """Send through this producer from now on, beginning with the queued batches."""
        self.producer, self._lost = producer, None
        self._window = producer.connection.send_window
        self._pump()

    async def close(self) -> None:
        self._stop_unblocking()
        producer, self.producer = self.producer, None
        if producer is not None:
            self._lost = producer  # until the broker has confirmed the close
            try:
                await producer.close()
            finally:
                self._leave_window()
            self._lost = None

    # Appending

    def append(self, batch: PendingBatch) -> None:
        """Queue a batch. Its ``done`` gets the outcome. Raises KafkaError if too much data waits already."""
        if self._queued_bytes + batch.size_bytes > self._limits.append_max_queued_bytes:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too much data waits for Pulsar")
        self._queue.append(batch)
        self._queued_bytes += batch.size_bytes
        if self.has_room and self._queued_bytes > self._limits.append_max_queued_bytes // 2:
            self._set_room(has_room=False)
        if not self._pump_scheduled:
            # Batches that other connections send in the same turn of the event loop share the entry.
            self._pump_scheduled = True
            if self.producer is None:
                asyncio.get_running_loop().call_soon(self._pump)
            else:
                self.producer.before_flush(self._pump)

    def fail_queued(self, error: Exception) -> None:
        """Refuse the queued batches because no producer can be opened. They were certainly not written."""
        queue, self._queue, self._queued_bytes = self._queue, [], 0
        self._set_room(has_room=True)
        if queue:
            self._listener.entry_refused(SentEntry(queue, b""), error)

    def take_queued(self, producer_ids: set[int]) -> list[PendingBatch]:
        """Remove the queued batches of these idempotent producers, and return them."""
        return self._take_those(lambda batch: batch.producer_id in producer_ids)

    def take_copied(self) -> list[PendingBatch]:
        """Remove the queued batches that came into the log from another cluster meanwhile, and return them."""
        return self._take_those(lambda batch: batch.sequenced is not None and batch.sequenced.base_offset >= 0)

    def _take_those(self, unwanted: Callable[[PendingBatch], bool]) -> list[PendingBatch]:
        taken = [batch for batch in self._queue if unwanted(batch)]
        if taken:
            gone = set(taken)
            self._queue = [batch for batch in self._queue if batch not in gone]
            self._queued_bytes -= sum(batch.size_bytes for batch in taken)
            self._set_room(has_room=True)
        return taken

    def on_lease_lost(self) -> list[PendingBatch]:
        """Another gateway may lead soon. Remove the queued batches of idempotent producers and the queued markers.

        If an entry in flight with such batches was not answered within UNANSWERED_S, the connection is closed: what was
        sent reaches the broker now or never.
        """
        overdue_s = time.monotonic() - UNANSWERED_S
        producer = self.producer or self._lost
        overdue = any(sent.needs_lease and sent.sent_at < overdue_s for sent in self._in_flight.values())
        if producer is not None and overdue:
            producer.connection.close(ConnectionLostError("the lease expired with entries in flight"))
        return self._take_those(lambda batch: batch.leased)

    def _pump(self) -> None:
        self._pump_scheduled = False
        while self._queue and self._may_send():
            self._send(self._take_group())

    def _may_send(self) -> bool:
        limits, producer = self._limits, self.producer
        if producer is None or producer.closed:
            return False
        if not producer.connection.writable:
            self._wait_until_writable(producer)
            return False
        count = len(self._in_flight)
        if count >= limits.append_max_in_flight_entries or self._in_flight_bytes >= limits.append_max_in_flight_bytes:
            return False
        if count >= SHARE_ABOVE_IN_FLIGHT and self._queued_bytes < LARGE_BATCH_BYTES:
            return False
        return self._window is None or self._window.admits(self._pump)

    def _wait_until_writable(self, producer: Producer) -> None:
        """Pulsar reads more slowly than this gateway writes. Continue when the connection is writable again."""

        async def unblock() -> None:
            await producer.connection.writable_event.wait()
            self._unblocking = None
            self._pump()

        if self._unblocking is None:
            self._unblocking = run_once("write when writable", unblock())

    def _stop_unblocking(self) -> None:
        if self._unblocking is not None:
            self._unblocking.cancel()
            self._unblocking = None

    def _leave_window(self) -> None:
        """What is in flight will not be acknowledged on this connection."""
        if self._window is not None:
            window, self._window = self._window, None
            window.leave(self._pump)
            window.lost(self._in_flight.values())
            if self._lost is not None and self._lost.connection.state is not ConnectionState.CLOSED:
                window.call_waiting()  # otherwise they are about to leave it, too

    def _take_group(self) -> list[PendingBatch]:
        """Remove the batches of the next entry from the queue, and return them."""
        assert self.producer is not None
        queue, first = self._queue, self._queue[0]
        count, size_bytes, messages = 1, first.size_bytes, first.count
        if len(queue) > 1:
            max_bytes = min(self._max_entry_bytes, self.producer.max_message_bytes - METADATA_BYTES)
            if self._window is not None:
                max_bytes = min(max_bytes, self._window.max_entry_bytes)
            for batch in islice(queue, 1, None):
                if size_bytes + batch.size_bytes > max_bytes or not _alike(batch, first):
                    break
                if messages + batch.count > MAX_MESSAGES:  # a compressed batch may announce any number
                    break
                count += 1
                size_bytes += batch.size_bytes
                messages += batch.count
        group = queue[:count]
        del queue[:count]
        self._queued_bytes -= size_bytes
        if not self.has_room and self._queued_bytes <= self._limits.append_max_queued_bytes // 2:
            self._set_room(has_room=True)
        return group

    def _send(self, group: list[PendingBatch]) -> None:
        assert self.producer is not None
        data: Buffer = group[0].data if len(group) == 1 else bytearray().join([batch.data for batch in group])
        sent = SentEntry(group, data)
        try:
            payload, fields = _encoded(group, data, self._compaction)
            if self.next_tag is not None:
                room = self.producer.max_message_bytes - METADATA_BYTES - len(payload)
                if sent.is_removal:  # compaction takes it, and would take the checkpoint with it
                    room = 0
                tag = self.next_tag(len(payload), room)
                fields, sent.checkpoint = fields + tag.fields, tag.checkpoint
            sequence_id = self.producer.send(
                (payload,), num_messages=sent.count, publish_time_ms=int(time.time() * 1000), properties=fields,
                only_if=self._may_send_idempotent if sent.needs_lease else None,
            )  # fmt: skip
        except PulsarError as error:
            self._listener.entry_refused(sent, error)
            return
        except Exception as defect:  # a bug of ours: callers that wait for the batches or the marker get an error
            report("sending an entry", defect)
            self._listener.entry_refused(sent, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        self._in_flight[sequence_id] = sent
        self._in_flight_bytes += len(data)
        if self._window is not None:
            self._window.sent(sent, len(data))
        self._metrics.entries_written.value += 1
        self._metrics.batches_written.value += len(group)

    # The broker's answers

    def on_receipt(self, sequence_id: int, position: Position) -> None:
        sent = self._forget(sequence_id)
        if sent is not None:
            self._listener.entry_written(sent, position)
        self._pump_all()

    def on_send_error(self, sequence_id: int, error: PulsarError) -> None:
        sent = self._forget(sequence_id)
        if sent is not None:
            if isinstance(error, MessageTooLargeError) and len(sent.batches) > 1:
                error = self._too_large(sent)
            self._listener.entry_refused(sent, error)
        self._pump_all()

    def _pump_all(self) -> None:
        self._pump()
        if self._window is not None:
            self._window.call_waiting()

    def _too_large(self, sent: SentEntry) -> PulsarError:
        """The topic has a limit of its own, which no answer of the broker names. Each batch may be within it."""
        self._max_entry_bytes = min(self._max_entry_bytes, len(sent.data) // 2)
        return TooLargeTogetherError(f"{len(sent.batches)} batches were too large together")

    def on_producer_closed(self, error: PulsarError) -> None:
        self._lost, self.producer = self.producer or self._lost, None
        self._stop_unblocking()  # the next producer may have another connection
        self._leave_window()
        self._listener.producer_lost(error)

    def claim(self, producer_name: str, sequence_id: int) -> SentEntry | None:
        """The entry in flight that was just read from the log: it needs no receipt. None if it is not in flight."""
        producer = self.producer or self._lost
        if producer is None or producer.name != producer_name:
            return None
        return self._forget(sequence_id)

    def send_again(self) -> list[PendingBatch]:
        """Queue what a lost producer had in flight, in front of the rest. The log was read to its end: it is not there.

        Returns the removed batches that must not be sent: those with MAX_LOSSES, and, if the lease has expired, those
        that need it.
        """
        for batch in next(iter(self._in_flight.values())).batches if self._in_flight else ():
            batch.losses += 1
        batches = self.abandon_in_flight()
        self._queue[:0] = batches
        self._queued_bytes += sum(batch.size_bytes for batch in batches)
        if self._queued_bytes > self._limits.append_max_queued_bytes // 2:
            self._set_room(has_room=False)
        has_lease = self._may_send_idempotent()
        return self._take_those(lambda batch: batch.losses >= MAX_LOSSES or (batch.leased and not has_lease))

    def abandon_in_flight(self) -> list[PendingBatch]:
        """Remove and return what is in flight."""
        abandoned = [batch for sent in self._in_flight.values() for batch in sent.batches]
        self._in_flight.clear()
        self._in_flight_bytes = 0
        return abandoned

    def _forget(self, sequence_id: int) -> SentEntry | None:
        sent = self._in_flight.pop(sequence_id, None)
        if sent is not None:
            self._in_flight_bytes -= len(sent.data)
            if self._window is not None:
                self._window.acknowledged(sent, sent.sent_at)
        return sent


def _alike(batch: PendingBatch, other: PendingBatch) -> bool:
    """An entry holds either batches or messages. Messages that are already encoded have an entry of their own."""
    if batch.messages is None and other.messages is None:
        return True
    if isinstance(batch.messages, EncodedEntry) or isinstance(other.messages, EncodedEntry):
        return False
    return (batch.messages is None) == (other.messages is None)


def _encoded(group: list[PendingBatch], data: Buffer, compaction: Callable[[], int]) -> tuple[Buffer, bytes]:
    """The payload of an entry, and the fields of its metadata."""
    first = group[0].messages
    if first is None:
        return data, KAFKA_FORMAT_PROPERTIES
    if isinstance(first, EncodedEntry):
        return first
    messages = [(parse_header(batch.data), batch.messages) for batch in group if isinstance(batch.messages, bytes)]
    return encode_entry(messages, compacted=compaction() != 0)

