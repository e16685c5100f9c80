"""The group coordinator of one partition of `__consumer_offsets`: every group whose id hashes to it.

A pure state machine. Requests come in as dataclasses with the time of day. A response that depends on nothing else is
returned; a response that waits (for other members, or for the log) goes to the request's `reply`, exactly once.
State changes go to the `Log` port, and what depends on their durability happens in its `on_done`. Rules for the caller:

- one call at a time; `reply` and the listener must not call back into the coordinator;
- first `replay` every record of the partition in order, then take all steps of `finish_loading`; until then the
  answers are COORDINATOR_LOAD_IN_PROGRESS, and after `resign` NOT_COORDINATOR;
- while it `has_work`, call `work` from time to time: each call is a slice of the work over all groups;
- call `tick` when `next_deadline_ms` is reached. It may be earlier than the first due timer;
- between `pause` and `resume` call nothing else: another coordinator may answer the members in between.

Errors are those of Apache Kafka 3.9.2. One request differs: when a second JoinGroup of a member replaces the first,
Kafka never answers the first; here it is answered REBALANCE_IN_PROGRESS.
"""

from collections.abc import Collection, Generator, Iterable, Mapping, Set

from coordinator.group.classic.join import join_error
from coordinator.group.config import GroupConfig
from coordinator.group.consumer.heartbeats import ASSIGNORS
from coordinator.group.consumer.messages import (
    ConsumerHeartbeatReply,
    ConsumerHeartbeatRequest,
    ConsumerHeartbeatResponse,
    Topics,
)
from coordinator.group.consumer.validation import check_request
from coordinator.group.downgrade import remove
from coordinator.group.group import DEAD, Group, GroupSubscription, GroupType, list_groups
from coordinator.group.loading import Loader, unload
from coordinator.group.membership import Membership
from coordinator.group.messages import (
    CommitRequest,
    DeleteOffsetsResponse,
    DescribedConsumerGroup,
    DescribedGroup,
    EndOfTransaction,
    FetchOffsetsRequest,
    FetchOffsetsResponse,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    JoinResponse,
    LeaveRequest,
    LeaveResponse,
    ListResponse,
    OpenTransaction,
    RefusedError,
    SyncReply,
    SyncRequest,
    SyncResponse,
    TransactionalCommitRequest,
)
from coordinator.group.migration import AnyGroup
from coordinator.group.offsets.commands import CommitReply, DeleteGroupsReply, DeleteOffsetsReply, OffsetCommands
from coordinator.group.offsets.group_offsets import GroupOffsets
from coordinator.group.offsets.pending_offsets import PendingOffsets
from coordinator.group.offsets.resumed_commits import WaitingCommit
from coordinator.group.offsets.transactions import EndReply, OffsetTransactions, Verification
from coordinator.group.ports import GroupTopicPartition, NewId, OffsetsListener, OwnTimes
from coordinator.group.records.fields import MAX_CHARACTER_BYTES, MAX_STRING_BYTES
from coordinator.group.records.offset_commit import OffsetCommitValue
from coordinator.group.timer_keys import TimerKey, TimerKind
from coordinator.log import Log
from coordinator.slices import Background, SliceCounter, Steps, begun
from coordinator.state_machine import Phase
from coordinator.timers import Timers
from coordinator.topics import DeletedTopic, TopicPartition
from protocol.kafka.errors import ErrorCode

_EXPIRY_TIMER = TimerKey(TimerKind.OFFSET_EXPIRY)


class GroupCoordinator:
    def __init__(
        self,
        config: GroupConfig,
        log: Log,
        new_id: NewId,
        topics: Topics,
        on_offsets_changed: OffsetsListener = lambda group_id, offsets: None,
        own_times: OwnTimes = lambda group_id: None,
    ) -> None:
        self._config = config
        self._log = log
        self._phase = Phase.LOADING
        self._groups: dict[str, AnyGroup] = {}
        self._timers: Timers[TimerKey] = Timers()
        self._resumed_ms: int | None = None
        self._commits = Background()  # those that have waited: they do not wait for the other work, too
        self._answers = Background()  # to the members of large groups
        self._changes = Background()  # of large groups: their members wait
        self._background = Background()  # nobody waits
        self._work = (self._commits, self._answers, self._changes, self._background)
        self._members = Membership(
            config, own_times, log, self._timers, self._groups, topics, new_id, self._changes.start, self._answers.start
        )
        self._pending = PendingOffsets()
        self._offsets = OffsetCommands[AnyGroup](config, log, self._groups, self._pending, on_offsets_changed)
        self._transactions = OffsetTransactions(
            log, self._pending, self._offsets_of, on_offsets_changed, self._commits.start
        )
        self._loader = Loader(log, self._transactions)

    # --- Lifecycle

    def replay(self, key: bytes, value: bytes | None) -> None:
        """One record of the partition, oldest first. Raises MalformedRecordError, and skips the record."""
        self._loader.replay(key, value)

    def finish_loading(self, now_ms: int) -> Generator[None, None, Set[GroupTopicPartition]]:
        """Replay is complete; serve after the last step. Returns deleted offsets whose tombstones the log still has."""
        self._groups.update((yield from self._loader.finish(now_ms)))
        deleted = self._loader.deleted
        for replaced in self._loader.replaced:
            yield from remove(replaced, self._log)
        self._loader = Loader(self._log, self._transactions)
        counter = SliceCounter()
        for group in self._groups.values():
            self._members.restart_timers(group, now_ms)
            if counter.is_full(1 + len(group.members)):
                yield
        self._phase = Phase.ACTIVE
        self._timers.set(_EXPIRY_TIMER, now_ms + self._config.offsets_retention_check_interval_ms)
        return deleted

    def resign(self, now_ms: int) -> None:
        """Another coordinator has the partition. Appends in flight still end with their `on_done`."""
        self._phase = Phase.RESIGNED
        self._timers.clear()
        for jobs in (self._answers, self._changes, self._background):
            jobs.clear()
        self._offsets.resign()
        self._transactions.resign()
        groups: list[Group] = [*self._groups.values()]
        self._groups.clear()
        for group in groups:
            group.die(now_ms)
        self._background.start(begun(unload(groups)))

    @property
    def has_work(self) -> bool:
        return any(self._work)

    def work(self) -> None:
        """Do a slice of the work of each kind."""
        for jobs in self._work:
            jobs.step()

    def pause(self, now_ms: int) -> None:
        """Members whose requests wait for other members get NOT_COORDINATOR, and look for their coordinator."""
        self._members.release_waiting(ErrorCode.NOT_COORDINATOR, now_ms)

    def resume(self, now_ms: int) -> None:
        """Timers that wait for a member start again: members got no answers in between."""
        self._resumed_ms = now_ms

    def next_deadline_ms(self) -> int | None:
        return None if self._phase is Phase.LOADING else self._timers.next_deadline_ms()

    def tick(self, now_ms: int) -> None:
        if self._phase is Phase.LOADING:  # Members that cannot be answered yet are not removed.
            return
        for timer in self._timers.due(now_ms):
            earliest_ms = now_ms if self._resumed_ms is None else self._resumed_ms + self._members.period_ms(timer)
            if now_ms < earliest_ms:
                self._timers.set(timer, earliest_ms)
            else:
                self._on_timer(timer, now_ms)
                if self._members.takes_long(timer):
                    return  # the next deadline is past

    def _on_timer(self, timer: TimerKey, now_ms: int) -> None:
        if timer.kind is TimerKind.OFFSET_EXPIRY:
            self._background.start(self._offsets.expire(now_ms))
            self._background.start(self._transactions.expire(now_ms))
            self._timers.set(_EXPIRY_TIMER, now_ms + self._config.offsets_retention_check_interval_ms)
        else:
            self._members.on_timer(timer, now_ms)

    # --- Membership

    def join(self, request: JoinRequest, now_ms: int, reply: JoinReply) -> None:
        error = self._status(request.group_id) or join_error(request, self._config)
        if error:
            reply(JoinResponse(error, request.member_id))
        else:
            self._members.join(request, now_ms, reply)

    def sync(self, request: SyncRequest, now_ms: int, reply: SyncReply) -> None:
        error = self._status(request.group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            error = ErrorCode.REBALANCE_IN_PROGRESS  # The rebalance is lost. Old clients do not expect the real error.
        if error:
            reply(SyncResponse(error))
        else:
            self._members.sync(request, now_ms, reply)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        error = self._status(request.group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE  # Sessions start when loading ends.
        return error or self._members.heartbeat(request, now_ms)

    def leave(self, request: LeaveRequest, now_ms: int) -> LeaveResponse:
        error = self._status(request.group_id)
        if error:
            return LeaveResponse(error)
        errors = [self._members.leave(request.group_id, each, now_ms) for each in request.members]
        return LeaveResponse(ErrorCode.NONE, errors)

    def consumer_heartbeat(self, request: ConsumerHeartbeatRequest, now_ms: int, reply: ConsumerHeartbeatReply) -> None:
        try:
            check_request(request, ASSIGNORS)
            error = self._status(request.group_id)
            if error:
                raise RefusedError(error)
            self._members.consumer_heartbeat(request, now_ms, reply)
        except RefusedError as refused:
            reply(ConsumerHeartbeatResponse(refused.error, str(refused) or None))

    # --- Topics

    def classic_topics(self, group_id: str) -> frozenset[str]:
        """Topics that members of a classic group read. They must be known before the first consumer member joins."""
        group = self._groups.get(group_id)
        return (None if group is None else group.consumer_topics()) or frozenset()

    def topics_changed(self, names: Collection[str]) -> None:
        """Call this when topics were created or deleted, or got partitions."""
        for group in self._groups.values():
            group.topics_changed(names)

    def consumer_group_ids(self) -> list[str]:
        """Of groups that may subscribe to topics. Their subscriptions are asked for one by one: they may be large."""
        return [group_id for group_id, group in self._groups.items() if group.type is GroupType.CONSUMER]

    def subscription(self, group_id: str) -> GroupSubscription:
        group = self._groups.get(group_id)
        return GroupSubscription() if group is None else group.subscription()

    # --- Offsets

    def commit_offsets(self, request: CommitRequest, now_ms: int, reply: CommitReply) -> None:
        commit = WaitingCommit(
            request.group_id, len(request.offsets), lambda now_ms: self.commit_offsets(request, now_ms, reply)
        )
        if self._transactions.wait_for_end(commit):
            return
        try:
            error = self._status(request.group_id, may_be_unnamed=True)
            if error:
                raise RefusedError(error)
            group = self._members.group_to_commit_for(request, now_ms)
        except RefusedError as refused:
            reply(dict.fromkeys(request.offsets, refused.error))
        else:
            self._offsets.commit(group, request, now_ms, reply)

    def start_verification(self, group_id: str, producer_id: int, producer_epoch: int) -> Verification:
        """Call this before `commit_in_transaction`: it checks that the group's partition is part of the transaction.

        Raises RefusedError.
        """
        error = self._status(group_id)
        if error:
            raise RefusedError(error)
        return self._transactions.start_verification(producer_id, producer_epoch)

    def commit_in_transaction(
        self, request: TransactionalCommitRequest, verification: Verification, now_ms: int, reply: CommitReply
    ) -> None:
        """The transaction coordinator has verified it, if that was needed."""
        try:
            error = self._status(request.group_id) or self._transactions.commit_error(request, verification)
            if error:
                raise RefusedError(error)
            self._members.group_to_commit_for(request, now_ms)
        except RefusedError as refused:
            reply(dict.fromkeys(request.offsets, refused.error))
        else:
            self._transactions.commit(request, now_ms, reply)

    def end_transaction(self, marker: EndOfTransaction, now_ms: int, reply: EndReply) -> None:
        """A marker for all groups of the producer. After any error but those that fence the marker, it must be sent
        again."""
        if self._phase is Phase.ACTIVE:
            self._transactions.end(marker, now_ms, reply)
        else:
            reply(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def open_transactions(self) -> list[OpenTransaction] | None:
        """Producers with pending offsets in this partition; None if this coordinator does not serve."""
        return self._transactions.open_transactions() if self._phase is Phase.ACTIVE else None

    def suspect_hanging(self, producer_id: int) -> None:
        """Perhaps no transaction coordinator knows the transaction: its commits are verified again."""
        self._transactions.suspect_hanging(producer_id)

    def is_suspected(self, producer_id: int) -> bool:
        """The transaction is suspected to hang, and no commit of it was verified since."""
        return self._transactions.is_suspected(producer_id)

    def fetch_offsets(self, request: FetchOffsetsRequest) -> FetchOffsetsResponse:
        """Answers in every state of the group, and for groups that do not exist."""
        error = self._status(request.group_id, may_be_unnamed=True)
        group = self._groups.get(request.group_id)
        if not error and group is not None:
            error = group.offset_fetch_error(request.member_id, request.member_epoch)
        if error:
            return FetchOffsetsResponse(error)
        offsets = GroupOffsets() if group is None else group.offsets
        in_transactions = self._pending.partitions(request.group_id)
        fetched = offsets.fetch(request.partitions, request.require_stable, in_transactions)
        return FetchOffsetsResponse(ErrorCode.NONE, fetched)

    def delete_offsets(
        self, group_id: str, partitions: Collection[TopicPartition], now_ms: int, reply: DeleteOffsetsReply
    ) -> None:
        error = self._status(group_id)
        group = self._groups.get(group_id)
        if not error:
            error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.offset_delete_error()
        if error or group is None:
            reply(DeleteOffsetsResponse(error))
            return
        self._start(self._offsets.delete(group, partitions, now_ms, reply))

    def committed(self, group_id: str) -> Mapping[TopicPartition, OffsetCommitValue]:
        """The durable offsets of the group, as a live view. Empty if the group cannot be served."""
        group = None if self._status(group_id, may_be_unnamed=True) else self._groups.get(group_id)
        return {} if group is None else group.offsets.durable

    def forget_topics(self, topics: Iterable[DeletedTopic], now_ms: int) -> None:
        """Call this when topics were deleted, and after loading for topics that were deleted in between."""
        if self._phase is Phase.ACTIVE:
            self._start(self._offsets.forget_topics(topics, now_ms))

    def _offsets_of(self, group_id: str) -> GroupOffsets | None:
        group = self._groups.get(group_id)
        return None if group is None else group.offsets

    def _start(self, rest: Steps | None) -> None:
        if rest is not None:
            self._background.start(rest)

    # --- Administration

    def group_ids(self) -> list[str]:
        """Of all groups; none if this coordinator does not serve."""
        return [] if self._phase is not Phase.ACTIVE else [*self._groups]

    def list_groups(
        self, states: Set[str] = frozenset(), types: Set[str] = frozenset(), among: Iterable[str] | None = None
    ) -> ListResponse:
        """Empty filters match all; the names in them are in lower case. `among`: only groups of these ids."""
        asked = self._groups if among is None else among
        groups = (group for group_id in asked if (group := self._groups.get(group_id)) is not None)
        return ListResponse(self._phase.error, list_groups(groups, states, types))

    def describe_group(self, group_id: str) -> DescribedGroup:
        """A group that does not exist, or is not a classic one, is shown as Dead."""
        error = self._status(group_id, may_be_unnamed=True)
        if error:
            return DescribedGroup(error, group_id)
        group = self._groups.get(group_id)
        if group is None:
            return DescribedGroup(ErrorCode.NONE, group_id, DEAD, message=f"Group {group_id} not found.")
        return group.describe()

    def describe_consumer_group(self, group_id: str) -> DescribedConsumerGroup:
        error = self._status(group_id)
        group = self._groups.get(group_id)
        if error or group is None:
            return DescribedConsumerGroup(error or ErrorCode.GROUP_ID_NOT_FOUND, group_id)
        return group.describe_consumer_group()

    def delete_groups(self, group_ids: Collection[str], now_ms: int, reply: DeleteGroupsReply) -> None:
        errors = {group_id: self._status(group_id, may_be_unnamed=True) for group_id in group_ids}
        refused = {group_id: error for group_id, error in errors.items() if error}
        accepted = [group_id for group_id in errors if group_id not in refused]
        self._start(self._offsets.delete_groups(accepted, now_ms, lambda deleted: reply(refused | dict(deleted))))

    def _status(self, group_id: str, may_be_unnamed: bool = False) -> ErrorCode:
        """The error that prevents serving the group. Simple consumers may use the empty id; groups need a name."""
        is_long = len(group_id) > MAX_STRING_BYTES // MAX_CHARACTER_BYTES
        if (not group_id and not may_be_unnamed) or (is_long and len(group_id.encode()) > MAX_STRING_BYTES):
            return ErrorCode.INVALID_GROUP_ID
        return self._phase.error
