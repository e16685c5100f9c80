"""The transactions of one partition: which are open, which were aborted, and up to where all are decided.

A function of the log's prefix: whoever has read as far knows the same. It moves in the same turn as the log's end, and
batches come in the order of their offsets, whether they are appended here or read. Nothing of it is for topics that
have never seen a transaction: without one, all questions are answered by an empty dictionary.

Abort markers are known from `aborted_from` on: a state that began at a checkpoint, or that was trimmed, has to be given
the older ones (`add_older`) before it can say what was aborted there.

Source: Kafka's ProducerStateManager, ProducerAppendInfo and TransactionIndex; KIP-98, KIP-890.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from protocol.kafka.batch import NO_PRODUCER_EPOCH
from protocol.kafka.errors import ErrorCode
from protocol.kafka.transaction_marker import MarkerType, TransactionMarker

NO_COORDINATOR_EPOCH = -1
MAX_ENDED_PRODUCERS = 10_000
EPOCH_BUMP_VERSION = 2
"""From this `transaction.version` on, a marker's epoch is higher than that of the batches that it ends."""


class OpenTransaction(NamedTuple):
    """`coordinator_epoch` is that of the producer's last marker here, -1 if none is known."""

    producer_epoch: int
    first_offset: int
    coordinator_epoch: int = NO_COORDINATOR_EPOCH


class AbortedTransaction(NamedTuple):
    """`last_offset` is the marker's. Behind it, nothing below `stable_offset` was open."""

    producer_id: int
    first_offset: int
    last_offset: int
    stable_offset: int


class EndedTransaction(NamedTuple):
    """The epochs of the producer's last marker: an earlier one comes late, and is refused."""

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
        """As of a checkpoint at the offset `aborted_from`, at which these were open, and those had ended (by producer
        id, the last one at the end).
        """
        in_order = sorted((open_ or {}).items(), key=lambda item: item[1].first_offset)
        self._open = dict(in_order)
        """The oldest first."""
        self._ended: OrderedDict[int, EndedTransaction] = OrderedDict(ended or {})
        self._aborted: list[AbortedTransaction] = []
        """In the order of their markers."""
        self._start_offset = 0
        self.aborted_from = aborted_from

    @property
    def open(self) -> Mapping[int, OpenTransaction]:
        """By producer id, the oldest first. A view that changes."""
        return self._open

    def last_ended(self, most: int) -> dict[int, EndedTransaction]:
        """By producer id, the last one at the end."""
        last = [*islice(reversed(self._ended.items()), most)]
        return dict(reversed(last))

    def coordinator_epoch(self, producer_id: int) -> int:
        """That of the producer's last marker; -1 if none is known."""
        found = self._open.get(producer_id)
        epoch = self._ended.get(producer_id, _NONE_ENDED).coordinator_epoch
        return epoch if found is None else max(epoch, found.coordinator_epoch)

    # The log grows

    def data_appended(self, producer_id: int, producer_epoch: int, first_offset: int) -> None:
        """A transactional batch. A later epoch may go on with an open transaction, as in Kafka."""
        found = self._open.get(producer_id)
        if found is None:
            coordinator_epoch = self._ended.get(producer_id, _NONE_ENDED).coordinator_epoch
            self._open[producer_id] = OpenTransaction(producer_epoch, first_offset, coordinator_epoch)
        elif producer_epoch > found.producer_epoch:
            self._open[producer_id] = found._replace(producer_epoch=producer_epoch)

    def marker_error(
        self, marker: TransactionMarker, transaction_version: int = 0, coming_epoch: int = NO_PRODUCER_EPOCH
    ) -> ErrorCode:
        """Why the marker may not be appended. One that ends nothing may: its coordinator did not hear of the first.

        From version 2 on its epoch must exceed that of the open batches: a late marker of the transaction before must
        not end this one (KAFKA-19999). ``coming_epoch`` is that of the producer's batches that are on their way.
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
        """Also one that `marker_error` would refuse: when it is in the log, it counts for all who read it."""
        found = self._open.pop(marker.producer_id, None)
        self._remember(marker)
        if found is not None and marker.type is MarkerType.ABORT:
            stable = self._first_open(offset + 1)
            self._aborted.append(AbortedTransaction(marker.producer_id, found.first_offset, offset, stable))

    def _remember(self, marker: TransactionMarker) -> None:
        before = self._ended.pop(marker.producer_id, _NONE_ENDED)
        self._ended[marker.producer_id] = EndedTransaction(
            max(before.producer_epoch, marker.producer_epoch),
            max(before.coordinator_epoch, marker.coordinator_epoch),
        )
        if len(self._ended) > MAX_ENDED_PRODUCERS:
            self._ended.popitem(last=False)

    # Up to where all is decided

    def last_stable_offset(self, end_offset: int) -> int:
        """The first offset of the oldest open transaction, or the log's end; never below the log's start."""
        return max(self._start_offset, self._first_open(end_offset))

    def _first_open(self, otherwise: int) -> int:
        return next((transaction.first_offset for transaction in self._open.values()), otherwise)

    # What was aborted

    def aborted_between(self, fetch_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """Those with a record from `fetch_offset` on and below `upper_offset`, in the order in which they began.

        ValueError below `aborted_from`.
        """
        if fetch_offset < self.aborted_from:
            raise ValueError(f"aborted transactions are known from {self.aborted_from} on, not {fetch_offset}")
        found = []
        for aborted in self._aborted[bisect_left(self._aborted, fetch_offset, key=_last_offset) :]:
            if aborted.first_offset < upper_offset:
                found.append(aborted)
            if aborted.stable_offset >= upper_offset:  # whatever was aborted later began behind it
                break
        return sorted(found, key=_first_offset)

    def aborted_from_to(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Those whose markers lie from one offset on and below another, in their order."""
        first = bisect_left(self._aborted, from_offset, key=_last_offset)
        return self._aborted[first : bisect_left(self._aborted, to_offset, key=_last_offset)]

    @property
    def aborted_count(self) -> int:
        """How many are in memory."""
        return len(self._aborted)

    def add_older(self, aborted: Sequence[AbortedTransaction], known_from: int) -> None:
        """All whose markers lie from `known_from` on and below `aborted_from`, in the order of the markers."""
        self._aborted[:0] = [each for each in aborted if each.last_offset >= self._start_offset]
        self.aborted_from = max(known_from, self._start_offset)

    def keep_aborted(self, most: int, told_below: int) -> None:
        """Forget the oldest abort markers, of those below an offset: they are told elsewhere."""
        surplus = min(len(self._aborted) - most, bisect_left(self._aborted, told_below, key=_last_offset))
        if surplus > 0:
            self.aborted_from = max(self.aborted_from, self._aborted[surplus - 1].last_offset + 1)
            del self._aborted[:surplus]

    def start_moved(self, start_offset: int) -> None:
        """Records were deleted. A transaction of which some are gone is still open until its marker comes."""
        self._start_offset = start_offset
        self.aborted_from = max(self.aborted_from, start_offset)
        del self._aborted[: bisect_left(self._aborted, start_offset, key=_last_offset)]


def _first_offset(aborted: AbortedTransaction) -> int:
    return aborted.first_offset


def _last_offset(aborted: AbortedTransaction) -> int:
    return aborted.last_offset
