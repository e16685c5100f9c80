"""Offsets of open transactions: those in the log, and those in flight.

They are found by producer when its transaction ends, and by group and partition in all other cases.
"""

from collections.abc import Collection, Iterable, Iterator, KeysView, Mapping
from dataclasses import replace
from typing import NamedTuple

from coordinator.group.offsets.group_offsets import is_of_deleted
from coordinator.group.records.codec import encode_record
from coordinator.group.records.transactional_offset import TransactionalOffsetKey, TransactionalOffsetValue
from coordinator.log import Record
from coordinator.slices import SLICE_UNITS
from coordinator.topics import DeletedTopic, TopicPartition

PendingChanges = Mapping[TransactionalOffsetKey, TransactionalOffsetValue | None]
"""The changes of one append; None removes a pending offset."""
_NO_PARTITIONS: Mapping[TopicPartition, Mapping[TransactionalOffsetKey, None]] = {}


class Span(NamedTuple):
    """Of the offsets of an open transaction, also of those that were committed again since."""

    first_order: int
    last_commit_ms: int


class PendingOffsets:
    """A change is in flight from `prepare` until `commit` or `abandon`."""

    def __init__(self) -> None:
        self._durable: dict[TransactionalOffsetKey, TransactionalOffsetValue] = {}
        self._in_flight: dict[TransactionalOffsetKey, PendingChanges] = {}
        """The last append in flight, by key."""
        self._by_producer: dict[int, dict[TransactionalOffsetKey, None]] = {}
        self._by_group: dict[str, dict[TopicPartition, dict[TransactionalOffsetKey, None]]] = {}
        self._producer_epochs: dict[int, int] = {}
        self._spans: dict[int, Span] = {}
        self._next_order = 0

    # --- Open offsets

    def find(self, key: TransactionalOffsetKey) -> TransactionalOffsetValue | None:
        """The value after all changes in flight are durable."""
        changes = self._in_flight.get(key)
        return self._durable.get(key) if changes is None else changes[key]

    def is_in_flight(self, key: TransactionalOffsetKey) -> bool:
        return key in self._in_flight

    def of_producer(self, producer_id: int) -> list[TransactionalOffsetKey]:
        return [*self._by_producer.get(producer_id, ())]

    def producer_epoch(self, producer_id: int) -> int | None:
        """The highest epoch of the producer's open transaction; None if no transaction is open."""
        return self._producer_epochs.get(producer_id)

    def spans(self) -> list[tuple[int, Span]]:
        """The producers with open transactions. What is known of them is kept: they may have very many offsets."""
        return [(each, span) for each, span in self._spans.items() if self._is_open(each)]

    def _is_open(self, producer_id: int) -> bool:
        """Whether any offset will be left when all changes in flight are durable."""
        return any(self.find(key) is not None for key in self._by_producer[producer_id])

    def of_partition(self, group_id: str, partition: TopicPartition) -> Collection[TransactionalOffsetKey]:
        return self._by_group.get(group_id, {}).get(partition, ())

    def of_group(self, group_id: str) -> Collection[TransactionalOffsetKey]:
        return [key for keys in self._by_group.get(group_id, {}).values() for key in keys]

    def partitions(self, group_id: str) -> KeysView[TopicPartition]:
        """The partitions for which transactions have pending offsets."""
        return self._by_group.get(group_id, _NO_PARTITIONS).keys()

    def groups(self) -> Collection[str]:
        return self._by_group

    def has_open(self, group_id: str, besides: Collection[TransactionalOffsetKey] = ()) -> bool:
        """Whether any, apart from `besides`, will be left when all changes in flight are durable."""
        of_partitions = self._by_group.get(group_id, _NO_PARTITIONS).values()
        return any(self.find(key) is not None and key not in besides for keys in of_partitions for key in keys)

    def slices(self) -> Iterator[list[TransactionalOffsetKey]]:
        """All, in lists of SLICE_UNITS: of the producers that have some now, those that each has when it has its
        turn."""
        for producer_id in [*self._by_producer]:
            keys = self.of_producer(producer_id)
            for start in range(0, len(keys), SLICE_UNITS):
                yield keys[start : start + SLICE_UNITS]

    def of_deleted(
        self, among: Iterable[TransactionalOffsetKey], deleted: Mapping[str, Collection[DeletedTopic]]
    ) -> list[TransactionalOffsetKey]:
        """Pending offsets that were committed before their topics were deleted."""
        return [
            key
            for key in among
            if key.topic in deleted
            and (value := self.find(key)) is not None
            and any(is_of_deleted(value.offset, topic) for topic in deleted[key.topic])
        ]

    def superseded(
        self, group_id: str, partition: TopicPartition, before: int | None = None
    ) -> dict[TransactionalOffsetKey, TransactionalOffsetValue]:
        """The changes to write with an offset that is committed for the partition: they supersede older ones.

        Older offsets are those whose order is below `before`; None: all.
        """
        found: dict[TransactionalOffsetKey, TransactionalOffsetValue] = {}
        for key in self.of_partition(group_id, partition):
            # An offset whose removal is in flight may stay if that append fails.
            value = self.find(key) or self._durable.get(key)
            is_known = value is not None and value.superseded and key not in self._in_flight
            if value is not None and not is_known and (before is None or value.order < before):
                found[key] = replace(value, superseded=True)
        return found

    # --- Changes

    def next_order(self) -> int:
        self._next_order += 1
        return self._next_order

    def replay(self, key: TransactionalOffsetKey, value: TransactionalOffsetValue | None) -> None:
        if value is None:
            self._durable.pop(key, None)
            self._forget_if_gone(key)
        else:
            self._durable[key] = value
            self._index(key, value)

    def prepare(self, changes: PendingChanges) -> None:
        for key, value in changes.items():
            self._in_flight[key] = changes
            if value is not None:
                self._index(key, value)

    def last_of(self, changes: PendingChanges) -> PendingChanges:
        """Of changes that were prepared: those that no later change has replaced."""
        return {key: value for key, value in changes.items() if self._in_flight.get(key) is changes}

    def commit(self, changes: PendingChanges) -> None:
        """The changes are durable."""
        for key, value in changes.items():
            if value is None:
                self._durable.pop(key, None)
            else:
                self._durable[key] = value
        self.abandon(changes)

    def abandon(self, changes: PendingChanges) -> None:
        """The changes are no longer in flight."""
        for key in changes:
            if self._in_flight.get(key) is changes:  # Otherwise a later change is in flight.
                del self._in_flight[key]
            self._forget_if_gone(key)

    def _index(self, key: TransactionalOffsetKey, value: TransactionalOffsetValue) -> None:
        partition = TopicPartition(key.topic, key.partition)
        self._by_producer.setdefault(key.producer_id, {})[key] = None
        self._by_group.setdefault(key.group, {}).setdefault(partition, {})[key] = None
        epoch = self._producer_epochs.get(key.producer_id, value.producer_epoch)
        self._producer_epochs[key.producer_id] = max(epoch, value.producer_epoch)
        first, last_ms = self._spans.get(key.producer_id, (value.order, 0))
        self._spans[key.producer_id] = Span(min(first, value.order), max(last_ms, value.offset.commit_timestamp_ms))
        self._next_order = max(self._next_order, value.order)

    def _forget_if_gone(self, key: TransactionalOffsetKey) -> None:
        if key in self._durable or key in self._in_flight or key not in self._by_producer.get(key.producer_id, ()):
            return
        partition = TopicPartition(key.topic, key.partition)
        of_producer, of_group = self._by_producer[key.producer_id], self._by_group[key.group]
        del of_producer[key]
        if not of_producer:
            del self._by_producer[key.producer_id], self._producer_epochs[key.producer_id], self._spans[key.producer_id]
        del of_group[partition][key]
        if not of_group[partition]:
            del of_group[partition]
        if not of_group:
            del self._by_group[key.group]


def pending_records(changes: PendingChanges) -> list[Record]:
    return [encode_record(key, value) for key, value in changes.items()]


def removals(keys: Iterable[TransactionalOffsetKey]) -> PendingChanges:
    return dict.fromkeys(keys)
