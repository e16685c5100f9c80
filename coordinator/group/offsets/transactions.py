"""Offsets in transactions (KIP-98, KIP-447): they are stored as pending, and committed with the transaction.

Here, a transaction ends with a marker of its coordinator. Of several offsets of a partition, the one that was stored
last wins: a pending offset does not overwrite an offset that was committed after it (KAFKA-5247). The record of the
committed offset is stored with records that mark older pending offsets as superseded, so that the result does not
depend on the order of records.
"""

from collections import deque
from collections.abc import Callable, Collection, Set
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakSet

from coordinator.group.messages import CommitResponse, EndOfTransaction, OpenTransaction, TransactionalCommitRequest
from coordinator.group.offsets.group_offsets import GroupOffsets, offset_records, offsets_to_store
from coordinator.group.offsets.pending_offsets import PendingOffsets, pending_records, removals
from coordinator.group.offsets.resumed_commits import ResumedCommits, WaitingCommit
from coordinator.group.ports import COMMIT_APPEND_ERRORS, OffsetsListener
from coordinator.group.records.codec import encode_record
from coordinator.group.records.offset_commit import OffsetCommitValue
from coordinator.group.records.transactional_offset import (
    MarkerEpochKey,
    MarkerEpochValue,
    TransactionalKey,
    TransactionalOffsetKey,
    TransactionalOffsetValue,
    TransactionalValue,
)
from coordinator.log import Log, Record
from coordinator.slices import SliceCounter, Steps
from coordinator.topics import TopicPartition
from protocol.kafka.errors import ErrorCode

MARKER_EPOCH_LIFE_MS = 24 * 60 * 60 * 1000
"""No marker is in flight for this time. Kafka's producer.id.expiration.ms has the same value."""
OWN_EPOCH_VERSION = 2
"""From this `transaction.version` on, each transaction of a producer has its own epoch."""

NO_COORDINATOR_EPOCH = -1

PART_OFFSETS = 1_000
"""The offsets of a transaction that end in one append: some 20 ms of work."""

EndReply = Callable[[ErrorCode], None]


@dataclass(eq=False)
class Verification:
    """The check that the group's partition is part of the producer's open transaction, while its coordinator is asked.

    A marker that arrives during the check makes it void: the transaction that was open may have ended (KIP-890).
    """

    producer_id: int
    producer_epoch: int
    is_needed: bool
    """False if the transaction has offsets here already."""
    is_void: bool = False


class _CommittedOffsets(NamedTuple):
    of_group: GroupOffsets
    values: dict[TopicPartition, OffsetCommitValue]


@dataclass
class _Part:
    """The end of some of a transaction's offsets: one append."""

    changes: dict[TransactionalOffsetKey, TransactionalOffsetValue | None] = field(default_factory=dict)
    committed: dict[str, _CommittedOffsets] = field(default_factory=dict)
    """The committed offsets, by group."""
    marker_epoch: MarkerEpochValue | None = None
    """Only in the last part. None if the log has this coordinator epoch already, or does not need it."""

    def records(self, producer_id: int) -> list[Record]:
        """In this order the last records may be lost: the marker is sent again, and the rest is written then.

        First the offsets that are superseded by those of the transaction, then the transaction's offsets, then the
        tombstones of its pending offsets.
        """
        superseded = {key: value for key, value in self.changes.items() if value is not None}
        ended = removals(key for key, value in self.changes.items() if value is None)
        offsets = [
            record for group_id, (_, values) in self.committed.items() for record in offset_records(group_id, values)
        ]
        records = [*pending_records(superseded), *offsets, *pending_records(ended)]
        if self.marker_epoch is not None:
            records.append(encode_record(MarkerEpochKey(producer_id), self.marker_epoch))
        return records


@dataclass
class _Ending:
    """The end of a transaction, one part after the other."""

    marker: EndOfTransaction
    groups: Set[str]
    left: deque[TransactionalOffsetKey]
    """The offsets of the parts that are not begun yet."""
    marker_epoch: MarkerEpochValue | None = None
    is_partial: bool = False
    """Some offsets stay pending: an append in flight decides about them, or this coordinator has resigned."""
    replies: list[EndReply] = field(default_factory=list)
    waiting: list[WaitingCommit] = field(default_factory=list)
    """They go on after the end."""


class OffsetTransactions:
    """`offsets_of` returns the offsets of a group, None if there is no such group. `start_commits` gets what is left of
    the commits that have waited."""

    def __init__(
        self,
        log: Log,
        pending: PendingOffsets,
        offsets_of: Callable[[str], GroupOffsets | None],
        on_changed: OffsetsListener,
        start_commits: Callable[[Steps], None],
    ) -> None:
        self._log = log
        self._pending = pending
        self._offsets_of = offsets_of
        self._on_changed = on_changed
        self._marker_epochs: dict[int, MarkerEpochValue] = {}
        self._endings: dict[int, _Ending] = {}
        self._resumed = ResumedCommits(start_commits)
        self._verifications: WeakSet[Verification] = WeakSet()
        self._suspected: set[int] = set()
        """Producers whose transactions may be unknown to every coordinator."""

    def replay(self, key: TransactionalKey, value: TransactionalValue | None) -> None:
        if isinstance(key, TransactionalOffsetKey):
            assert value is None or isinstance(value, TransactionalOffsetValue)
            self._pending.replay(key, value)
        elif isinstance(value, MarkerEpochValue):
            self._marker_epochs[key.producer_id] = value
        else:
            self._marker_epochs.pop(key.producer_id, None)

    def groups(self) -> Collection[str]:
        """The groups that have offsets in open transactions."""
        return self._pending.groups()

    def open_transactions(self) -> list[OpenTransaction]:
        """The open transaction of each producer that has pending offsets."""
        found = []
        for producer_id, span in self._pending.spans():
            epoch, known = self._pending.producer_epoch(producer_id), self._marker_epochs.get(producer_id)
            assert epoch is not None
            coordinator_epoch = NO_COORDINATOR_EPOCH if known is None else known.coordinator_epoch
            found.append(OpenTransaction(producer_id, epoch, coordinator_epoch, *span))
        return found

    def suspect_hanging(self, producer_id: int) -> None:
        """Verify the next commit of this producer again, although its transaction is open."""
        self._suspected.add(producer_id)

    def is_suspected(self, producer_id: int) -> bool:
        """Whether the producer's transaction is suspected to hang, and no commit was verified since."""
        return producer_id in self._suspected

    # --- Commits

    def start_verification(self, producer_id: int, producer_epoch: int) -> Verification:
        is_open = self._pending.producer_epoch(producer_id) == producer_epoch and producer_id not in self._suspected
        verification = Verification(producer_id, producer_epoch, is_needed=not is_open)
        self._verifications.add(verification)
        return verification

    def commit_error(self, request: TransactionalCommitRequest, verification: Verification) -> ErrorCode:
        """Why the transaction cannot commit offsets; independent of the group's members."""
        if request.producer_id in self._endings:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        epoch = self._pending.producer_epoch(request.producer_id)
        if epoch is not None and epoch > request.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if verification not in self._verifications:  # Markers may have gone to another coordinator in the meantime.
            return ErrorCode.NOT_COORDINATOR
        # Clients of all versions retry after this error, and then get the final answer.
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if verification.is_void else ErrorCode.NONE

    def commit(self, request: TransactionalCommitRequest, now_ms: int, reply: Callable[[CommitResponse], None]) -> None:
        """The group has to exist. Replies when the offsets are durable; refuses each offset with too large metadata."""
        values = offsets_to_store(request, now_ms)
        answer = dict.fromkeys(request.offsets, ErrorCode.OFFSET_METADATA_TOO_LARGE)
        if not values:
            reply(answer)
            return
        self._suspected.discard(request.producer_id)
        order = self._pending.next_order()
        changes = {
            TransactionalOffsetKey(request.producer_id, request.group_id, *partition): TransactionalOffsetValue(
                request.producer_epoch, order, superseded=False, offset=value
            )
            for partition, value in values.items()
        }
        self._pending.prepare(changes)

        def on_done(error: ErrorCode, now_ms: int) -> None:
            (self._pending.abandon if error else self._pending.commit)(changes)
            reply(answer | dict.fromkeys(values, COMMIT_APPEND_ERRORS.get(error, error)))

        self._log.append(pending_records(changes), on_done)

    # --- The end

    def end(self, marker: EndOfTransaction, now_ms: int, reply: EndReply) -> None:
        """Replies when the end is durable, also if nothing is open. After NOT_LEADER_OR_FOLLOWER, send it again.

        A retry waits for the end that is in flight.
        """
        known = self._endings.get(marker.producer_id)
        if known is not None:
            if known.marker == marker:
                known.replies.append(reply)
            else:
                reply(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        error = self._marker_error(marker)
        if error:
            reply(error)
            return
        self._void_verifications(marker)
        self._suspected.discard(marker.producer_id)
        ending = self._ending(marker, now_ms)
        ending.replies.append(reply)
        self._endings[marker.producer_id] = ending
        self._write_next_part(ending, now_ms)

    def wait_for_end(self, commit: WaitingCommit) -> bool:
        """Whether the end of a transaction with offsets of the group is in flight; if so, the commit goes on after it.

        Until its outcome is known, it is not known which offsets a new commit supersedes.
        """
        if self._resumed.wait(commit):
            return True
        for ending in self._endings.values():
            if commit.group_id in ending.groups:
                ending.waiting.append(commit)
                return True
        return False

    def expire(self, now_ms: int) -> Steps:
        """Forget markers that are so old that no marker of an earlier coordinator is in flight. Lost tombstones do no
        harm."""
        counter = SliceCounter()
        old: list[int] = []
        for producer_id in [*self._marker_epochs]:
            value = self._marker_epochs.get(producer_id)
            is_old = value is not None and now_ms >= value.timestamp_ms + MARKER_EPOCH_LIFE_MS
            if is_old and producer_id not in self._endings:
                del self._marker_epochs[producer_id]
                old.append(producer_id)
            if counter.is_full(1):
                self._forget(old)
                old = []
                yield
        self._forget(old)

    def _forget(self, producer_ids: Collection[int]) -> None:
        records = [encode_record(MarkerEpochKey(producer_id), None) for producer_id in producer_ids]
        if records:
            self._log.append(records, lambda error, now_ms: None, irrevocable=True)

    def resign(self) -> None:
        """Begin no further part of an end: the groups are not known here any more."""
        self._resumed.resign()
        for ending in self._endings.values():
            if ending.left:
                ending.left.clear()
                ending.is_partial = True

    def _marker_error(self, marker: EndOfTransaction) -> ErrorCode:
        """A late marker must not end a newer transaction.

        If each transaction has its own epoch, the epoch shows that the marker is late (KAFKA-19999). If all have the
        same epoch, a late marker has an earlier coordinator epoch: a coordinator starts the next transaction only when
        markers that it abandoned cannot arrive any more.
        """
        open_epoch = self._pending.producer_epoch(marker.producer_id)
        if open_epoch is not None and _highest_ended_epoch(marker) < open_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        known = self._marker_epochs.get(marker.producer_id)
        is_fenced = known is not None and known.coordinator_epoch > marker.coordinator_epoch
        return ErrorCode.TRANSACTION_COORDINATOR_FENCED if is_fenced else ErrorCode.NONE

    def _void_verifications(self, marker: EndOfTransaction) -> None:
        for verification in self._verifications:
            is_ended = verification.producer_epoch <= _highest_ended_epoch(marker)
            if verification.producer_id == marker.producer_id and is_ended:
                verification.is_void = True

    def _ending(self, marker: EndOfTransaction, now_ms: int) -> _Ending:
        keys = self._pending.of_producer(marker.producer_id)
        ending = _Ending(marker, {key.group for key in keys}, deque(keys))
        known = self._marker_epochs.get(marker.producer_id)
        is_new = known is None or known.coordinator_epoch < marker.coordinator_epoch
        if is_new and marker.transaction_version < OWN_EPOCH_VERSION:
            ending.marker_epoch = MarkerEpochValue(marker.coordinator_epoch, now_ms)
        return ending

    def _next_part(self, ending: _Ending) -> _Part:
        part = _Part()
        while ending.left and len(part.changes) < PART_OFFSETS:
            key = ending.left.popleft()
            if not ending.marker.committed:
                part.changes[key] = None
            elif self._is_decided(key):
                self._prepare_commit(part, key)
            else:
                ending.is_partial = True
        if not ending.left:
            part.marker_epoch = ending.marker_epoch
        return part

    def _is_decided(self, key: TransactionalOffsetKey) -> bool:
        """Whether no append in flight can change whether the offset is valid."""
        rivals = self._pending.of_partition(key.group, TopicPartition(key.topic, key.partition))
        return not any(map(self._pending.is_in_flight, rivals))

    def _prepare_commit(self, part: _Part, key: TransactionalOffsetKey) -> None:
        value, of_group = self._pending.find(key), self._offsets_of(key.group)
        if value is not None and not value.superseded and of_group is not None:
            partition = TopicPartition(key.topic, key.partition)
            part.changes |= self._pending.superseded(key.group, partition, before=value.order)
            part.committed.setdefault(key.group, _CommittedOffsets(of_group, {})).values[partition] = value.offset
        part.changes[key] = None

    def _write_next_part(self, ending: _Ending, now_ms: int) -> None:
        """Other requests have their turn until it is durable: all offsets of a large transaction are too much work."""
        part = self._next_part(ending)
        records = part.records(ending.marker.producer_id)
        if not records:
            self._part_ended(ending, ErrorCode.NONE, now_ms)
            return
        for of_group, values in part.committed.values():
            of_group.prepare(values)
        self._pending.prepare(part.changes)

        def on_done(error: ErrorCode, now_ms: int) -> None:
            (self._pending.abandon if error else self._pending.commit)(part.changes)
            for group_id, (of_group, values) in part.committed.items():
                if error:
                    of_group.abandon(values)
                else:
                    self._on_changed(group_id, of_group.commit(values))
            if not error and part.marker_epoch is not None:
                self._marker_epochs[ending.marker.producer_id] = part.marker_epoch
            self._part_ended(ending, error, now_ms)

        self._log.append(records, on_done)

    def _part_ended(self, ending: _Ending, error: ErrorCode, now_ms: int) -> None:
        if ending.left and not error:
            self._write_next_part(ending, now_ms)
            return
        del self._endings[ending.marker.producer_id]
        for reply in ending.replies:
            reply(ErrorCode.NOT_LEADER_OR_FOLLOWER if error or ending.is_partial else ErrorCode.NONE)
        self._resumed.resume(ending.waiting, now_ms)


def _highest_ended_epoch(marker: EndOfTransaction) -> int:
    """Transactions with this producer epoch, and with lower epochs, have ended."""
    return marker.producer_epoch - (marker.transaction_version >= OWN_EPOCH_VERSION)
