"""The group coordinator of one partition of `__consumer_offsets`: every group whose id hashes there.

A pure state machine. Requests come in as dataclasses with the time of day; an answer that needs nothing else is
returned, one that waits (for other members, for the log) goes to the request's `reply`, exactly once. State changes
go to the `Log` port, and what depends on their durability happens in its `on_done`. Contract for the caller:

- one call at a time; `reply` and the listener must not call back into the coordinator;
- first `replay` every record of the partition in order, then take all steps of `finish_loading`; until then the
  answers are COORDINATOR_LOAD_IN_PROGRESS, and after `resign` NOT_COORDINATOR;
- while it `has_work`, call `work` from time to time: each call is a slice of what concerns all groups;
- call `tick` when `next_deadline_ms` has come. It may come earlier than anything is due;
- between `pause` and `resume` call nothing else: another coordinator may answer the members meanwhile.

What Apache Kafka 3.9.2 would answer is the measure, error for error. Where Kafka leaves a request unanswered for
ever (a second JoinGroup of a member overtakes its first), this answers the overtaken one REBALANCE_IN_PROGRESS.
"""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Set
from enum import Enum, auto

from coordinator.group.classic.group import ClassicGroup
from coordinator.group.classic.member import JoinReply, SyncReply
from coordinator.group.classic.rebalance import TimerKey, TimerKind
from coordinator.group.classic.states import ClassicGroupState
from coordinator.group.config import GroupConfig
from coordinator.group.consumer.group import MEMBER_EPOCH_COMMIT_VERSION, ConsumerGroup
from coordinator.group.consumer.heartbeats import (
    ASSIGNORS,
    ConsumerHeartbeatReply,
)
from coordinator.group.consumer.messages import (
    ConsumerHeartbeatRequest,
    ConsumerHeartbeatResponse,
    DescribedConsumerGroup,
    Topics,
)
from coordinator.group.consumer.validation import RefusedError, check_request
from coordinator.group.loading import Loader
from coordinator.group.membership import Membership
from coordinator.group.messages import (
    CommitRequest,
    DeleteOffsetsResponse,
    DescribedGroup,
    FetchOffsetsRequest,
    FetchOffsetsResponse,
    HeartbeatRequest,
    JoinRequest,
    JoinResponse,
    LeaveRequest,
    LeaveResponse,
    ListResponse,
    SyncRequest,
    SyncResponse,
)
from coordinator.group.offsets.commands import CommitReply, DeleteGroupsReply, DeleteOffsetsReply, Group, OffsetCommands
from coordinator.group.offsets.group_offsets import GroupOffsets
from coordinator.group.ports import (
    DeletedTopic,
    GroupTopicPartition,
    Log,
    NewId,
    OffsetsListener,
    OwnTimes,
    TopicPartition,
)
from coordinator.group.records.offset_commit import OffsetCommitValue
from coordinator.group.slices import Background, SliceCounter, Steps
from coordinator.group.timers import Timers
from protocol.kafka.errors import ErrorCode

MAX_GROUP_ID_BYTES = 32_767  # a record's string
MAX_MEMBER_STRING_BYTES = MAX_GROUP_ID_BYTES - 37  # a member id is client or instance id, and "-<uuid>"
_EXPIRY_TIMER = TimerKey(TimerKind.OFFSET_EXPIRY)


class Phase(Enum):
    LOADING = auto()
    ACTIVE = auto()
    RESIGNED = auto()


_PHASE_ERRORS = {
    Phase.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    Phase.ACTIVE: ErrorCode.NONE,
    Phase.RESIGNED: ErrorCode.NOT_COORDINATOR,
}


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
        self._loader = Loader(log)
        self._groups: dict[str, Group] = {}
        self._timers: Timers[TimerKey] = Timers()
        self._resumed_ms: int | None = None
        self._background = Background()
        self._deleted_topics: list[DeletedTopic] = []
        self._members = Membership(config, own_times, log, self._timers, self._groups, topics, new_id)
        self._offsets = OffsetCommands(config, log, self._groups, on_offsets_changed)

    # --- Lifecycle

    def replay(self, key: bytes, value: bytes | None) -> None:
        """One record of the partition, oldest first. Raises MalformedRecordError, and passes the record over."""
        self._loader.replay(key, value)

    def finish_loading(self, now_ms: int) -> Generator[None, None, Set[GroupTopicPartition]]:
        """All is replayed: serve, after the last step. Returns the deleted offsets, as far as the log still tells."""
        self._groups.update((yield from self._loader.finish(now_ms)))
        deleted = self._loader.deleted
        self._loader = Loader(self._log)
        counter = SliceCounter()
        for group in self._groups.values():
            self._members.restart_timers(group, now_ms)
            if counter.is_full(1 + len(group.members)):
                yield
        self._phase = Phase.ACTIVE
        self._timers.set(_EXPIRY_TIMER, now_ms + self._config.offsets_retention_check_interval_ms)
        return deleted

    def resign(self, now_ms: int) -> None:
        """Another coordinator has the partition. Appends under way still end with their `on_done`."""
        self._phase = Phase.RESIGNED
        self._timers.clear()
        self._background.clear()
        groups = [*self._groups.values()]
        self._groups.clear()
        for group in groups:
            if isinstance(group, ClassicGroup) and group.members:
                group.answer_all(ErrorCode.NOT_COORDINATOR)
            group.die(now_ms)
        self._background.start(_discard(groups))

    @property
    def has_work(self) -> bool:
        return bool(self._background)

    def work(self) -> None:
        """Do a slice of what concerns all groups."""
        self._background.step()

    def pause(self, now_ms: int) -> None:
        """Members whose requests are parked are sent to find their coordinator."""
        self._members.release_parked(ErrorCode.NOT_COORDINATOR)

    def resume(self, now_ms: int) -> None:
        """What waits for a member gives it its full time from now: it was not answered meanwhile."""
        self._resumed_ms = now_ms

    def next_deadline_ms(self) -> int | None:
        return None if self._phase is Phase.LOADING else self._timers.next_deadline_ms()

    def tick(self, now_ms: int) -> None:
        if self._phase is Phase.LOADING:  # nobody is waited for who cannot be answered yet
            return
        while (timer := self._timers.pop_due(now_ms)) is not None:
            earliest_ms = now_ms if self._resumed_ms is None else self._resumed_ms + self._members.period_ms(timer)
            if now_ms < earliest_ms:
                self._timers.set(timer, earliest_ms)
            else:
                self._on_timer(timer, now_ms)

    def _on_timer(self, timer: TimerKey, now_ms: int) -> None:
        if timer.kind is TimerKind.OFFSET_EXPIRY:
            self._background.start(self._offsets.expire(now_ms))
            self._timers.set(_EXPIRY_TIMER, now_ms + self._config.offsets_retention_check_interval_ms)
        else:
            self._members.on_timer(timer, now_ms)

    # --- Membership

    def join(self, request: JoinRequest, now_ms: int, reply: JoinReply) -> None:
        error = self._status(request.group_id) or self._join_error(request)
        if error:
            reply(JoinResponse(error, request.member_id))
        else:
            self._members.join(request, now_ms, reply)

    def _join_error(self, request: JoinRequest) -> ErrorCode:
        if not self._config.min_session_timeout_ms <= request.session_timeout_ms <= self._config.max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        texts = (request.client_id, request.client_host, request.group_instance_id or "", request.protocol_type)
        names = (name for name, _ in request.protocols)
        too_long = any(len(text.encode()) > MAX_MEMBER_STRING_BYTES for text in (*texts, *names))
        return ErrorCode.INVALID_REQUEST if too_long else ErrorCode.NONE

    def sync(self, request: SyncRequest, now_ms: int, reply: SyncReply) -> None:
        error = self._status(request.group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            error = ErrorCode.REBALANCE_IN_PROGRESS  # the rebalance is lost; old clients do not expect the true error
        if error:
            reply(SyncResponse(error))
        else:
            self._members.sync(request, now_ms, reply)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        error = self._status(request.group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE  # sessions start when loading ends
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

    # --- Consumer groups

    def classic_topics(self, group_id: str) -> frozenset[str]:
        """What the members of a classic group read: to be known before the first consumer member joins."""
        group = self._classic(group_id)
        return (None if group is None else group.consumer_topics()) or frozenset()

    def _classic(self, group_id: str) -> ClassicGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def describe_consumer_group(self, group_id: str) -> DescribedConsumerGroup:
        error = self._status(group_id)
        group = self._groups.get(group_id)
        if error or not isinstance(group, ConsumerGroup):
            return DescribedConsumerGroup(error or ErrorCode.GROUP_ID_NOT_FOUND, group_id)
        return group.describe()

    def topics_changed(self, names: Collection[str]) -> None:
        """To be called when topics appeared, went or got partitions: their groups look again at the next heartbeat."""
        changed = frozenset(names)
        for group in self._consumer_groups():
            if group.matches or changed & group.subscribed_names():
                group.topics_are_current = False

    def subscribed_names(self) -> frozenset[str]:
        """Topics that consumer groups read, whether they exist or not."""
        return frozenset[str]().union(*(group.subscribed_names() for group in self._consumer_groups()))

    def subscribed_regexes(self) -> frozenset[str]:
        return frozenset[str]().union(*(group.regexes() for group in self._consumer_groups()))

    def _consumer_groups(self) -> Iterator[ConsumerGroup]:
        return (group for group in self._groups.values() if isinstance(group, ConsumerGroup))

    # --- Offsets

    def commit_offsets(self, request: CommitRequest, now_ms: int, reply: CommitReply) -> None:
        error = self._status(request.group_id, may_be_unnamed=True)
        group = self._groups.get(request.group_id)
        if not error and group is None:
            if request.generation < 0:  # a simple consumer's: it needs no membership
                group = self._members.new_classic(request.group_id, now_ms)
            elif request.version >= MEMBER_EPOCH_COMMIT_VERSION:
                error = ErrorCode.GROUP_ID_NOT_FOUND
            else:
                error = ErrorCode.ILLEGAL_GENERATION
        if not error and isinstance(group, ClassicGroup):
            error = self._members.commit_error(group, request, now_ms)
        elif not error and isinstance(group, ConsumerGroup):
            error = group.commit_error(request)
        if error or group is None:
            reply(dict.fromkeys(request.offsets, error))
            return
        self._offsets.commit(group, request, now_ms, reply)

    def fetch_offsets(self, request: FetchOffsetsRequest) -> FetchOffsetsResponse:
        """Answers whatever state the group is in, also for a group that does not exist."""
        error = self._status(request.group_id, may_be_unnamed=True)
        group = self._groups.get(request.group_id)
        if not error and isinstance(group, ConsumerGroup):
            error = group.fetch_error(request.member_id, request.member_epoch)
        if error:
            return FetchOffsetsResponse(error)
        offsets = GroupOffsets() if group is None else group.offsets
        return FetchOffsetsResponse(ErrorCode.NONE, offsets.fetch(request.partitions, request.require_stable))

    def delete_offsets(
        self, group_id: str, partitions: Collection[TopicPartition], now_ms: int, reply: DeleteOffsetsReply
    ) -> None:
        error = self._status(group_id)
        group = self._groups.get(group_id)
        if not error:
            error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.offsets_deletion_error()
        if error or group is None:
            reply(DeleteOffsetsResponse(error))
            return
        self._offsets.delete(group, partitions, now_ms, reply)

    def committed(self, group_id: str) -> Mapping[TopicPartition, OffsetCommitValue]:
        """What is durable of the group; a view that changes. Empty if nothing can be said about the group."""
        group = None if self._status(group_id, may_be_unnamed=True) else self._groups.get(group_id)
        return {} if group is None else group.offsets.durable

    def forget_topics(self, topics: Iterable[DeletedTopic], now_ms: int) -> None:
        """To be called when topics were deleted, and when it is loaded for those that were deleted meanwhile."""
        if self._phase is Phase.ACTIVE:
            if not self._deleted_topics:
                self._background.start(self._forget_topics(now_ms))
            self._deleted_topics += topics

    def _forget_topics(self, now_ms: int) -> Steps:
        """Those that come meanwhile are looked for in one further turn."""
        try:
            while self._deleted_topics:
                count = len(self._deleted_topics)
                yield from self._offsets.forget_topics(self._deleted_topics[:count], now_ms)
                del self._deleted_topics[:count]
        finally:  # after a defect, too: the next deletion starts anew
            self._deleted_topics.clear()

    # --- Administration

    def group_ids(self) -> list[str]:
        """Of all groups; none if it does not serve."""
        return [] if self._phase is not Phase.ACTIVE else [*self._groups]

    def list_groups(
        self, states: Collection[str] = (), types: Collection[str] = (), among: Iterable[str] | None = None
    ) -> ListResponse:
        """Empty filters take all; names are compared without case. `among`: only groups of these ids."""
        wanted_states = {state.lower() for state in states}
        wanted_types = {group_type.lower() for group_type in types}
        asked = self._groups if among is None else among
        overviews = [group.overview() for group_id in asked if (group := self._groups.get(group_id)) is not None]
        groups = [
            listed
            for listed in overviews
            if (not states or listed.state.lower() in wanted_states)
            and (not types or listed.group_type.lower() in wanted_types)
        ]
        return ListResponse(_PHASE_ERRORS[self._phase], groups)

    def describe_group(self, group_id: str) -> DescribedGroup:
        """A group that does not exist, or is not a classic one, is shown as Dead."""
        error = self._status(group_id, may_be_unnamed=True)
        group = self._classic(group_id)
        if error or group is None:
            if error:
                return DescribedGroup(error, group_id)
            why = "not found" if group_id not in self._groups else "is not a classic group"
            return DescribedGroup(error, group_id, ClassicGroupState.DEAD.value, message=f"Group {group_id} {why}.")
        return group.describe()

    def delete_groups(self, group_ids: Collection[str], now_ms: int, reply: DeleteGroupsReply) -> None:
        errors = {group_id: self._status(group_id, may_be_unnamed=True) for group_id in group_ids}
        refused = {group_id: error for group_id, error in errors.items() if error}
        accepted = [group_id for group_id in errors if group_id not in refused]
        self._offsets.delete_groups(accepted, now_ms, lambda deleted: reply(refused | dict(deleted)))

    def _status(self, group_id: str, may_be_unnamed: bool = False) -> ErrorCode:
        """Why nothing can be said about the group. Simple consumers may use the empty id; groups need a name."""
        if (not group_id and not may_be_unnamed) or len(group_id.encode()) > MAX_GROUP_ID_BYTES:
            return ErrorCode.INVALID_GROUP_ID
        return _PHASE_ERRORS[self._phase]


def _discard(groups: list[Group]) -> Steps:
    """To free very many offsets at once would take long."""
    counter = SliceCounter()
    while groups:
        if counter.is_full(1 + len(groups.pop().offsets.durable)):
            yield
