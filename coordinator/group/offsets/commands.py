"""Commits, deletions and expiry of offsets, and the removal of groups that have no offsets left."""

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from coordinator.group.config import GroupConfig
from coordinator.group.messages import CommitRequest, CommitResponse, DeleteOffsetsResponse
from coordinator.group.offsets.group_offsets import (
    GroupOffsets,
    OffsetExpirationCondition,
    offset_records,
    offsets_to_store,
)
from coordinator.group.offsets.pending_offsets import PendingChanges, PendingOffsets, pending_records
from coordinator.group.ports import COMMIT_APPEND_ERRORS, OffsetsListener
from coordinator.group.records.offset_commit import OffsetCommitValue
from coordinator.group.records.transactional_offset import TransactionalOffsetKey
from coordinator.log import Log, Record
from coordinator.slices import SLICE_UNITS, SliceCounter, Steps
from coordinator.topics import DeletedTopic, TopicPartition
from protocol.kafka.errors import ErrorCode

CommitReply = Callable[[CommitResponse], None]
DeleteOffsetsReply = Callable[[DeleteOffsetsResponse], None]
DeleteGroupsReply = Callable[[Mapping[str, ErrorCode]], None]
OnStored = Callable[[ErrorCode], None]
CommitValues = Mapping[TopicPartition, OffsetCommitValue]


class OffsetsOwner(Protocol):
    """The parts of a group on which its offsets depend."""

    group_id: str
    offsets: GroupOffsets

    @property
    def is_empty(self) -> bool: ...

    def is_subscribed_to_topic(self, topic: str) -> bool: ...

    def offset_expiration_condition(self) -> OffsetExpirationCondition | None: ...

    def tombstones(self) -> list[Record]: ...

    def die(self, now_ms: int) -> None: ...


Owner = TypeVar("Owner", bound=OffsetsOwner)


@dataclass(frozen=True)
class _Removal(Generic[Owner]):
    """Offsets to remove: committed ones of a group, None for all of them, and pending ones of its transactions."""

    group: Owner
    partitions: Iterable[TopicPartition] | None
    pending: Iterable[TransactionalOffsetKey] = ()
    with_group: bool = False
    """If the group is empty then, it is removed, too: as in Kafka, only when it is deleted, and when offsets expire."""


class OffsetCommands(Generic[Owner]):
    """Works on `groups` and `pending`, which belong to the coordinator: a group that dies here is removed from
    `groups`."""

    def __init__(
        self,
        config: GroupConfig,
        log: Log,
        groups: dict[str, Owner],
        pending: PendingOffsets,
        on_changed: OffsetsListener,
    ) -> None:
        self._config = config
        self._log = log
        self._groups = groups
        self._pending = pending
        self._on_changed = on_changed
        self._deleted_topics: list[DeletedTopic] = []
        self._resigned = False

    def resign(self) -> None:
        """Append nothing more after appends in flight: the groups are not known here any more."""
        self._resigned = True

    def commit(self, group: Owner, request: CommitRequest, now_ms: int, reply: CommitReply) -> None:
        """Replies when the offsets are durable. Offsets whose metadata is too large are refused one by one."""
        values = offsets_to_store(request, now_ms)
        answer = dict.fromkeys(request.offsets, ErrorCode.OFFSET_METADATA_TOO_LARGE)
        if not values:
            reply(answer)
            return
        parts = self._parts(group.group_id, values)
        left = len(parts)

        def on_stored(part: Iterable[TopicPartition], error: ErrorCode) -> None:
            nonlocal left
            answer.update(dict.fromkeys(part, COMMIT_APPEND_ERRORS.get(error, error)))
            left -= 1
            if not left:
                reply(answer)

        for part, superseded in parts:
            self._store(group, part, superseded, on_stored)

    def _parts(self, group_id: str, values: CommitValues) -> list[tuple[CommitValues, PendingChanges]]:
        """The parts to append, each with the pending offsets that it supersedes. A short append is stored whole."""
        in_transactions = self._pending.partitions(group_id)
        if not in_transactions or in_transactions.isdisjoint(values):
            return [(values, {})]
        superseded = self._pending.superseded
        return [({partition: value}, superseded(group_id, partition)) for partition, value in values.items()]

    def _store(
        self,
        group: Owner,
        values: CommitValues,
        superseded: PendingChanges,
        on_stored: Callable[[Iterable[TopicPartition], ErrorCode], None],
    ) -> None:
        group.offsets.prepare(values)
        records = offset_records(group.group_id, values)
        if superseded:
            self._pending.prepare(superseded)
            records += pending_records(superseded)

        def on_done(error: ErrorCode, now_ms: int) -> None:
            if superseded:
                (self._pending.commit if error is ErrorCode.NONE else self._pending.abandon)(superseded)
            # Also if the group has changed its protocol in the meantime: the new group keeps the offsets.
            if error is ErrorCode.NONE:
                self._on_changed(group.group_id, group.offsets.commit(values))
            else:
                group.offsets.abandon(values)
            on_stored(values, error)

        self._log.append(records, on_done)

    def delete(
        self, group: Owner, partitions: Collection[TopicPartition], now_ms: int, reply: DeleteOffsetsReply
    ) -> Steps | None:
        """Keeps offsets of topics to which members are subscribed. Returns the rest of the work, if there is more."""
        subscribed = {name for name in {each.topic for each in partitions} if group.is_subscribed_to_topic(name)}
        errors = {
            partition: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if partition.topic in subscribed else ErrorCode.NONE
            for partition in partitions
        }
        deletable = [partition for partition, error in errors.items() if error is ErrorCode.NONE]

        def on_stored(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                reply(DeleteOffsetsResponse(error))
            else:
                reply(DeleteOffsetsResponse(ErrorCode.NONE, errors))

        if len(deletable) <= SLICE_UNITS:
            self._remove([self._deletion(group, deletable)], now_ms, on_stored)
            return None
        return _begun(self._remove_in_slices(group, deletable, now_ms, on_stored))

    def delete_groups(self, group_ids: Iterable[str], now_ms: int, reply: DeleteGroupsReply) -> Steps | None:
        """Only groups without members can be deleted. Returns the rest of the work, if there is more."""
        errors = {group_id: self._deletion_error(group_id) for group_id in group_ids}
        deleted = [group_id for group_id, error in errors.items() if error is ErrorCode.NONE]

        def on_stored(error: ErrorCode) -> None:
            reply(errors | dict.fromkeys(deleted, error))

        groups = [self._groups[group_id] for group_id in deleted]
        if sum(len(group.offsets.known()) for group in groups) <= SLICE_UNITS:
            everything = [
                _Removal(group, None, self._pending.of_group(group.group_id), with_group=True) for group in groups
            ]
            self._remove(everything, now_ms, on_stored)
            return None
        return _begun(self._remove_groups_in_slices(groups, now_ms, on_stored))

    def _deletion(self, group: Owner, partitions: Collection[TopicPartition]) -> _Removal[Owner]:
        pending = [key for each in partitions for key in self._pending.of_partition(group.group_id, each)]
        return _Removal(group, partitions, pending)

    def _remove_in_slices(
        self, group: Owner, partitions: list[TopicPartition], now_ms: int, on_stored: OnStored
    ) -> Steps:
        """The group may be deleted between two slices: a new group of the same name keeps its own commits. The group
        itself keeps what is committed in the meantime."""
        appends = _Appends(on_stored)
        before = {each: group.offsets.latest(each) for each in partitions}
        pending = {key: self._pending.find(key) for key in self._deletion(group, partitions).pending}
        try:
            for start in range(0, len(partitions), SLICE_UNITS):
                now = self._groups.get(group.group_id)
                if now is None or now.offsets is not group.offsets:
                    break
                some = partitions[start : start + SLICE_UNITS]
                removal = self._deletion(now, some)
                unchanged = [each for each in some if now.offsets.latest(each) is before[each]]
                old = [key for key in removal.pending if key in pending and self._pending.find(key) is pending[key]]
                self._remove([_Removal(now, unchanged, old)], now_ms, appends.one())
                yield
            appends.end()
        finally:
            appends.end(ErrorCode.NOT_COORDINATOR)

    def _remove_groups_in_slices(self, groups: list[Owner], now_ms: int, on_stored: OnStored) -> Steps:
        """The groups die immediately; their offsets are removed after that. After a crash, the offsets that are left
        belong to a group that can be deleted."""
        appends = _Appends(on_stored)
        try:
            self._delete_now(groups, now_ms, appends.one())
            yield
            for group in groups:
                for among in group.offsets.slices():
                    self._remove_left_offsets(group.group_id, group.offsets.remove(among), appends.one())
                    yield
            appends.end()
        finally:
            appends.end(ErrorCode.NOT_COORDINATOR)

    def _delete_now(self, groups: Iterable[Owner], now_ms: int, on_stored: OnStored) -> None:
        records: list[Record] = []
        pending: dict[TransactionalOffsetKey, None] = {}
        for group in groups:
            records += group.tombstones()
            pending |= dict.fromkeys(self._pending.of_group(group.group_id))
            group.die(now_ms)
            del self._groups[group.group_id]
        self._append(records, {}, pending, on_stored)

    def _remove_left_offsets(self, group_id: str, left: Set[TopicPartition], on_stored: OnStored) -> None:
        """A new group of the same name keeps its offsets: their records are in the log already. Those in flight may be
        refused: then the old ones are still there, and are removed when that is known."""
        anew = self._groups.get(group_id)
        offsets = GroupOffsets() if anew is None else anew.offsets
        removed = dict.fromkeys(left - offsets.known())
        undecided = left & offsets.known() - offsets.durable.keys()

        def on_done(error: ErrorCode, now_ms: int = 0) -> None:
            if undecided and self._resigned:
                on_stored(ErrorCode.NOT_COORDINATOR)
            elif error or not undecided:
                on_stored(COMMIT_APPEND_ERRORS.get(error, error))
            else:
                self._remove_left_offsets(group_id, undecided, on_stored)

        if removed or not undecided:
            self._append(offset_records(group_id, removed), {group_id: removed}, {}, on_done)
        else:  # Appends end in their order, also one without records.
            self._log.append([], on_done, irrevocable=True)

    def _deletion_error(self, group_id: str) -> ErrorCode:
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if group.is_empty else ErrorCode.NON_EMPTY_GROUP

    def expire(self, now_ms: int) -> Steps:
        """Lost tombstones do no harm: the offsets expire again after the next load."""
        retention_ms = self._config.offsets_retention_ms

        def expired(group: Owner, among: Iterable[TopicPartition]) -> list[TopicPartition] | None:
            rule = group.offset_expiration_condition()
            if rule is None:
                return None
            in_transactions = self._pending.partitions(group.group_id)
            expired = group.offsets.expired(among, rule, now_ms, retention_ms)
            return [partition for partition in expired if partition not in in_transactions]

        return self._remove_everywhere(expired, now_ms, with_groups=True)

    def forget_topics(self, topics: Iterable[DeletedTopic], now_ms: int) -> Steps | None:
        """Remove the offsets of deleted topics. Returns None if steps that run already do it."""
        under_way = bool(self._deleted_topics)
        self._deleted_topics += topics
        return None if under_way else self._forget_topics(now_ms)

    def _forget_topics(self, now_ms: int) -> Steps:
        """Topics that are added while this runs are handled in one further round."""
        try:
            while self._deleted_topics:
                count = len(self._deleted_topics)
                yield from self._remove_offsets_of(self._deleted_topics[:count], now_ms)
                del self._deleted_topics[:count]
        finally:  # Also after an exception: the next deletion starts with an empty list.
            self._deleted_topics.clear()

    def _remove_offsets_of(self, topics: Iterable[DeletedTopic], now_ms: int) -> Steps:
        by_name: dict[str, list[DeletedTopic]] = {}
        for topic in topics:
            by_name.setdefault(topic.name, []).append(topic)
        pending = dict.fromkeys(self._pending.of_deleted(by_name))
        self._append([], {}, pending, lambda error: None)
        return self._remove_everywhere(
            lambda group, among: group.offsets.of_deleted(among, by_name) or None, now_ms, with_groups=False
        )

    def _remove_everywhere(
        self,
        choose: Callable[[Owner, Iterable[TopicPartition]], list[TopicPartition] | None],
        now_ms: int,
        *,
        with_groups: bool,
    ) -> Steps:
        """Remove the chosen offsets of every group; `with_groups`, also the empty groups that have none left.

        `choose` returns None to keep a group.
        """
        counter = SliceCounter()
        for group_id, group in list(self._groups.items()):
            for among in group.offsets.slices():
                now = self._groups.get(group_id)
                # The group was deleted; or it changed its protocol, and kept its offsets.
                if now is None or now.offsets is not group.offsets:
                    break
                chosen = choose(now, among)
                if chosen is not None:
                    removal = _Removal(now, chosen, with_group=with_groups)
                    self._remove([removal], now_ms, lambda error: None)
                if counter.is_full(len(among) + 1):
                    yield

    def _remove(self, removed: list[_Removal[Owner]], now_ms: int, on_stored: OnStored) -> None:
        """Remove these offsets, and groups that have none left, in one append."""
        offsets: dict[str, dict[TopicPartition, int | None]] = {}
        pending: dict[TransactionalOffsetKey, None] = {}
        records: list[Record] = []
        for each in removed:
            group = each.group
            gone = group.offsets.remove(group.offsets.known() if each.partitions is None else each.partitions)
            offsets[group.group_id] = dict.fromkeys(gone)
            records += offset_records(group.group_id, dict.fromkeys(gone))
            pending |= dict.fromkeys(each.pending)
            if each.with_group and self._is_unused(group, pending):
                records += group.tombstones()
                group.die(now_ms)
                del self._groups[group.group_id]
        self._append(records, offsets, pending, on_stored)

    def _is_unused(self, group: Owner, gone: Collection[TransactionalOffsetKey]) -> bool:
        """Whether it has neither members nor offsets; `gone` are pending ones that are being removed."""
        return group.is_empty and not group.offsets and not self._pending.has_open(group.group_id, besides=gone)

    def _append(
        self,
        records: list[Record],
        removed: Mapping[str, Mapping[TopicPartition, int | None]],
        pending: PendingChanges,
        on_stored: OnStored,
    ) -> None:
        """`records` contain the tombstones of `removed`; the tombstones of `pending` are added to them here."""
        records = [*records, *pending_records(pending)]
        if not records:
            on_stored(ErrorCode.NONE)
            return
        self._pending.prepare(pending)

        def on_done(error: ErrorCode, now_ms: int) -> None:
            (self._pending.abandon if error else self._pending.commit)(pending)
            for group_id, offsets in removed.items():
                if offsets and error is ErrorCode.NONE:
                    self._on_changed(group_id, offsets)
            on_stored(COMMIT_APPEND_ERRORS.get(error, error))

        self._log.append(records, on_done, irrevocable=True)


class _Appends:
    """Several appends that have one answer: the first error, if there is one."""

    def __init__(self, on_stored: OnStored) -> None:
        self._on_stored = on_stored
        self._left = 1
        self._error = ErrorCode.NONE
        self._ended = False

    def one(self) -> OnStored:
        """Returns the callback for one more append."""
        self._left += 1
        return self._done

    def end(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """There are no further appends; `error` if some were not made. Only the first call counts."""
        if not self._ended:
            self._ended = True
            self._done(error)

    def _done(self, error: ErrorCode) -> None:
        self._error = self._error or error
        self._left -= 1
        if not self._left:
            self._on_stored(self._error)


def _begun(steps: Steps) -> Steps:
    """Runs the first step now, so that the `finally` of the steps will run, whether they end or are closed."""
    next(steps, None)
    return steps
