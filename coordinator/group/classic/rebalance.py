"""Rebalances of classic groups: members join, a generation starts, its assignment is stored and sent to the members.

A rebalance ends for the members when the leader's assignment is durable: only then are their SyncGroup requests
answered. Timers bound each step: the join timer bounds joining, the sync timer the wait for every member's SyncGroup,
a session timer the silence of a member.
"""

from collections.abc import Callable, Mapping

from coordinator.group.classic.group import ClassicGroup, InitialDelay
from coordinator.group.classic.member import ClassicMember
from coordinator.group.classic.states import ClassicGroupState
from coordinator.group.classic.stored_group import group_record, least_record_bytes
from coordinator.group.config import GroupConfig
from coordinator.group.messages import UNKNOWN_MEMBER_ID, JoinResponse, SyncReply, SyncRequest, SyncResponse
from coordinator.group.ports import GROUP_APPEND_ERRORS
from coordinator.group.timer_keys import TimerKey, TimerKind
from coordinator.log import Log, OnAppended
from coordinator.slices import SliceCounter, Steps
from coordinator.timers import Timers
from protocol.kafka.errors import ErrorCode

NOBODY_JOINED_PAUSE_MS = 1_000
"""The shortest wait for late static members when no other member is left. Their own rebalance timeout may be 0."""

ANSWER_UNITS = 4
"""To answer a member."""
_OF_GENERATION = (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE)
"""States in which the members of a generation have joined."""


class ClassicRebalance:
    def __init__(self, config: GroupConfig, log: Log, timers: Timers[TimerKey], start: Callable[[Steps], None]) -> None:
        """`start` runs work in slices."""
        self._start = start
        self._config = config
        self._log = log
        self._timers = timers

    # --- Sessions

    def restart_session(self, group: ClassicGroup, member: ClassicMember, now_ms: int) -> None:
        self.expire_member_at(group, member.member_id, now_ms + member.session_timeout_ms)

    def expire_member_at(self, group: ClassicGroup, member_id: str, deadline_ms: int) -> None:
        self._timers.set(TimerKey(TimerKind.SESSION, group.group_id, member_id), deadline_ms)

    def remove_pending(self, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        self._timers.cancel(TimerKey(TimerKind.PENDING_MEMBER, group.group_id, member_id))
        group.remove(member_id)
        self.complete_join_if_ready(group, now_ms)

    def remove_member(self, group: ClassicGroup, member: ClassicMember, now_ms: int) -> None:
        """The member left or was silent for too long; the other members rebalance."""
        self.drop_member(group, member)
        if group.state in _OF_GENERATION:
            self.prepare(group, now_ms)
        else:
            self.complete_join_if_ready(group, now_ms)

    def drop_member(self, group: ClassicGroup, member: ClassicMember) -> None:
        """Answer its waiting requests, so that a client that is still alive joins again."""
        group.answer_join(member, JoinResponse(ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID))
        group.answer_sync(member, SyncResponse(ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)
        self._timers.cancel(TimerKey(TimerKind.SESSION, group.group_id, member.member_id))

    # --- Joining

    def prepare_if_possible(self, group: ClassicGroup, now_ms: int) -> None:
        if group.state is not ClassicGroupState.PREPARING_REBALANCE:
            self.prepare(group, now_ms)

    def prepare(self, group: ClassicGroup, now_ms: int) -> None:
        """Start the join phase; members that wait for an assignment must join again."""
        if group.state is ClassicGroupState.COMPLETING_REBALANCE:
            self._end_sync(group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        if group.state is ClassicGroupState.STABLE:
            self._answer_rest(group, now_ms)
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
        """Start a generation with the members that joined. Static members may be late: they stay until their session
        ends."""
        group.initial_delay = None
        late = [m for m in group.members.values() if m.join_reply is None and not m.is_static]
        for member in late:
            self.drop_member(group, member)
        if group.members and not group.elect_joined_leader():
            wait_ms = max(group.rebalance_timeout_ms, NOBODY_JOINED_PAUSE_MS)
            self._timers.set(TimerKey(TimerKind.JOIN, group.group_id), now_ms + wait_ms)
            return
        self._timers.cancel(TimerKey(TimerKind.JOIN, group.group_id))
        group.start_generation(now_ms)
        if group.state is ClassicGroupState.EMPTY:
            # If this record is lost, the old members time out.
            self._log.append([group_record(group, {})], lambda error, now_ms: None, irrevocable=True)
        else:
            self._announce_generation(group, now_ms)

    def _announce_generation(self, group: ClassicGroup, now_ms: int) -> None:
        group.pending_sync.update(group.members)
        for member in group.members.values():
            member.is_new = False
        self._timers.set(TimerKey(TimerKind.SYNC, group.group_id), now_ms + group.rebalance_timeout_ms)
        self._take(self._answer_joins(group, now_ms))

    def _take(self, answers: Steps) -> None:
        """The first slice now."""
        for _ in answers:
            self._start(answers)
            return

    def _answer_joins(self, group: ClassicGroup, now_ms: int) -> Steps:
        """In slices: they may be thousands. Who is not answered yet when the next rebalance begins takes part in it."""
        generation, counter = group.generation, SliceCounter()
        for member, reply in [(member, member.join_reply) for member in group.members.values()]:
            if group.generation != generation or group.state not in _OF_GENERATION:
                return
            if group.members.get(member.member_id) is member and member.join_reply is reply:
                group.answer_join(member, group.join_response(member.member_id))
                self.restart_session(group, member, now_ms)
                if counter.is_full(ANSWER_UNITS):
                    yield

    # --- Sending the assignment

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
        group.await_sync(member, reply)
        if member.member_id == group.leader_id and not group.stores_assignment:
            self._store_assignment(group, request.assignments)

    def _store_assignment(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
        """Members without an assignment by the leader get none. The leader's first assignment counts: a generation has
        one."""
        complete = {member_id: assignments.get(member_id, b"") for member_id in group.members}
        generation = group.generation
        group.stores_assignment = True

        def on_stored(error: ErrorCode, now_ms: int) -> None:
            if group.state is not ClassicGroupState.COMPLETING_REBALANCE or group.generation != generation:
                return
            if error is ErrorCode.NONE:
                group.stores_assignment = False
                group.assign(complete)
                group.transition_to(ClassicGroupState.STABLE, now_ms)
                self._take(self._answer_syncs(group, now_ms))
            else:
                self._end_sync(group, GROUP_APPEND_ERRORS.get(error, error), now_ms)
                self.prepare(group, now_ms)

        self.store(group, complete, on_stored)

    def store(self, group: ClassicGroup, assignments: Mapping[str, bytes], on_stored: OnAppended) -> None:
        """A record that the log cannot hold is not even encoded: it may have tens of megabytes."""
        if least_record_bytes(group, assignments) > self._log.max_record_bytes:
            self._log.append([], lambda error, now_ms: on_stored(error or ErrorCode.MESSAGE_TOO_LARGE, now_ms))
        else:
            self._log.append([group_record(group, assignments)], on_stored)

    def _answer_syncs(self, group: ClassicGroup, now_ms: int) -> Steps:
        """In slices, as long as the group is stable."""
        generation, counter = group.generation, SliceCounter()
        for member in [*group.members.values()]:
            if group.generation != generation or group.state is not ClassicGroupState.STABLE:
                return
            if group.answer_sync(member, group.sync_response(member)):
                self.restart_session(group, member, now_ms)
                if counter.is_full(ANSWER_UNITS):
                    yield

    def _answer_rest(self, group: ClassicGroup, now_ms: int) -> None:
        """The next rebalance begins before all members have got their assignment. It is theirs nevertheless."""
        for member in group.members.values():
            if group.answer_sync(member, group.sync_response(member)):
                self.restart_session(group, member, now_ms)

    def _end_sync(self, group: ClassicGroup, error: ErrorCode, now_ms: int) -> None:
        """There is no assignment."""
        group.stores_assignment = False
        group.assign({})
        for member in group.members.values():
            if group.answer_sync(member, SyncResponse(error)):
                self.restart_session(group, member, now_ms)

    def on_sync_timeout(self, group: ClassicGroup, now_ms: int) -> None:
        """Members that sent no SyncGroup are removed."""
        if group.state not in _OF_GENERATION or not group.pending_sync:
            return
        for member_id in list(group.pending_sync):
            self.drop_member(group, group.members[member_id])
        self.prepare(group, now_ms)


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
