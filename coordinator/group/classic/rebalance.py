"""Rebalances of classic groups: gathering members, starting a generation, storing and handing out its assignment.

A rebalance is over for the members when the leader's assignment is durable: only then are their SyncGroup requests
answered. Timers bound each step: the join timer the gathering, the sync timer the wait for every member's SyncGroup,
a session timer each member's silence.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from coordinator.group.classic.group import ClassicGroup, InitialDelay
from coordinator.group.classic.member import ClassicMember, SyncReply
from coordinator.group.classic.states import ClassicGroupState
from coordinator.group.config import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupConfig
from coordinator.group.messages import (
    UNKNOWN_MEMBER_ID,
    CommitRequest,
    HeartbeatRequest,
    JoinResponse,
    SyncRequest,
    SyncResponse,
)
from coordinator.group.ports import GROUP_APPEND_ERRORS, Log
from coordinator.group.timers import Timers
from protocol.kafka.errors import ErrorCode


class TimerKind(Enum):
    JOIN = "gathering members"
    SYNC = "waiting for SyncGroup of every member"
    SESSION = "silence of a classic member"
    PENDING_MEMBER = "an id was given, no JoinGroup came with it"
    CONSUMER_SESSION = "silence of a consumer member"
    CONSUMER_REBALANCE = "a consumer member owes partitions"
    CONSUMER_JOIN = "a classic member of a consumer group is to join again"
    CONSUMER_SYNC = "a classic member of a consumer group has joined, and is to ask for its assignment"
    OFFSET_EXPIRY = "the next look for expired offsets"


class TimerKey(NamedTuple):
    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


class ClassicRebalance:
    def __init__(self, config: GroupConfig, log: Log, timers: Timers[TimerKey]) -> None:
        self._config = config
        self._log = log
        self._timers = timers

    # --- Sessions

    def resume(self, group: ClassicGroup, now_ms: int) -> None:
        """After loading: every member has its full time. A group above the size limit makes its members compete."""
        if len(group.members) > self._config.max_size:
            self.prepare(group, now_ms)
        for member in group.members.values():
            self.restart_session(group, member, now_ms)

    def restart_session(self, group: ClassicGroup, member: ClassicMember, now_ms: int) -> None:
        self.expire_member_at(group, member.member_id, now_ms + member.session_timeout_ms)

    def expire_member_at(self, group: ClassicGroup, member_id: str, deadline_ms: int) -> None:
        self._timers.set(TimerKey(TimerKind.SESSION, group.group_id, member_id), deadline_ms)

    def period_ms(self, group: ClassicGroup, timer: TimerKey) -> int:
        """How long the timer runs from its start; 0 if nobody is waited for any more."""
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

    def release_parked(self, group: ClassicGroup, error: ErrorCode) -> None:
        """Answer what is parked. Members of no generation yet join as new ones: their clients may not know their id."""
        for member in list(group.members.values()):
            is_new = member.is_new and not member.is_static
            group.answer_join(member, JoinResponse(error, member.member_id))
            group.answer_sync(member, SyncResponse(error))
            if is_new:
                group.remove(member.member_id)
                self._timers.cancel(TimerKey(TimerKind.SESSION, group.group_id, member.member_id))

    def dissolve(self, group: ClassicGroup, error: ErrorCode) -> None:
        """Its members have to join again; nothing of it is waited for any more."""
        group.answer_all(error)
        for kind in (TimerKind.JOIN, TimerKind.SYNC):
            self._timers.cancel(TimerKey(kind, group.group_id))
        for member_id in group.members:
            self._timers.cancel(TimerKey(TimerKind.SESSION, group.group_id, member_id))
        for member_id in group.pending_members:
            self._timers.cancel(TimerKey(TimerKind.PENDING_MEMBER, group.group_id, member_id))

    def on_session_timeout(self, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        member = group.members.get(member_id)
        if member is not None and not member.waits_for_coordinator:
            self.remove_member(group, member, now_ms)

    def on_pending_member_timeout(self, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        if member_id in group.pending_members:
            self.remove_pending(group, member_id, now_ms)

    def remove_pending(self, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        self._timers.cancel(TimerKey(TimerKind.PENDING_MEMBER, group.group_id, member_id))
        group.remove(member_id)
        self.complete_join_if_ready(group, now_ms)

    def remove_member(self, group: ClassicGroup, member: ClassicMember, now_ms: int) -> None:
        """The member left or fell silent; the rest rebalance."""
        self.drop_member(group, member)
        if group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
            self.prepare(group, now_ms)
        else:
            self.complete_join_if_ready(group, now_ms)

    def drop_member(self, group: ClassicGroup, member: ClassicMember) -> None:
        """Answer what it had parked, so that a client that is still there joins anew."""
        group.answer_join(member, JoinResponse(ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID))
        group.answer_sync(member, SyncResponse(ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)
        self._timers.cancel(TimerKey(TimerKind.SESSION, group.group_id, member.member_id))

    # --- Gathering members

    def prepare_if_possible(self, group: ClassicGroup, now_ms: int) -> None:
        if group.state is not ClassicGroupState.PREPARING_REBALANCE:
            self.prepare(group, now_ms)

    def prepare(self, group: ClassicGroup, now_ms: int) -> None:
        """Start to gather members; those who wait for an assignment must join again."""
        if group.state is ClassicGroupState.COMPLETING_REBALANCE:
            self._end_sync(group, {}, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        group.pending_sync.clear()
        self._timers.cancel(TimerKey(TimerKind.SYNC, group.group_id))
        timeout_ms = group.rebalance_timeout_ms
        if group.state is ClassicGroupState.EMPTY:
            delay_ms = self._config.initial_rebalance_delay_ms
            group.initial_delay = InitialDelay(delay_ms, max(timeout_ms - delay_ms, 0))
            timeout_ms = delay_ms
        group.transition_to(ClassicGroupState.PREPARING_REBALANCE, now_ms)
        self._timers.set(TimerKey(TimerKind.JOIN, group.group_id), now_ms + timeout_ms)
        self.complete_join_if_ready(group, now_ms)

    def complete_join_if_ready(self, group: ClassicGroup, now_ms: int) -> None:
        preparing = group.state is ClassicGroupState.PREPARING_REBALANCE
        if preparing and group.initial_delay is None and group.all_have_joined:
            self._complete_join(group, now_ms)

    def on_join_timeout(self, group: ClassicGroup, now_ms: int) -> None:
        delay = group.initial_delay
        if delay is not None and delay.member_added and delay.remaining_ms > 0:
            next_ms = min(self._config.initial_rebalance_delay_ms, delay.remaining_ms)
            group.initial_delay = InitialDelay(next_ms, max(delay.remaining_ms - delay.delay_ms, 0))
            self._timers.set(TimerKey(TimerKind.JOIN, group.group_id), now_ms + next_ms)
        else:
            self._complete_join(group, now_ms)

    def _complete_join(self, group: ClassicGroup, now_ms: int) -> None:
        """Start a generation of those who joined. Static members may be late: they stay until their session ends."""
        group.initial_delay = None
        late = [m for m in group.members.values() if m.join_reply is None and not m.is_static]
        for member in late:
            self.drop_member(group, member)
        if group.members and not group.elect_joined_leader():
            self._timers.set(TimerKey(TimerKind.JOIN, group.group_id), now_ms + group.rebalance_timeout_ms)
            return
        self._timers.cancel(TimerKey(TimerKind.JOIN, group.group_id))
        group.start_generation(now_ms)
        if group.state is ClassicGroupState.EMPTY:
            self._log.append([group.record({})], lambda error, now_ms: None)  # lost, the old members just time out
        else:
            self._announce_generation(group, now_ms)

    def _announce_generation(self, group: ClassicGroup, now_ms: int) -> None:
        for member in group.members.values():
            group.answer_join(member, group.join_response(member.member_id))
            self.restart_session(group, member, now_ms)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        self._timers.set(TimerKey(TimerKind.SYNC, group.group_id), now_ms + group.rebalance_timeout_ms)

    # --- Handing out the assignment

    def sync(self, group: ClassicGroup, request: SyncRequest, now_ms: int, reply: SyncReply) -> None:
        error = _sync_error(group, request)
        if error is not ErrorCode.NONE:
            reply(SyncResponse(error))
            return
        member = group.members[request.member_id]
        group.pending_sync.discard(member.member_id)
        if not group.pending_sync:
            self._timers.cancel(TimerKey(TimerKind.SYNC, group.group_id))
        if group.state is ClassicGroupState.STABLE:
            reply(group.sync_response(member))
            self.restart_session(group, member, now_ms)
            return
        group.park_sync(member, reply)
        if member.member_id == group.leader_id and not group.stores_assignment:
            self._store_assignment(group, request.assignments)

    def _store_assignment(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
        """Members that the leader left out get nothing. The leader's first word counts: a generation has one."""
        complete = {member_id: assignments.get(member_id, b"") for member_id in group.members}
        generation = group.generation
        group.stores_assignment = True

        def on_stored(error: ErrorCode, now_ms: int) -> None:
            if group.state is not ClassicGroupState.COMPLETING_REBALANCE or group.generation != generation:
                return
            self._end_sync(group, complete, GROUP_APPEND_ERRORS.get(error, error), now_ms)
            if error is ErrorCode.NONE:
                group.transition_to(ClassicGroupState.STABLE, now_ms)
            else:
                self.prepare(group, now_ms)

        self._log.append([group.record(complete)], on_stored)

    def _end_sync(self, group: ClassicGroup, assignments: Mapping[str, bytes], error: ErrorCode, now_ms: int) -> None:
        group.stores_assignment = False
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            ok = error is ErrorCode.NONE
            if group.answer_sync(member, group.sync_response(member) if ok else SyncResponse(error)):
                self.restart_session(group, member, now_ms)

    def on_sync_timeout(self, group: ClassicGroup, now_ms: int) -> None:
        """Members that never asked for their assignment are gone."""
        if (
            group.state not in (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE)
            or not group.pending_sync
        ):
            return
        for member_id in list(group.pending_sync):
            self.drop_member(group, group.members[member_id])
        self.prepare(group, now_ms)

    def heartbeat(self, group: ClassicGroup, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        error = group.member_error(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if request.generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self.restart_session(group, group.members[request.member_id], now_ms)
        preparing = group.state is ClassicGroupState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE

    def commit_error(self, group: ClassicGroup, request: CommitRequest, now_ms: int) -> ErrorCode:
        """Whether the sender may commit; if so it is alive. Commits during the gathering are a member's last chance."""
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
        self.restart_session(group, group.members[request.member_id], now_ms)
        return ErrorCode.NONE


def _sync_error(group: ClassicGroup, request: SyncRequest) -> ErrorCode:
    error = group.member_error(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type is not None and request.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name is not None and request.protocol_name != group.protocol_name:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE
