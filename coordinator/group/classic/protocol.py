"""The classic group protocol: members join, sync and send heartbeats; a leader among them assigns."""

from collections.abc import Callable

from coordinator.group.classic.group import ClassicGroup
from coordinator.group.classic.join import ClassicJoin
from coordinator.group.classic.rebalance import ClassicRebalance
from coordinator.group.classic.states import ClassicGroupState
from coordinator.group.config import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupConfig
from coordinator.group.group import GroupProtocol
from coordinator.group.messages import (
    UNKNOWN_MEMBER_ID,
    CommitRequest,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    JoinResponse,
    LeavingMember,
    SyncReply,
    SyncRequest,
    SyncResponse,
)
from coordinator.group.ports import NewId
from coordinator.group.timer_keys import TimerKey, TimerKind
from coordinator.log import Log
from coordinator.slices import Steps, last_of
from coordinator.timers import Timers
from protocol.kafka.errors import ErrorCode


class ClassicProtocol(GroupProtocol[ClassicGroup]):
    def __init__(
        self,
        config: GroupConfig,
        log: Log,
        timers: Timers[TimerKey],
        new_id: NewId,
        start: Callable[[Steps], None],
    ) -> None:
        """`start` runs work in slices."""
        self._config = config
        self._timers = timers
        self._rebalance = ClassicRebalance(config, log, timers, start)
        self._join = ClassicJoin(config, timers, self._rebalance, new_id)

    # --- Requests

    def join(self, group: ClassicGroup, request: JoinRequest, now_ms: int, reply: JoinReply) -> None:
        self._join.join(group, request, now_ms, reply)

    def sync(self, group: ClassicGroup, request: SyncRequest, now_ms: int, reply: SyncReply) -> None:
        self._rebalance.sync(group, request, now_ms, reply)

    def heartbeat(self, group: ClassicGroup, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        error = group.member_error(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if request.generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._rebalance.restart_session(group, group.members[request.member_id], now_ms)
        preparing = group.state is ClassicGroupState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE

    def leave(self, group: ClassicGroup, leaving: LeavingMember, now_ms: int) -> ErrorCode:
        return self._join.leave(group, leaving, now_ms)

    def offset_commit_error(self, group: ClassicGroup, request: CommitRequest, now_ms: int) -> ErrorCode:
        """Commits while members join are accepted: they are a member's last chance."""
        if group.is_empty and request.generation < 0:
            return ErrorCode.NONE
        anonymous = request.member_id == UNKNOWN_MEMBER_ID and request.group_instance_id is None
        if request.generation < 0 and anonymous:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.member_error(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if request.generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if group.state is ClassicGroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._rebalance.restart_session(group, group.members[request.member_id], now_ms)
        return ErrorCode.NONE

    # --- Timers

    def restart_timers(self, group: ClassicGroup, now_ms: int) -> None:
        """In a group above the size limit all members join again; the first ones stay."""
        if len(group.members) > self._config.max_size:
            self._rebalance.prepare(group, now_ms)
        for member in group.members.values():
            self._rebalance.restart_session(group, member, now_ms)

    def period_ms(self, group: ClassicGroup, timer: TimerKey) -> int:
        match timer.kind:
            case TimerKind.JOIN if group.initial_delay is not None:
                return group.initial_delay.delay_ms
            case TimerKind.JOIN | TimerKind.SYNC:
                return group.rebalance_timeout_ms
            case TimerKind.PENDING_MEMBER:
                return group.pending_members.get(timer.member_id, 0)
        member = group.members.get(timer.member_id)
        if member is None:
            return 0
        return NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else member.session_timeout_ms

    def on_timer(self, group: ClassicGroup, timer: TimerKey, now_ms: int) -> None:
        match timer.kind:
            case TimerKind.JOIN:
                self._rebalance.on_join_timeout(group, now_ms)
            case TimerKind.SYNC:
                self._rebalance.on_sync_timeout(group, now_ms)
            case TimerKind.SESSION:
                self._on_session_timeout(group, timer.member_id, now_ms)
            case TimerKind.PENDING_MEMBER if timer.member_id in group.pending_members:
                self._rebalance.remove_pending(group, timer.member_id, now_ms)

    def _on_session_timeout(self, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        member = group.members.get(member_id)
        if member is not None and not member.waits_for_coordinator:
            self._rebalance.remove_member(group, member, now_ms)

    # --- When the coordinator or the group's type changes

    def release_waiting(self, group: ClassicGroup, error: ErrorCode, now_ms: int) -> None:
        """Members of no generation yet join as new ones: their clients may not know their id."""
        for member in list(group.members.values()):
            is_new = member.is_new and not member.is_static
            if member.waits_for_coordinator:  # its session may have ended while it waited
                self._rebalance.restart_session(group, member, now_ms)
            group.answer_join(member, JoinResponse(error, member.member_id))
            group.answer_sync(member, SyncResponse(error))
            if is_new:
                group.remove(member.member_id)
                self._timers.cancel(TimerKey(TimerKind.SESSION, group.group_id, member.member_id))

    def replaced(self, group: ClassicGroup, now_ms: int) -> None:
        """Timers of single members have no effect on the other group, and there may be very many."""
        last_of(group.answer_all(ErrorCode.REBALANCE_IN_PROGRESS))
        for kind in (TimerKind.JOIN, TimerKind.SYNC):
            self._timers.cancel(TimerKey(kind, group.group_id))
        group.die(now_ms)

    def continue_migrated(self, group: ClassicGroup, now_ms: int, *, rebalances: bool) -> None:
        """A consumer group was converted into this one: its members join again, unless they have all partitions."""
        self.restart_timers(group, now_ms)
        if rebalances:
            self._rebalance.prepare_if_possible(group, now_ms)
