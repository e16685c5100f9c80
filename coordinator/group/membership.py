"""Who is a member of which group: the requests of members, of both protocols, to the part that serves their group.

A group changes its protocol when it is empty, or member by member (`migration`).
"""

from collections.abc import Callable

from coordinator.group.classic.group import ClassicGroup
from coordinator.group.classic.join import ClassicJoin
from coordinator.group.classic.member import JoinReply, SyncReply
from coordinator.group.classic.rebalance import ClassicRebalance, TimerKey, TimerKind
from coordinator.group.config import GroupConfig
from coordinator.group.consumer.classic_members import ClassicMembers
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.heartbeats import CONSUMER_TIMERS, ConsumerHeartbeatReply, ConsumerProtocol
from coordinator.group.consumer.member import JOIN_EPOCH, ConsumerMember
from coordinator.group.consumer.messages import ConsumerHeartbeatRequest, Topics
from coordinator.group.consumer.validation import RefusedError
from coordinator.group.messages import (
    UNKNOWN_MEMBER_ID,
    CommitRequest,
    HeartbeatRequest,
    JoinRequest,
    JoinResponse,
    LeavingMember,
    SyncRequest,
    SyncResponse,
)
from coordinator.group.migration import to_classic_group, to_consumer_group
from coordinator.group.offsets.commands import Group
from coordinator.group.ports import CONSUMER_APPEND_ERRORS, Log, NewId, OwnTimes
from coordinator.group.timers import Timers
from protocol.kafka.errors import ErrorCode


class Membership:
    """Works on `groups`, the coordinator's own."""

    def __init__(
        self,
        config: GroupConfig,
        own_times: OwnTimes,
        log: Log,
        timers: Timers[TimerKey],
        groups: dict[str, Group],
        topics: Topics,
        new_id: NewId,
    ) -> None:
        self._config = config
        self._log = log
        self._groups = groups
        self._topics = topics
        self._rebalance = ClassicRebalance(config, log, timers)
        self._join = ClassicJoin(config, log, timers, self._rebalance, new_id)
        self._consumers = ConsumerProtocol(config, own_times, timers, topics, new_id, self._downgrade)
        self._classic_members = ClassicMembers(config.consumer_max_size, timers, topics, self._consumers, new_id)

    # --- The classic protocol

    def join(self, request: JoinRequest, now_ms: int, reply: JoinReply) -> None:
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup) and group.members:
            self._classic_members.join(group, request, now_ms, reply)
            return
        if not isinstance(group, ClassicGroup):
            if request.member_id != UNKNOWN_MEMBER_ID:
                reply(JoinResponse(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
                return
            group = self.new_classic(request.group_id, now_ms)
        self._join.join(group, request, now_ms, reply)

    def new_classic(self, group_id: str, now_ms: int) -> ClassicGroup:
        """In place of an empty consumer group, if there is one: the offsets stay."""
        old, group = self._groups.get(group_id), ClassicGroup(group_id, now_ms)
        if old is not None:
            group.offsets = old.offsets
            self._log.append(old.tombstones(), lambda error, now_ms: None)
        self._groups[group_id] = group
        return group

    def sync(self, request: SyncRequest, now_ms: int, reply: SyncReply) -> None:
        group = self._groups.get(request.group_id)
        if group is None:
            reply(SyncResponse(ErrorCode.UNKNOWN_MEMBER_ID))
        elif isinstance(group, ConsumerGroup):
            self._classic_members.sync(group, request, now_ms, reply)
        else:
            self._rebalance.sync(group, request, now_ms, reply)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        group = self._groups.get(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if isinstance(group, ConsumerGroup):
            return self._classic_members.heartbeat(group, request, now_ms)
        return self._rebalance.heartbeat(group, request, now_ms)

    def leave(self, group_id: str, member: LeavingMember, now_ms: int) -> ErrorCode:
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if isinstance(group, ConsumerGroup):
            return self._classic_members.leave(group, member, now_ms)
        return self._join.leave(group, member, now_ms)

    def commit_error(self, group: ClassicGroup, request: CommitRequest, now_ms: int) -> ErrorCode:
        """Whether the sender may commit; if so it is alive."""
        return self._rebalance.commit_error(group, request, now_ms)

    def release_parked(self, error: ErrorCode) -> None:
        """Answer who waits for other members."""
        for group in self._groups.values():
            if isinstance(group, ClassicGroup) and group.members:
                self._rebalance.release_parked(group, error)

    # --- The consumer protocol

    def consumer_heartbeat(self, request: ConsumerHeartbeatRequest, now_ms: int, reply: ConsumerHeartbeatReply) -> None:
        """Raises RefusedError."""
        group = self._consumer_group(request)
        self._consumers.heartbeat(group, request, now_ms, reply)
        if group.members and not group.is_dead:  # a new group whose first member was refused leaves no trace
            self._install(group, now_ms)

    def _install(self, group: ConsumerGroup, now_ms: int) -> None:
        """In place of a classic group, perhaps: its members join again, and find the other protocol."""
        old, self._groups[group.group_id] = self._groups.get(group.group_id), group
        if isinstance(old, ClassicGroup):
            self._rebalance.dissolve(old, ErrorCode.REBALANCE_IN_PROGRESS)
            old.die(now_ms)
            self._consumers.restart_timers(group, now_ms)

    def _consumer_group(self, request: ConsumerHeartbeatRequest) -> ConsumerGroup:
        """A joining member's group is made if need be, also in place of a classic group without members.

        Raises RefusedError.
        """
        old = self._groups.get(request.group_id)
        if isinstance(old, ConsumerGroup):
            return old
        if old is not None and not old.is_empty:
            return self._upgraded(old, request)
        if request.member_epoch != JOIN_EPOCH:
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found.")
        group = ConsumerGroup(request.group_id, self._log)
        if old is not None:
            group.offsets = old.offsets
            group.writer.write_with_next(old.tombstones())
        return group

    def _upgraded(self, old: ClassicGroup, request: ConsumerHeartbeatRequest) -> ConsumerGroup:
        """Not in force yet. Raises RefusedError."""
        refusal = RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")
        has_room = len(old.members) < self._config.consumer_max_size
        if request.member_epoch != JOIN_EPOCH or not self._config.online_upgrade or not has_room:
            raise refusal
        names = old.consumer_topics()
        if names is None:
            raise refusal
        if not all(map(self._topics.is_known, names)):
            # Partitions of a topic that is not known would be given to others while members read them.
            raise RefusedError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "Topics of the group are being looked up.")
        return to_consumer_group(old, self._log, self._topics)

    def _downgrade(
        self, group: ConsumerGroup, leaving: ConsumerMember, now_ms: int, on_stored: Callable[[ErrorCode], None]
    ) -> bool:
        """Turn the group into a classic one if the last member of the consumer protocol leaves it."""
        has_room = len(group.members) - 1 <= self._config.max_size
        if not self._config.online_downgrade or not has_room or not group.only_classic_without(leaving.member_id):
            return False
        for member_id in group.members:
            self._consumers.cancel_timers(group, member_id)
        classic = self._groups[group.group_id] = to_classic_group(group, now_ms)
        group.die(now_ms)
        tombstones = group.tombstones()

        def on_done(error: ErrorCode, now_ms: int) -> None:
            crowded = error is ErrorCode.NOT_ENOUGH_REPLICAS
            if crowded and self._groups.get(group.group_id) is classic:  # else loading would find the consumer group
                self._log.append(tombstones, on_done)
            else:
                on_stored(CONSUMER_APPEND_ERRORS.get(error, error))

        record = classic.record({member.member_id: member.assignment for member in classic.members.values()})
        self._log.append([*tombstones, record], on_done)
        self._rebalance.resume(classic, now_ms)
        self._rebalance.prepare_if_possible(classic, now_ms)
        return True

    # --- Timers

    def restart_timers(self, group: Group, now_ms: int) -> None:
        """After loading, every member has its full time."""
        if isinstance(group, ConsumerGroup):
            self._consumers.restart_timers(group, now_ms)
        else:
            self._rebalance.resume(group, now_ms)

    def period_ms(self, timer: TimerKey) -> int:
        """How long the timer runs from its start, 0 if it waits for no member."""
        group = self._groups.get(timer.group_id)
        if isinstance(group, ClassicGroup):
            return self._rebalance.period_ms(group, timer)
        return 0 if group is None else self._consumers.period_ms(group, timer)

    def on_timer(self, timer: TimerKey, now_ms: int) -> None:
        group = self._groups.get(timer.group_id)
        match timer.kind, group:
            case TimerKind.JOIN, ClassicGroup():
                self._rebalance.on_join_timeout(group, now_ms)
            case TimerKind.SYNC, ClassicGroup():
                self._rebalance.on_sync_timeout(group, now_ms)
            case TimerKind.SESSION, ClassicGroup():
                self._rebalance.on_session_timeout(group, timer.member_id, now_ms)
            case TimerKind.PENDING_MEMBER, ClassicGroup():
                self._rebalance.on_pending_member_timeout(group, timer.member_id, now_ms)
            case TimerKind.CONSUMER_REBALANCE, ConsumerGroup():
                self._consumers.on_rebalance_timeout(group, timer.member_id, now_ms)
            case _, ConsumerGroup() if timer.kind in CONSUMER_TIMERS:
                self._consumers.on_member_timeout(group, timer.member_id, now_ms)
