"""Committed offsets of one group: those that are durable or in flight, and the search for expired ones."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from coordinator.group.messages import (
    NO_TIMESTAMP,
    CommitRequest,
    FetchedOffset,
    OffsetToCommit,
)
from coordinator.group.records.codec import encode_record
from coordinator.group.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from coordinator.log import Record
from coordinator.slices import SLICE_UNITS
from coordinator.topics import DeletedTopic, TopicPartition
from protocol.kafka.errors import ErrorCode

METADATA_MAX_CHARS = 4_096
"""offset.metadata.max.bytes: Kafka counts UTF-16 units, too, not bytes."""
_MAX_INT64 = 2**63 - 1


@dataclass(frozen=True)
class OffsetExpirationCondition:
    """When an offset without its own expiry time expires (KIP-211).

    The retention starts at `since_ms`; if it is None, at each offset's own commit. Offsets of `subscribed_topics` do
    not expire.
    """

    since_ms: int | None = None
    subscribed_topics: Collection[str] = frozenset()


class AllOffsets(Mapping[TopicPartition, FetchedOffset]):
    """The offsets of a group at one moment. There may be very many: each is made when it is read."""

    def __init__(self, values: dict[TopicPartition, OffsetCommitValue], unstable: Set[TopicPartition]) -> None:
        self._values = values
        self._unstable = unstable

    def __getitem__(self, partition: TopicPartition) -> FetchedOffset:
        return _fetched(self._values[partition], is_unstable=partition in self._unstable)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def _fetched(value: OffsetCommitValue | None, *, is_unstable: bool = False) -> FetchedOffset:
    if is_unstable:
        return FetchedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    if value is None:
        return FetchedOffset()
    return FetchedOffset(value.offset, value.leader_epoch, value.metadata, topic_id=value.topic_id)


class GroupOffsets:
    """A commit is pending from `prepare` until `commit` or `abandon`; only durable offsets are ever fetched."""

    def __init__(self) -> None:
        self._durable: dict[TopicPartition, OffsetCommitValue] = {}
        self._pending: dict[TopicPartition, OffsetCommitValue] = {}
        self._removed: dict[TopicPartition, OffsetCommitValue] = {}
        """The last pending commit of each partition whose offset was removed meanwhile, until its outcome is known."""

    def __bool__(self) -> bool:
        return bool(self._durable or self._pending)

    def __len__(self) -> int:
        return len(self._durable)

    def replay(self, partition: TopicPartition, value: OffsetCommitValue | None) -> None:
        if value is None:
            self._durable.pop(partition, None)
        else:
            self._durable[partition] = value

    def prepare(self, values: Mapping[TopicPartition, OffsetCommitValue]) -> None:
        self._pending.update(values)

    def commit(self, values: Mapping[TopicPartition, OffsetCommitValue]) -> dict[TopicPartition, int]:
        """Returns the offsets that are valid now, without those that were removed since `prepare`."""
        moved: dict[TopicPartition, int] = {}
        for partition, value in values.items():
            pending = self._pending.get(partition)
            if pending is not None and partition not in self._removed:
                self._durable[partition] = value
                moved[partition] = value.offset
            if pending is value:  # Otherwise a later commit is pending.
                del self._pending[partition]
            if self._removed and self._removed.get(partition) is value:
                del self._removed[partition]
        return moved

    def abandon(self, values: Mapping[TopicPartition, OffsetCommitValue]) -> None:
        for partition, value in values.items():
            if self._pending.get(partition) is value:  # A later commit may be pending.
                del self._pending[partition]
            if self._removed.get(partition) is value:
                del self._removed[partition]

    def fetch(
        self,
        partitions: Iterable[TopicPartition] | None,
        require_stable: bool,
        in_transactions: Collection[TopicPartition] = (),
    ) -> Mapping[TopicPartition, FetchedOffset]:
        """`in_transactions`: the partitions for which open transactions have offsets."""
        pending, durable = self._pending, self._durable
        if partitions is None:
            return AllOffsets(durable.copy(), {*pending, *in_transactions} if require_stable else frozenset())
        if not require_stable:
            return {each: _fetched(durable.get(each)) for each in partitions}
        return {
            each: _fetched(durable.get(each), is_unstable=each in pending or each in in_transactions)
            for each in partitions
        }

    @property
    def durable(self) -> Mapping[TopicPartition, OffsetCommitValue]:
        return self._durable

    def known(self) -> set[TopicPartition]:
        return self._durable.keys() | self._pending.keys()

    def latest(self, partition: TopicPartition) -> OffsetCommitValue | None:
        """What was committed last, durable or not."""
        return self._pending.get(partition) or self._durable.get(partition)

    def slices(self) -> Iterator[list[TopicPartition]]:
        """The partitions that are known now, in lists of SLICE_UNITS; one empty list if there are none."""
        known = [*self._durable, *(partition for partition in self._pending if partition not in self._durable)]
        return (known[start : start + SLICE_UNITS] for start in range(0, len(known) or 1, SLICE_UNITS))

    def expired(
        self, among: Iterable[TopicPartition], rule: OffsetExpirationCondition, now_ms: int, retention_ms: int
    ) -> list[TopicPartition]:
        return [
            partition
            for partition in among
            if partition.topic not in rule.subscribed_topics
            and (value := self._durable.get(partition)) is not None
            and partition not in self._pending
            and now_ms >= _expires_ms(value, rule.since_ms, retention_ms)
        ]

    def of_deleted(
        self, among: Iterable[TopicPartition], deleted: Mapping[str, Sequence[DeletedTopic]]
    ) -> list[TopicPartition]:
        """The partitions whose offsets were committed before their topics were deleted."""
        return [
            partition
            for partition in among
            if partition.topic in deleted
            and (value := self.latest(partition)) is not None
            and any(is_of_deleted(value, topic) for topic in deleted[partition.topic])
        ]

    def remove(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Returns the partitions whose offsets the log may have, and which therefore need a tombstone."""
        removed = {each for each in partitions if each in self._durable or each in self._pending}
        for partition in removed:
            self._durable.pop(partition, None)
            pending = self._pending.pop(partition, None)
            if pending is not None:
                self._removed[partition] = pending
        return removed


def is_of_deleted(value: OffsetCommitValue, deleted: DeletedTopic) -> bool:
    """Whether the offset was committed for the topic before it was deleted.

    A topic that was created again has another id. If an id is missing, the time of the commit decides.
    """
    if value.topic_id and deleted.topic_id:
        return value.topic_id == deleted.topic_id
    return value.commit_timestamp_ms < deleted.deleted_ms


def offset_records(group_id: str, values: Mapping[TopicPartition, OffsetCommitValue | None]) -> list[Record]:
    return [encode_record(OffsetCommitKey(group_id, *partition), value) for partition, value in values.items()]


def offsets_to_store(request: CommitRequest, now_ms: int) -> dict[TopicPartition, OffsetCommitValue]:
    """The offsets of the request, without those whose metadata is too large."""
    expire_ms = NO_TIMESTAMP if request.retention_ms is None else min(now_ms + request.retention_ms, _MAX_INT64)
    return {
        partition: _value(offset, expire_ms, now_ms)
        for partition, offset in request.offsets.items()
        if not is_too_large(offset.metadata)
    }


def _value(offset: OffsetToCommit, expire_ms: int, now_ms: int) -> OffsetCommitValue:
    own_timestamp = offset.commit_timestamp_ms != NO_TIMESTAMP
    return OffsetCommitValue(
        offset=offset.offset,
        metadata=offset.metadata or "",
        commit_timestamp_ms=offset.commit_timestamp_ms if own_timestamp else now_ms,
        leader_epoch=offset.leader_epoch,
        expire_timestamp_ms=expire_ms,
        topic_id=offset.topic_id,
    )


def _expires_ms(value: OffsetCommitValue, since_ms: int | None, retention_ms: int) -> int:
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        return value.expire_timestamp_ms
    return (value.commit_timestamp_ms if since_ms is None else since_ms) + retention_ms


def is_too_large(metadata: str | None) -> bool:
    return _utf16_length(metadata or "") > METADATA_MAX_CHARS


def _utf16_length(text: str) -> int:
    return len(text) if text.isascii() else len(text) + sum(char > "\uffff" for char in text)
