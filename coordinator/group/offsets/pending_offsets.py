"""Offsets of open transactions: what the log has of them, and what is on its way there.

They are found by their producer when its transaction ends, and by their group and partition in all other cases.
"""

from collections.abc import Collection, Iterable, KeysView, Mapping, Sequence
from dataclasses import replace

from coordinator.group.offsets.group_offsets import is_of_deleted
from coordinator.group.records.codec import encode_record
from coordinator.group.records.transactional_offset import TransactionalOffsetKey, TransactionalOffsetValue
from coordinator.log import Record
from coordinator.topics import DeletedTopic, TopicPartition

PendingChanges = Mapping[TransactionalOffsetKey, TransactionalOffsetValue | None]
"""What one append says; None removes."""
_NO_PARTITIONS: Mapping[TopicPartition, Mapping[TransactionalOffsetKey, None]] = {}


class PendingOffsets:
    """A change is in flight from `prepare` until `commit` or `abandon`."""

    def __init__(self) -> None:
        self._durable: dict[TransactionalOffsetKey, TransactionalOffsetValue] = {}
        self._in_flight: dict[TransactionalOffsetKey, PendingChanges] = {}
        """By key, the last one."""
        self._by_producer: dict[int, dict[TransactionalOffsetKey, None]] = {}
        self._by_group: dict[str, dict[TopicPartition, dict[TransactionalOffsetKey, None]]] = {}
        self._producer_epochs: dict[int, int] = {}
        self._next_order = 0

    # --- What is open

    def find(self, key: TransactionalOffsetKey) -> TransactionalOffsetValue | None:
        """As it will be when all that is in flight is durable."""
        changes = self._in_flight.get(key)
        return self._durable.get(key) if changes is None else changes[key]

    def is_in_flight(self, key: TransactionalOffsetKey) -> bool:
        return key in self._in_flight

    def of_producer(self, producer_id: int) -> Collection[TransactionalOffsetKey]:
        return [*self._by_producer.get(producer_id, ())]

    def producer_epoch(self, producer_id: int) -> int | None:
        """The highest that its open transaction has; None if it has none."""
        return self._producer_epochs.get(producer_id)

    def producer_ids(self) -> Collection[int]:
        """Of those that have transactions open."""
        return [*self._by_producer]

    def of_partition(self, group_id: str, partition: TopicPartition) -> Collection[TransactionalOffsetKey]:
        return self._by_group.get(group_id, {}).get(partition, ())

    def of_group(self, group_id: str) -> Collection[TransactionalOffsetKey]:
        return [key for keys in self._by_group.get(group_id, {}).values() for key in keys]

    def partitions(self, group_id: str) -> KeysView[TopicPartition]:
        """For which transactions have offsets open."""
        return self._by_group.get(group_id, _NO_PARTITIONS).keys()

    def groups(self) -> Collection[str]:
        return self._by_group

    def has_open(self, group_id: str, besides: Collection[TransactionalOffsetKey] = ()) -> bool:
        """Whether there will be any, `besides` these, when all that is in flight is durable."""
        return any(self.find(key) is not None and key not in besides for key in self.of_group(group_id))

    def of_deleted(self, deleted: Mapping[str, Sequence[DeletedTopic]]) -> list[TransactionalOffsetKey]:
        """Those of topics, made before these were deleted."""
        return [
            key
            for keys in self._by_producer.values()
            for key in keys
            if key.topic in deleted
            and (value := self.find(key)) is not None
            and any(is_of_deleted(value.offset, topic) for topic in deleted[key.topic])
        ]

    def superseded(
        self, group_id: str, partition: TopicPartition, before: int | None = None
    ) -> dict[TransactionalOffsetKey, TransactionalOffsetValue]:
        """What is to be written with an offset that is committed for the partition: older ones do not count any more.

        Older are those of an order below `before`; None: all.
        """
        found: dict[TransactionalOffsetKey, TransactionalOffsetValue] = {}
        for key in self.of_partition(group_id, partition):
            # One that is being removed may stay.
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

    def commit(self, changes: PendingChanges) -> None:
        """They are durable."""
        for key, value in changes.items():
            if value is None:
                self._durable.pop(key, None)
            else:
                self._durable[key] = value
        self.abandon(changes)

    def abandon(self, changes: PendingChanges) -> None:
        """They are in flight no more."""
        for key in changes:
            if self._in_flight.get(key) is changes:  # else there is a later one
                del self._in_flight[key]
            self._forget_if_gone(key)

    def _index(self, key: TransactionalOffsetKey, value: TransactionalOffsetValue) -> None:
        partition = TopicPartition(key.topic, key.partition)
        self._by_producer.setdefault(key.producer_id, {})[key] = None
        self._by_group.setdefault(key.group, {}).setdefault(partition, {})[key] = None
        epoch = self._producer_epochs.get(key.producer_id, value.producer_epoch)
        self._producer_epochs[key.producer_id] = max(epoch, value.producer_epoch)
        self._next_order = max(self._next_order, value.order)

    def _forget_if_gone(self, key: TransactionalOffsetKey) -> None:
        if key in self._durable or key in self._in_flight or key not in self._by_producer.get(key.producer_id, ()):
            return
        partition = TopicPartition(key.topic, key.partition)
        of_producer, of_group = self._by_producer[key.producer_id], self._by_group[key.group]
        del of_producer[key]
        if not of_producer:
            del self._by_producer[key.producer_id], self._producer_epochs[key.producer_id]
        del of_group[partition][key]
        if not of_group[partition]:
            del of_group[partition]
        if not of_group:
            del self._by_group[key.group]


def pending_records(changes: PendingChanges) -> list[Record]:
    return [encode_record(key, value) for key, value in changes.items()]


def removals(keys: Iterable[TransactionalOffsetKey]) -> PendingChanges:
    return dict.fromkeys(keys)
