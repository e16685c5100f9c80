"""Loads the groups of a partition from its records, in the order in which they were written; and frees them again."""

import sys
from collections.abc import Generator, Set
from dataclasses import replace
from typing import Any

from coordinator.group.classic.group import ClassicGroup
from coordinator.group.classic.stored_group import group_from_record
from coordinator.group.consumer.group import Change, ConsumerGroup
from coordinator.group.group import Group
from coordinator.group.migration import AnyGroup
from coordinator.group.offsets.group_offsets import GroupOffsets
from coordinator.group.offsets.transactions import OffsetTransactions
from coordinator.group.ports import GroupTopicPartition
from coordinator.group.records.codec import decode_record
from coordinator.group.records.consumer_group import ConsumerGroupMetadataKey
from coordinator.group.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from coordinator.group.records.offset_commit import OffsetCommitKey
from coordinator.group.records.transactional_offset import MarkerEpochKey, TransactionalOffsetKey
from coordinator.log import Log
from coordinator.slices import SliceCounter, Steps
from coordinator.state_machine import MalformedRecordError
from coordinator.topics import TopicPartition
from protocol.kafka.errors import ErrorCode


class Loader:
    """The last record of a key wins; a tombstone removes the earlier ones."""

    def __init__(self, log: Log, transactions: OffsetTransactions) -> None:
        self._log = log
        self._transactions = transactions
        self._classic: dict[str, GroupMetadataValue] = {}
        self._consumer: dict[str, ConsumerGroup] = {}
        self._offsets: dict[str, GroupOffsets] = {}
        self._deleted: set[GroupTopicPartition] = set()
        self.replaced: list[ConsumerGroup] = []
        """Consumer groups of which the log has a part: the classic group counts."""
        self._topic_ids: dict[bytes, bytes] = {}
        """One object is shared by all offsets of a topic."""

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Skips records of unknown kinds, as Kafka does. Raises MalformedRecordError."""
        decoded = decode_record(key, value)
        if decoded is None:
            return
        try:
            self._apply(*decoded)
        except ValueError as error:  # not a valid state of a member
            raise MalformedRecordError(str(error)) from error

    def _apply(self, key: Any, value: Any) -> None:
        if isinstance(key, OffsetCommitKey):
            partition = TopicPartition(sys.intern(key.topic), key.partition)
            if value is not None and value.topic_id:
                value = replace(value, topic_id=self._topic_ids.setdefault(value.topic_id, value.topic_id))
            self._offsets.setdefault(key.group, GroupOffsets()).replay(partition, value)
            (self._deleted.add if value is None else self._deleted.discard)((key.group, partition))
        elif isinstance(key, GroupMetadataKey):
            self._classic.pop(key.group, None)
            if value is not None:
                self._classic[key.group] = value
        elif isinstance(key, TransactionalOffsetKey | MarkerEpochKey):
            self._transactions.replay(key, value)
        else:
            self._consumer.setdefault(key.group, ConsumerGroup(key.group, self._log)).apply(Change(key, value))
            if isinstance(key, ConsumerGroupMetadataKey) and value is None:
                del self._consumer[key.group]

    @property
    def deleted(self) -> Set[GroupTopicPartition]:
        """Committed offsets that were deleted, if the log still has their tombstones."""
        return self._deleted

    def finish(self, now_ms: int) -> Generator[None, None, dict[str, AnyGroup]]:
        """Groups that only ever stored offsets have no record of their own. Each step is a slice of the work.

        If a group changed its protocol and the tombstone of the old group was lost, the group with members counts. If
        both have members, one was being converted into the other: the classic group counts, because the log has all of
        it.
        """
        groups: dict[str, AnyGroup] = {}
        counter = SliceCounter()
        for group_id, value in self._classic.items():
            groups[group_id] = group_from_record(GroupMetadataKey(group_id), value, now_ms)
            if counter.is_full(1 + len(value.members)):
                yield
        for group_id, group in self._consumer.items():
            classic = groups.get(group_id)
            if classic is not None and classic.members:
                self.replaced.append(group)
            elif classic is None or group.members:
                groups[group_id] = group
        for group_id, offsets in self._offsets.items():
            if offsets:
                groups.setdefault(group_id, ClassicGroup(group_id, now_ms)).offsets = offsets
                if counter.is_full(1):
                    yield
        for group_id in self._transactions.groups():
            groups.setdefault(group_id, ClassicGroup(group_id, now_ms))
        return groups


def unload(groups: list[Group]) -> Steps:
    """Free groups that another coordinator has now, in slices: freeing very many offsets takes long, and so do the
    answers to very many members that wait."""
    counter = SliceCounter()
    for group in groups:
        yield from group.answer_all(ErrorCode.NOT_COORDINATOR)
        if counter.is_full(1 + len(group.members)):
            yield
    while groups:
        if counter.is_full(1 + len(groups.pop().offsets.durable)):
            yield
