"""The idempotent producers of one partition: the last five batches of each (KIP-98), checked as in Kafka.

A batch enters its producer's window when it is sent, before its offset is known, so that a retry or the next
sequence is checked correctly while the batch is in flight. A batch that was not written leaves the window again. Its
sequence then has to come next, even if the window is empty: clients take the acknowledgement of a sequence as the
acknowledgement of all earlier ones.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from gateway.background import report
from gateway.errors import KafkaError
from protocol.kafka.batch import NO_PRODUCER_EPOCH, BatchHeader
from protocol.kafka.errors import ErrorCode

WINDOW_BATCHES = 5
TRUST_S = 5.0
"""For this time after a producer's last batch, its next batch over the same connection is checked without reading what
other gateways may have written since."""
LOOKED_AT = 8
"""Producers that are checked for each new one, if there are too many: very many may be in use at the same time."""
_SEQUENCES = 2**31

Done = Callable[[int, Exception | None], None]


def answer(done: Done, base_offset: int, error: Exception | None) -> None:
    """Answer one client. If a bug of ours prevents this answer, the other clients still get theirs."""
    try:
        done(base_offset, error)
    except Exception as defect:
        report("answer of a batch", defect)


class SequencedBatch:
    """A batch in the window. ``base_offset`` is -1 until it is known."""

    __slots__ = ("base_offset", "epoch", "first", "last", "max_timestamp", "producer_id", "waiters")

    def __init__(self, header: BatchHeader, base_offset: int = -1) -> None:
        self.producer_id = header.producer_id
        self.epoch = header.producer_epoch
        self.first = header.base_sequence
        self.last = header.last_sequence
        self.max_timestamp = header.max_timestamp
        self.base_offset = base_offset
        self.waiters: list[Done] = []


class ActiveProducer(NamedTuple):
    """The state of a producer after its last written batch."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int


class _Producer:
    """``source`` is the connection of the producer's last batch; None if another gateway wrote that batch."""

    __slots__ = ("accepted_s", "batches", "epoch", "in_transaction", "next_sequence", "source", "used_s")

    def __init__(self) -> None:
        self.epoch = NO_PRODUCER_EPOCH
        self.batches: list[SequencedBatch] = []  # an empty deque takes 600 bytes
        self.next_sequence = 0
        self.source: int | None = None
        self.accepted_s = 0.0
        self.used_s = 0.0
        self.in_transaction = False
        """Its last batch was read from the log, and is of a transaction that had not ended there."""

    @property
    def in_flight(self) -> bool:
        return any(batch.base_offset < 0 for batch in self.batches)

    def take(self, batch: SequencedBatch) -> None:
        if batch.epoch != self.epoch:
            self.epoch = batch.epoch
            self.batches.clear()
        self.batches.append(batch)
        self.next_sequence = (batch.last + 1) % _SEQUENCES
        self.trim()

    def find(self, header: BatchHeader) -> SequencedBatch | None:
        """The batch of the window with these sequences."""
        wanted = header.producer_epoch, header.base_sequence, header.last_sequence
        return next((batch for batch in self.batches if (batch.epoch, batch.first, batch.last) == wanted), None)

    def trim(self) -> None:
        """Forget the oldest batches, but none in flight."""
        while len(self.batches) > WINDOW_BATCHES and self.batches[0].base_offset >= 0:
            del self.batches[0]

    def has_passed(self, epoch: int, sequence: int) -> bool:
        """Whether the sequence is in the window or older than the window."""
        if epoch != self.epoch:
            return epoch < self.epoch
        return (self.next_sequence - sequence - 1) % _SEQUENCES < _SEQUENCES // 2


class AllProducers:
    """The producers of all partitions, least recently used first. A forgotten one counts as unknown, as in Kafka.

    A producer with a batch in flight or an open transaction is in use, and is not forgotten.
    """

    def __init__(self, max_producers: int, expiration_s: float) -> None:
        self._max_producers = max_producers
        self._expiration_s = expiration_s
        self._order: OrderedDict[tuple[ProducerState, int], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._order)

    def used(self, state: ProducerState, producer_id: int) -> None:
        """A batch of the producer was accepted."""
        self._order[state, producer_id] = None
        self._order.move_to_end((state, producer_id))
        for _ in range(min(LOOKED_AT, len(self._order) - 1)):  # all but this one
            if len(self._order) <= self._max_producers:
                return
            self._forget_oldest()

    def in_use(self, state: ProducerState, producer_id: int) -> None:
        """The producer may not be forgotten now."""
        self._order.move_to_end((state, producer_id))

    def gone(self, state: ProducerState, producer_id: int) -> None:
        self._order.pop((state, producer_id), None)

    def expire(self) -> None:
        """Forget the producers that have written nothing for `producer_id_expiration_ms`."""
        used_before_s = time.monotonic() - self._expiration_s
        for state, producer_id in [*self._order]:
            if state.used_s(producer_id) >= used_before_s:
                return
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        state, producer_id = next(iter(self._order))
        state.forget(producer_id)


class ProducerState:
    """The windows of all producers of a partition, least recently used first."""

    def __init__(self, max_producers: int, everywhere: AllProducers | None = None) -> None:
        self._max_producers = max_producers
        self._everywhere = everywhere
        self.has_transaction: Callable[[int], bool | None] = lambda _: False
        """Whether a producer has an open transaction; None while that is not known. Such producers are not forgotten.
        """
        self.on_copied: Callable[[], None] = lambda: None
        """Called when a copy of a batch was read that waits here, or is in flight."""
        self._producers: OrderedDict[int, _Producer] = OrderedDict()

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._producers

    def active(self) -> list[ActiveProducer]:
        """The producers that have a written batch."""
        found = []
        for producer_id, producer in self._producers.items():
            written = [batch for batch in producer.batches if batch.base_offset >= 0]
            if written:
                last = written[-1]
                found.append(ActiveProducer(producer_id, last.epoch, last.last, last.max_timestamp))
        return found

    def find_duplicate(self, header: BatchHeader) -> SequencedBatch | None:
        """The batch that this one repeats. Raises KafkaError for a fenced epoch or a sequence out of order."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            if header.producer_epoch < NO_PRODUCER_EPOCH:
                raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, f"epoch {header.producer_epoch}")
            return None
        if header.producer_epoch < producer.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH, f"epoch {header.producer_epoch} is fenced by {producer.epoch}"
            )
        if header.producer_epoch > producer.epoch:
            if header.base_sequence != 0 and producer.epoch != NO_PRODUCER_EPOCH:
                raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "a new epoch starts at sequence 0")
            return None
        for batch in producer.batches:
            if batch.first == header.base_sequence and batch.last == header.last_sequence:
                return batch
        if header.base_sequence != producer.next_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"sequence {header.base_sequence}, expected {producer.next_sequence}",
            )
        return None

    def begin(self, header: BatchHeader, base_offset: int = -1) -> SequencedBatch:
        """Add a batch to its producer's window, when it is sent, or when it is read from the log with its offset."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            self._make_room()
            producer = self._producers[header.producer_id] = _Producer()
        else:
            self._producers.move_to_end(header.producer_id)
        batch = SequencedBatch(header, base_offset)
        producer.take(batch)
        producer.used_s = time.monotonic()
        if self._everywhere is not None:
            self._everywhere.used(self, header.producer_id)
        return batch

    def _make_room(self) -> None:
        """Forget the least recently used producers that may be forgotten."""
        for _ in range(LOOKED_AT):
            if len(self._producers) < self._max_producers:
                return
            self.forget(next(iter(self._producers)))

    def used_s(self, producer_id: int) -> float:
        """When the producer's last batch was accepted, or when it was last found in use (monotonic clock)."""
        return self._producers[producer_id].used_s

    def forget(self, producer_id: int) -> None:
        """Forget the producer, unless it has a batch in flight or an open transaction: that counts as a use."""
        producer = self._producers[producer_id]
        has_transaction = self.has_transaction(producer_id)
        if producer.in_flight or (producer.in_transaction if has_transaction is None else has_transaction):
            producer.used_s = time.monotonic()
            self._producers.move_to_end(producer_id)
            if self._everywhere is not None:
                self._everywhere.in_use(self, producer_id)
        else:
            del self._producers[producer_id]
            if self._everywhere is not None:
                self._everywhere.gone(self, producer_id)

    def close(self) -> None:
        """The log was closed."""
        if self._everywhere is not None:
            for producer_id in self._producers:
                self._everywhere.gone(self, producer_id)
        self._everywhere = None

    def complete(self, batch: SequencedBatch, base_offset: int) -> None:
        """The batch was written. Clients that repeated it in the meantime get the same answer."""
        batch.base_offset = base_offset
        producer = self._producers.get(batch.producer_id)
        if producer is not None:
            producer.trim()
        waiters, batch.waiters = batch.waiters, []
        for done in waiters:
            answer(done, base_offset, None)

    def abort(self, batch: SequencedBatch, error: Exception) -> None:
        """The batch was not written. Its sequence must come again, unless the batch is ``overtaken``.

        Several batches of a producer are aborted in reverse order. One of which a copy was read stays known.
        """
        producer = self._producers.get(batch.producer_id)
        if producer is not None and batch.base_offset < 0 and batch in producer.batches:
            if producer.batches[-1] is batch:
                producer.next_sequence = batch.first
            producer.batches.remove(batch)
        waiters, batch.waiters = batch.waiters, []
        for done in waiters:
            answer(done, -1, error)

    def overtaken(self, batch: SequencedBatch) -> bool:
        """Later batches of the producer are in the log or in flight: this sequence cannot be accepted any more."""
        producer = self._producers.get(batch.producer_id)
        return producer is not None and batch in producer.batches and producer.batches[-1] is not batch

    def replay(self, header: BatchHeader, base_offset: int) -> None:
        """Take a batch that was read from the log, written by another gateway or before this one started.

        Known and older batches change nothing: the log's end may be read twice, and our own batches are read, too. A
        batch that waits here may have come from another cluster meanwhile: the client went there.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None or not producer.has_passed(header.producer_epoch, header.last_sequence):
            self.begin(header, base_offset)
            producer = self._producers[header.producer_id]
            producer.source, producer.in_transaction = None, header.is_transactional
        elif producer.in_flight and (batch := producer.find(header)) is not None and batch.base_offset < 0:
            self.complete(batch, base_offset)
            self.on_copied()

    def fence(self, producer_id: int, epoch: int) -> None:
        """Take a marker of the producer with this epoch: earlier epochs are fenced, a later one begins at sequence 0.

        An unknown producer may continue at any sequence: its batches are before the part of the log that was read.
        """
        producer = self._producers.get(producer_id)
        if producer is not None:
            producer.in_transaction = False
        if producer is not None and epoch > producer.epoch:
            producer.epoch, producer.next_sequence = epoch, 0
            producer.batches.clear()

    def has_passed(self, header: BatchHeader, sequence: int) -> bool:
        """Whether the producer of ``header`` has written ``sequence``, has it in flight, or has a later epoch."""
        producer = self._producers.get(header.producer_id)
        return producer is not None and producer.has_passed(header.producer_epoch, sequence)

    # Whether another gateway may have had a batch of the producer in the meantime

    def came_from(self, header: BatchHeader, source: int) -> bool:
        """Whether the producer's last batch came over the same connection."""
        producer = self._producers.get(header.producer_id)
        return producer is not None and producer.source == source

    def trusts(self, header: BatchHeader, source: int, now_s: float) -> bool:
        """As ``came_from``, and not long ago: a client goes to another gateway and comes back only with some delay."""
        producer = self._producers.get(header.producer_id)
        return producer is not None and producer.source == source and now_s - producer.accepted_s < TRUST_S

    def accepted(self, header: BatchHeader, source: int, now_s: float) -> None:
        """A batch of the producer that came over this connection was accepted."""
        producer = self._producers.get(header.producer_id)
        if producer is not None:
            producer.source, producer.accepted_s = source, now_s
