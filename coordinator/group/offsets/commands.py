"""Commits, deletions and expiry of offsets, and the removal of groups that have no offsets left."""

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from typing import Generic

from coordinator.group.config import GroupConfig
from coordinator.group.messages import CommitRequest, CommitResponse, DeleteOffsetsResponse
from coordinator.group.offsets.group_offsets import GroupOffsets, offset_records, offsets_to_store
from coordinator.group.offsets.pending_offsets import PendingChanges, PendingOffsets, pending_records, removals
from coordinator.group.offsets.removal import Appends, OnStored, Owner, Removal, Removals
from coordinator.group.ports import COMMIT_APPEND_ERRORS, OffsetsListener
from coordinator.group.records.offset_commit import OffsetCommitValue
from coordinator.group.records.transactional_offset import TransactionalOffsetKey
from coordinator.log import Log, Record
from coordinator.slices import SLICE_UNITS, Steps, begun
from coordinator.topics import DeletedTopic, TopicPartition
from protocol.kafka.errors import ErrorCode

CommitReply = Callable[[CommitResponse], None]
DeleteOffsetsReply = Callable[[DeleteOffsetsResponse], None]
DeleteGroupsReply = Callable[[Mapping[str, ErrorCode]], None]
CommitValues = Mapping[TopicPartition, OffsetCommitValue]


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
        self._removals = Removals(log, groups, pending, on_changed)
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
            self._removals.remove([self._deletion(group, deletable)], now_ms, on_stored)
            return None
        return begun(self._remove_in_slices(group, deletable, now_ms, on_stored))

    def delete_groups(self, group_ids: Iterable[str], now_ms: int, reply: DeleteGroupsReply) -> Steps | None:
        """Only groups without members can be deleted. Returns the rest of the work, if there is more."""
        errors = {group_id: self._deletion_error(group_id) for group_id in group_ids}
        deleted = [group_id for group_id, error in errors.items() if error is ErrorCode.NONE]

        def on_stored(error: ErrorCode) -> None:
            reply(errors | dict.fromkeys(deleted, error))

        removed = [
            Removal(self._groups[group_id], None, self._pending.of_group(group_id), with_group=True)
            for group_id in deleted
        ]
        if sum(len(each.group.offsets.known()) + len(each.pending) for each in removed) <= SLICE_UNITS:
            self._removals.remove(removed, now_ms, on_stored)
            return None
        return begun(self._remove_groups_in_slices([each.group for each in removed], now_ms, on_stored))

    def _deletion(self, group: Owner, partitions: Collection[TopicPartition]) -> Removal[Owner]:
        pending = [key for each in partitions for key in self._pending.of_partition(group.group_id, each)]
        return Removal(group, partitions, pending)

    def _remove_in_slices(
        self, group: Owner, partitions: list[TopicPartition], now_ms: int, on_stored: OnStored
    ) -> Steps:
        """The group may be deleted between two slices: a new group of the same name keeps its own commits. The group
        itself keeps what is committed in the meantime."""
        appends = Appends(on_stored)
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
                self._removals.remove([Removal(now, unchanged, old)], now_ms, appends.one())
                yield
            appends.end()
        finally:
            appends.end(ErrorCode.NOT_COORDINATOR)

    def _remove_groups_in_slices(self, groups: list[Owner], now_ms: int, on_stored: OnStored) -> Steps:
        """The groups die immediately; their offsets are removed after that. After a crash, the offsets that are left
        belong to a group that can be deleted."""
        appends = Appends(on_stored)
        try:
            pending = self._delete_now(groups, now_ms, appends.one())
            yield
            for part in pending:
                self._removals.append([], {}, self._pending.last_of(part), appends.one())
                yield
            for group in groups:
                for among in group.offsets.slices():
                    self._remove_left_offsets(group.group_id, group.offsets.remove(among), appends.one())
                    yield
            appends.end()
        finally:
            appends.end(ErrorCode.NOT_COORDINATOR)

    def _delete_now(self, groups: Iterable[Owner], now_ms: int, on_stored: OnStored) -> list[PendingChanges]:
        """Returns the removal of their pending offsets, in parts: no transaction commits them any more, not even for a
        new group of the same name."""
        records: list[Record] = []
        keys: list[TransactionalOffsetKey] = []
        for group in groups:
            records += group.tombstones()
            keys += self._pending.of_group(group.group_id)
            group.die(now_ms)
            del self._groups[group.group_id]
        self._removals.append(records, {}, {}, on_stored)
        parts = [removals(keys[start : start + SLICE_UNITS]) for start in range(0, len(keys), SLICE_UNITS)]
        for part in parts:
            self._pending.prepare(part)
        return parts

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
            self._removals.append(offset_records(group_id, removed), {group_id: removed}, {}, on_done)
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

        return self._removals.remove_everywhere(expired, now_ms, with_groups=True)

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
        """First those of open transactions: they may be committed meanwhile."""
        by_name: dict[str, list[DeletedTopic]] = {}
        for topic in topics:
            by_name.setdefault(topic.name, []).append(topic)
        yield from self._removals.remove_pending_of(by_name)
        yield from self._removals.remove_everywhere(
            lambda group, among: group.offsets.of_deleted(among, by_name) or None, now_ms, with_groups=False
        )
