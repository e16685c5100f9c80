"""The idempotent producers of one partition: the last five batches of each (KIP-98), as Kafka judges them.

A batch enters its producer's window when it is sent, before its offset is known, so that a retry or the next sequence
is judged right while it is in flight. If it turns out not to have been written it leaves again, and its sequence is the
one that must come next, even if the window is empty then: clients take the acknowledgement of a sequence for that of
all before it.
"""

from __future__ import annotations

import math
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
"""So long after its last batch a producer's next one is judged without asking whether another gateway had it since."""
_SEQUENCES = 2**31

Done = Callable[[int, Exception | None], None]


def answer(done: Done, base_offset: int, error: Exception | None) -> None:
    """Tell one client; if a defect of ours keeps it from its answer, the others get theirs all the same."""
    try:
        done(base_offset, error)
    except Exception as defect:
        report("answer of a batch", defect)


class SequencedBatch:
    """A batch of the window. ``base_offset`` is -1 until it is known."""

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
    """A producer as its last written batch left it."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int


class _Producer:
    """``source`` is the connection that its last batch came over; None if another gateway wrote it."""

    __slots__ = ("batches", "epoch", "heard_s", "next_sequence", "source", "used_s")

    def __init__(self) -> None:
        self.epoch = NO_PRODUCER_EPOCH
        self.batches: list[SequencedBatch] = []  # a deque takes 600 bytes when it is empty
        self.next_sequence = 0
        self.source: int | None = None
        self.heard_s = 0.0
        self.used_s = 0.0

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

    def trim(self) -> None:
        """Forget the oldest batches, but none in flight."""
        while len(self.batches) > WINDOW_BATCHES and self.batches[0].base_offset >= 0:
            del self.batches[0]

    def has_passed(self, epoch: int, sequence: int) -> bool:
        """It is in the window, or older than the window."""
        if epoch != self.epoch:
            return epoch < self.epoch
        return (self.next_sequence - sequence - 1) % _SEQUENCES < _SEQUENCES // 2


class AllProducers:
    """Those of all partitions, least recently used first. Who is forgotten goes on as one unknown, as in Kafka."""

    def __init__(self, max_producers: int, expiration_s: float) -> None:
        self._max_producers = max_producers
        self._expiration_s = expiration_s
        self._order: OrderedDict[tuple[ProducerState, int], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._order)

    def used(self, state: ProducerState, producer_id: int) -> None:
        """A batch of it was taken."""
        self._order[state, producer_id] = None
        self._order.move_to_end((state, producer_id))
        if len(self._order) > self._max_producers:
            self._forget_oldest(math.inf)

    def gone(self, state: ProducerState, producer_id: int) -> None:
        self._order.pop((state, producer_id), None)

    def expire(self) -> None:
        """Forget those that have written nothing for `producer_id_expiration_ms`."""
        while self._forget_oldest(time.monotonic() - self._expiration_s):
            pass

    def _forget_oldest(self, used_before_s: float) -> bool:
        for state, producer_id in self._order:
            if state.used_s(producer_id) >= used_before_s:
                return False
            if state.forget(producer_id):
                return True
        return False


class ProducerState:
    """The windows of all producers of a partition, least recently used first."""

    def __init__(self, max_producers: int, everywhere: AllProducers | None = None) -> None:
        self._max_producers = max_producers
        self._everywhere = everywhere
        self.has_transaction: Callable[[int], bool] = lambda _: False
        """Producers with an open transaction are not forgotten."""
        self._producers: OrderedDict[int, _Producer] = OrderedDict()

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._producers

    def active(self) -> list[ActiveProducer]:
        """The producers of which a batch is written."""
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
                f"sequence {header.base_sequence} comes where {producer.next_sequence} is next",
            )
        return None

    def begin(self, header: BatchHeader, base_offset: int = -1) -> SequencedBatch:
        """Take a batch into its producer's window, when it is sent, or when it is read from the log with its offset."""
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
        """Forget the producer that was heard of longest ago, of those that may be forgotten."""
        if len(self._producers) < self._max_producers:
            return
        for producer_id in self._producers:
            if self.forget(producer_id):
                return

    def used_s(self, producer_id: int) -> float:
        """When its last batch was taken (monotonic)."""
        return self._producers[producer_id].used_s

    def forget(self, producer_id: int) -> bool:
        """False if a batch of it is in flight, or a transaction open."""
        if self._producers[producer_id].in_flight or self.has_transaction(producer_id):
            return False
        del self._producers[producer_id]
        if self._everywhere is not None:
            self._everywhere.gone(self, producer_id)
        return True

    def close(self) -> None:
        """Its log is closed."""
        if self._everywhere is not None:
            for producer_id in self._producers:
                self._everywhere.gone(self, producer_id)
        self._everywhere = None

    def complete(self, batch: SequencedBatch, base_offset: int) -> None:
        """The batch was written; whoever repeated it meanwhile gets the same answer."""
        batch.base_offset = base_offset
        producer = self._producers.get(batch.producer_id)
        if producer is not None:
            producer.trim()
        waiters, batch.waiters = batch.waiters, []
        for done in waiters:
            answer(done, base_offset, None)

    def abort(self, batch: SequencedBatch, error: Exception) -> None:
        """The batch was not written: its sequence must come again, unless it is ``overtaken``.

        Of several batches the last one goes first.
        """
        producer = self._producers.get(batch.producer_id)
        if producer is not None and batch in producer.batches:
            if producer.batches[-1] is batch:
                producer.next_sequence = batch.first
            producer.batches.remove(batch)
        waiters, batch.waiters = batch.waiters, []
        for done in waiters:
            answer(done, -1, error)

    def overtaken(self, batch: SequencedBatch) -> bool:
        """Later batches of its producer are in the log, or on their way: its sequence cannot be taken any more."""
        producer = self._producers.get(batch.producer_id)
        return producer is not None and batch in producer.batches and producer.batches[-1] is not batch

    def replay(self, header: BatchHeader, base_offset: int) -> None:
        """A batch was read from the log, written by another gateway or before this one started.

        What is known, or older, changes nothing: the log's end may be read twice, and our own batches come back.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None or not producer.has_passed(header.producer_epoch, header.last_sequence):
            self.begin(header, base_offset)
            self._producers[header.producer_id].source = None

    def fence(self, producer_id: int, epoch: int) -> None:
        """A marker of the producer with this epoch: earlier ones are over, a later one begins at sequence 0.

        One that is not known may go on at any sequence: its batches lie before what was read of the log.
        """
        producer = self._producers.get(producer_id)
        if producer is not None and epoch > producer.epoch:
            producer.epoch, producer.next_sequence = epoch, 0
            producer.batches.clear()

    def has_passed(self, header: BatchHeader, sequence: int) -> bool:
        """The producer of ``header`` has written ``sequence``, or is about to, or its epoch is over."""
        producer = self._producers.get(header.producer_id)
        return producer is not None and producer.has_passed(header.producer_epoch, sequence)

    # Whether another gateway may have had a batch of the producer meanwhile

    def came_over(self, header: BatchHeader, source: int) -> bool:
        """The producer's last batch came over the same connection."""
        producer = self._producers.get(header.producer_id)
        return producer is not None and producer.source == source

    def trusts(self, header: BatchHeader, source: int, now_s: float) -> bool:
        """And that is not long ago: a client goes to another gateway, and comes back, only with some delay."""
        producer = self._producers.get(header.producer_id)
        return producer is not None and producer.source == source and now_s - producer.heard_s < TRUST_S

    def heard(self, header: BatchHeader, source: int, now_s: float) -> None:
        """A batch of the producer was taken that came over this connection."""
        producer = self._producers.get(header.producer_id)
        if producer is not None:
            producer.source, producer.heard_s = source, now_s
