"""Removal of offsets: committed ones, pending ones of open transactions, and groups that have none left."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from coordinator.group.offsets.group_offsets import GroupOffsets, OffsetExpirationCondition, offset_records
from coordinator.group.offsets.pending_offsets import PendingChanges, PendingOffsets, pending_records
from coordinator.group.ports import COMMIT_APPEND_ERRORS, OffsetsListener
from coordinator.group.records.transactional_offset import TransactionalOffsetKey
from coordinator.log import Log, Record
from coordinator.slices import SliceCounter, Steps
from coordinator.topics import DeletedTopic, TopicPartition
from protocol.kafka.errors import ErrorCode

OnStored = Callable[[ErrorCode], None]


class OffsetsOwner(Protocol):
    """The parts of a group on which its offsets depend."""

    group_id: str
    offsets: GroupOffsets

    @property
    def is_empty(self) -> bool: ...

    def is_subscribed_to_topic(self, topic: str) -> bool: ...

    def offset_expiration_condition(self) -> OffsetExpirationCondition | None: ...

    def tombstones(self) -> Iterator[Record]: ...

    def die(self, now_ms: int) -> None: ...


Owner = TypeVar("Owner", bound=OffsetsOwner)


@dataclass(frozen=True)
class Removal(Generic[Owner]):
    """Offsets to remove: committed ones of a group, None for all of them, and pending ones of its transactions."""

    group: Owner
    partitions: Iterable[TopicPartition] | None
    pending: Collection[TransactionalOffsetKey] = ()
    with_group: bool = False
    """If the group is empty then, it is removed, too: as in Kafka, only when it is deleted, and when offsets expire."""


class Removals(Generic[Owner]):
    """Works on `groups` and `pending`, which belong to the coordinator."""

    def __init__(
        self, log: Log, groups: dict[str, Owner], pending: PendingOffsets, on_changed: OffsetsListener
    ) -> None:
        self._log = log
        self._groups = groups
        self._pending = pending
        self._on_changed = on_changed

    def remove(self, removed: Iterable[Removal[Owner]], now_ms: int, on_stored: OnStored) -> None:
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
        self.append(records, offsets, pending, on_stored)

    def _is_unused(self, group: Owner, gone: Collection[TransactionalOffsetKey]) -> bool:
        """Whether it has neither members nor offsets; `gone` are pending ones that are being removed."""
        return group.is_empty and not group.offsets and not self._pending.has_open(group.group_id, besides=gone)

    def append(
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

    # --- In all groups, in slices

    def remove_everywhere(
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
                    removal = Removal(now, chosen, with_group=with_groups)
                    self.remove([removal], now_ms, lambda error: None)
                if counter.is_full(len(among) + 1):
                    yield

    def remove_pending_of(self, deleted: Mapping[str, Collection[DeletedTopic]]) -> Steps:
        """Remove the offsets that open transactions have in these topics, by their names. What a transaction commits
        in between is a committed offset then."""
        counter = SliceCounter()
        for among in self._pending.slices():
            chosen = self._pending.of_deleted(among, deleted)
            self.append([], {}, dict.fromkeys(chosen), lambda error: None)
            if counter.is_full(len(among)):
                yield


class Appends:
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
