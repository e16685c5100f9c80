"""The transactions of one partition: which are open, which were aborted, and up to which offset all are decided.

The state is a function of the log's prefix: all gateways that have read the same prefix have the same state. It
changes in the same turn of the event loop as the log's end, and batches come in the order of their offsets, whether
they are appended here or read. Topics without transactions have no cost: an empty dictionary answers all questions.

Abort markers are known from `aborted_from` on. A state that began at a checkpoint, or from which old markers were
removed, needs the older ones (`add_older`) before it can answer for lower offsets.

Source: Kafka's ProducerStateManager, ProducerAppendInfo and TransactionIndex; KIP-98, KIP-890.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from gateway.log.transactions.aborted_list import AbortedList, AbortedTransaction
from protocol.kafka.batch import NO_PRODUCER_EPOCH
from protocol.kafka.errors import ErrorCode
from protocol.kafka.transaction_marker import MarkerType, TransactionMarker

NO_COORDINATOR_EPOCH = -1
MAX_ENDED_PRODUCERS = 10_000
EPOCH_BUMP_VERSION = 2
"""From this `transaction.version` on, a marker's epoch is higher than that of the batches that it ends."""


class OpenTransaction(NamedTuple):
    """`coordinator_epoch` is that of the producer's last marker in this partition, -1 if none is known."""

    producer_epoch: int
    first_offset: int
    coordinator_epoch: int = NO_COORDINATOR_EPOCH


class EndedTransaction(NamedTuple):
    """The epochs of the producer's last marker. A marker with an earlier epoch is late and is refused."""

    producer_epoch: int
    coordinator_epoch: int


_NONE_ENDED = EndedTransaction(NO_PRODUCER_EPOCH, NO_COORDINATOR_EPOCH)


class PartitionTransactions:
    def __init__(
        self,
        open_: Mapping[int, OpenTransaction] | None = None,
        aborted_from: int = 0,
        ended: Mapping[int, EndedTransaction] | None = None,
    ) -> None:
        """The state of a checkpoint at the offset `aborted_from`, with the open and the ended transactions there (by
        producer id, the last ended one at the end).
        """
        in_order = sorted((open_ or {}).items(), key=lambda item: item[1].first_offset)
        self._open = dict(in_order)
        self.open: Mapping[int, OpenTransaction] = self._open
        """The open transactions by producer id, the oldest first. A view that changes."""
        self._ended: OrderedDict[int, EndedTransaction] = OrderedDict(ended or {})
        self._aborted = AbortedList()
        self._start_offset = 0
        self.aborted_from = aborted_from

    def last_ended(self, most: int) -> dict[int, EndedTransaction]:
        """The producers that ended a transaction last, at most ``most``, by producer id, the latest at the end."""
        last = [*islice(reversed(self._ended.items()), most)]
        return dict(reversed(last))

    def coordinator_epoch(self, producer_id: int) -> int:
        """The coordinator epoch of the producer's last marker; -1 if none is known."""
        found = self._open.get(producer_id)
        epoch = self._ended.get(producer_id, _NONE_ENDED).coordinator_epoch
        return epoch if found is None else max(epoch, found.coordinator_epoch)

    # The log grows

    def data_appended(self, producer_id: int, producer_epoch: int, first_offset: int) -> None:
        """Take a transactional batch. A later epoch may continue an open transaction, as in Kafka."""
        found = self._open.get(producer_id)
        if found is None:
            coordinator_epoch = self._ended.get(producer_id, _NONE_ENDED).coordinator_epoch
            self._open[producer_id] = OpenTransaction(producer_epoch, first_offset, coordinator_epoch)
        elif producer_epoch > found.producer_epoch:
            self._open[producer_id] = found._replace(producer_epoch=producer_epoch)

    def marker_error(
        self, marker: TransactionMarker, transaction_version: int = 0, coming_epoch: int = NO_PRODUCER_EPOCH
    ) -> ErrorCode:
        """The reason why the marker may not be appended. A marker that ends nothing may be appended:
        its coordinator did not get the answer to the first one.

        From version 2 on, the marker's epoch must exceed that of the open batches: a late marker of the previous
        transaction must not end this one (KAFKA-19999). ``coming_epoch`` is that of its batches in flight.
        """
        found = self._open.get(marker.producer_id)
        ended = self._ended.get(marker.producer_id, _NONE_ENDED)
        open_epoch = max(coming_epoch, NO_PRODUCER_EPOCH if found is None else found.producer_epoch)
        if marker.producer_epoch < max(ended.producer_epoch, open_epoch):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        is_late = NO_PRODUCER_EPOCH < open_epoch == marker.producer_epoch
        if is_late and transaction_version >= EPOCH_BUMP_VERSION:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        known = max(ended.coordinator_epoch, NO_COORDINATOR_EPOCH if found is None else found.coordinator_epoch)
        if marker.coordinator_epoch < known:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return ErrorCode.NONE

    def marker_appended(self, marker: TransactionMarker, offset: int) -> None:
        """Take a marker, also one that `marker_error` would refuse: a marker in the log counts for all who read it."""
        found = self._open.pop(marker.producer_id, None)
        self._remember(marker)
        if found is not None and marker.type is MarkerType.ABORT:
            stable = self._first_open(offset + 1)
            self._aborted.append(AbortedTransaction(marker.producer_id, found.first_offset, offset, stable))

    def forget_open(self) -> None:
        """Take all transactions as decided: their markers were deleted."""
        self._open.clear()

    def _remember(self, marker: TransactionMarker) -> None:
        before = self._ended.pop(marker.producer_id, _NONE_ENDED)
        self._ended[marker.producer_id] = EndedTransaction(
            max(before.producer_epoch, marker.producer_epoch),
            max(before.coordinator_epoch, marker.coordinator_epoch),
        )
        if len(self._ended) > MAX_ENDED_PRODUCERS:
            self._ended.popitem(last=False)

    # The last stable offset

    def last_stable_offset(self, end_offset: int) -> int:
        """The first offset of the oldest open transaction, or the log's end; never below the log's start."""
        return max(self._start_offset, self._first_open(end_offset))

    def _first_open(self, otherwise: int) -> int:
        return next((transaction.first_offset for transaction in self._open.values()), otherwise)

    # Aborted transactions

    def aborted_between(self, fetch_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """Those with a record from `fetch_offset` on and below `upper_offset`, in the order of their beginnings.

        Raises ValueError if `fetch_offset` is below `aborted_from`.
        """
        if fetch_offset < self.aborted_from:
            raise ValueError(f"aborted transactions are known from {self.aborted_from} on, not {fetch_offset}")
        return sorted(self._aborted.with_records(fetch_offset, upper_offset), key=attrgetter("first_offset"))

    def aborted_from_to(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Those whose markers lie from `from_offset` on and below `to_offset`, in the order of the markers."""
        return self._aborted.between(self._aborted.position(from_offset), self._aborted.position(to_offset))

    @property
    def aborted_count(self) -> int:
        """The number of aborted transactions in memory."""
        return len(self._aborted)

    def add_older(self, aborted: Sequence[AbortedTransaction], known_from: int) -> None:
        """Add all whose markers lie from `known_from` on and below `aborted_from`, in the order of the markers."""
        self._aborted.prepend([each for each in aborted if each.last_offset >= self._start_offset])
        self.aborted_from = max(known_from, self._start_offset)

    def keep_aborted(self, most: int, told_below: int) -> None:
        """Keep the `most` newest ones. Of the older ones, forget those below `told_below`: checkpoints have them."""
        surplus = min(len(self._aborted) - most, self._aborted.position(told_below))
        if surplus > 0:
            self.aborted_from = max(self.aborted_from, self._aborted[surplus - 1].last_offset + 1)
            self._aborted.drop(surplus)

    def start_moved(self, start_offset: int) -> None:
        """Records were deleted. A transaction with deleted records stays open until its marker comes."""
        self._start_offset = start_offset
        self.aborted_from = max(self.aborted_from, start_offset)
        self._aborted.drop(self._aborted.position(start_offset))
