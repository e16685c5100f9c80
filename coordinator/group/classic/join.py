"""JoinGroup and LeaveGroup of classic groups: which clients become members, and whether the group rebalances.

A JoinGroup comes from one of three kinds of members: new ones (with an empty member id), members that just got their id
(KIP-394), and members that join again. A static member (KIP-345) that joins without its id replaces the one with its
instance id.
"""

from dataclasses import replace

from coordinator.group.classic.group import ClassicGroup
from coordinator.group.classic.member import ClassicMember
from coordinator.group.classic.rebalance import ClassicRebalance
from coordinator.group.classic.states import ClassicGroupState
from coordinator.group.config import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupConfig
from coordinator.group.messages import (
    UNKNOWN_MEMBER_ID,
    JoinReply,
    JoinRequest,
    JoinResponse,
    LeavingMember,
    SyncResponse,
)
from coordinator.group.ports import GROUP_APPEND_ERRORS, NewId
from coordinator.group.records.fields import MAX_STRING_BYTES
from coordinator.group.timer_keys import TimerKey, TimerKind
from coordinator.timers import Timers
from protocol.kafka.errors import ErrorCode

MAX_MEMBER_STRING_BYTES = MAX_STRING_BYTES - 37
"""A member id is the client's id or the instance's, and "-<uuid>"."""

MAX_PENDING_MEMBERS = 10_000
"""Of one group. Clients join with their id at once, so those are there that have not come back."""


def join_error(request: JoinRequest, config: GroupConfig) -> ErrorCode:
    """The error of the request, independent of its group."""
    if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    texts = (request.client_id, request.client_host, request.group_instance_id or "", request.protocol_type)
    names = (name for name, _ in request.protocols)
    too_long = any(len(text.encode()) > MAX_MEMBER_STRING_BYTES for text in (*texts, *names))
    return ErrorCode.INVALID_REQUEST if too_long else ErrorCode.NONE


class ClassicJoin:
    def __init__(
        self, config: GroupConfig, timers: Timers[TimerKey], rebalance: ClassicRebalance, new_id: NewId
    ) -> None:
        self._config = config
        self._timers = timers
        self._rebalance = rebalance
        self._new_id = new_id

    def join(self, group: ClassicGroup, request: JoinRequest, now_ms: int, reply: JoinReply) -> None:
        if not self._accepts(group, request.member_id):
            self._reject_for_size(group, request.member_id, reply)
        elif not group.supports(request.protocol_type, request.protocols):
            reply(JoinResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
        elif request.member_id == UNKNOWN_MEMBER_ID:
            self._join_new(group, request, now_ms, reply)
        elif request.member_id in group.pending_members:
            self._join_pending(group, request, now_ms, reply)
        else:
            self._rejoin(group, request, now_ms, reply)
        self._rebalance.complete_join_if_ready(group, now_ms)

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether the group has room. While members join, the first ones get in, old members or not."""
        member = group.members.get(member_id)
        if group.state is ClassicGroupState.EMPTY:
            return True
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            already_in = member is not None and member.join_reply is not None
            return already_in or group.joining_count < self._config.max_size
        return member is not None or len(group.members) < self._config.max_size

    def _reject_for_size(self, group: ClassicGroup, member_id: str, reply: JoinReply) -> None:
        member = group.members.get(member_id)
        if member is not None:
            self._rebalance.drop_member(group, member)
        group.drop_pending(member_id)
        reply(JoinResponse(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID))

    # --- New members

    def _join_new(self, group: ClassicGroup, request: JoinRequest, now_ms: int, reply: JoinReply) -> None:
        instance_id = request.group_instance_id
        current_id = None if instance_id is None else group.static_members.get(instance_id)
        if current_id is not None:
            self._replace_static(group, group.members[current_id], request, now_ms, reply)
        elif instance_id is None and request.require_member_id and len(group.pending_members) >= MAX_PENDING_MEMBERS:
            reply(JoinResponse(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID))
        elif instance_id is None and request.require_member_id:
            member_id = self._new_member_id(request)
            group.add_pending(member_id, request.session_timeout_ms)
            timer = TimerKey(TimerKind.PENDING_MEMBER, group.group_id, member_id)
            self._timers.set(timer, now_ms + request.session_timeout_ms)
            reply(JoinResponse(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(group, self._new_member_id(request), request, now_ms, reply)

    def _new_member_id(self, request: JoinRequest) -> str:
        owner = request.client_id if request.group_instance_id is None else request.group_instance_id
        return f"{owner}-{self._new_id()}"

    def _join_pending(self, group: ClassicGroup, request: JoinRequest, now_ms: int, reply: JoinReply) -> None:
        if request.group_instance_id is not None:  # Static members never get an id this way.
            reply(JoinResponse(ErrorCode.UNKNOWN_SERVER_ERROR, UNKNOWN_MEMBER_ID))
            return
        self._timers.cancel(TimerKey(TimerKind.PENDING_MEMBER, group.group_id, request.member_id))
        self._add(group, request.member_id, request, now_ms, reply)

    def _add(self, group: ClassicGroup, member_id: str, request: JoinRequest, now_ms: int, reply: JoinReply) -> None:
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
            is_new=True,
        )
        if group.initial_delay is not None:
            group.initial_delay.member_added = True
        group.add(member, request.protocol_type)
        group.await_join(member, reply)
        self._rebalance.expire_member_at(group, member_id, now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance.prepare_if_possible(group, now_ms)

    # --- Members that join again

    def _rejoin(self, group: ClassicGroup, request: JoinRequest, now_ms: int, reply: JoinReply) -> None:
        """A rebalance starts only if something changed: other protocols or metadata, or a leader that assigns again."""
        error = group.member_error(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            reply(JoinResponse(error, request.member_id))
            return
        member = group.members[request.member_id]
        unchanged = list(member.protocols) == list(request.protocols)
        leads = group.leader_id == member.member_id
        repeats = unchanged and (
            group.state is ClassicGroupState.COMPLETING_REBALANCE
            or (group.state is ClassicGroupState.STABLE and not leads)
        )
        if repeats:
            reply(group.join_response(member.member_id))
        else:
            self._update(group, member, request, reply)
            self._rebalance.prepare_if_possible(group, now_ms)

    def _update(self, group: ClassicGroup, member: ClassicMember, request: JoinRequest, reply: JoinReply) -> None:
        group.update(member, request.protocols, request.session_timeout_ms, request.rebalance_timeout_ms)
        group.await_join(member, reply)

    # --- Static members that restarted

    def _replace_static(
        self,
        group: ClassicGroup,
        member: ClassicMember,
        request: JoinRequest,
        now_ms: int,
        reply: JoinReply,
    ) -> None:
        """A stable group whose protocol does not change continues: the new member gets the old one's assignment."""
        before = replace(member)
        old_leader_id = group.leader_id or ""
        self._take_over(group, member, self._new_member_id(request), now_ms)
        self._update(group, member, request, reply)
        if group.state is ClassicGroupState.STABLE and group.select_protocol() == group.protocol_name:
            self._store_replacement(group, member, before, request.can_skip_assignment, old_leader_id)
        elif group.state is not ClassicGroupState.PREPARING_REBALANCE:
            # The leader may be assigning to the old id at this moment, so even the same metadata needs a new
            # generation.
            self._rebalance.prepare(group, now_ms)

    def _store_replacement(
        self, group: ClassicGroup, member: ClassicMember, before: ClassicMember, can_skip: bool, old_leader_id: str
    ) -> None:
        generation, reply = group.generation, member.join_reply

        def on_stored(error: ErrorCode, now_ms: int) -> None:
            still_waits = member.join_reply is reply and group.state is ClassicGroupState.STABLE
            if not still_waits or group.generation != generation:
                return  # A rebalance has started, and will answer.
            if error is not ErrorCode.NONE:
                self._revert(group, member, before, now_ms)
                failure = replace(
                    group.join_response(UNKNOWN_MEMBER_ID),
                    error=GROUP_APPEND_ERRORS.get(error, error),
                    leader_id=old_leader_id,
                )
                group.answer_join(member, failure)
                return
            response = group.join_response(member.member_id)
            if can_skip:
                response = replace(response, skip_assignment=member.member_id == group.leader_id)
            else:  # Older clients must not take themselves for the leader: their assignment would be lost.
                response = replace(response, leader_id=old_leader_id, members=())
            group.answer_join(member, response)
            self._rebalance.restart_session(group, member, now_ms)  # It may have expired while the log was slow.

        self._rebalance.store(group, {m.member_id: m.assignment for m in group.members.values()}, on_stored)

    def _revert(self, group: ClassicGroup, member: ClassicMember, before: ClassicMember, now_ms: int) -> None:
        """The log does not have the new id, so the old one remains the member."""
        self._timers.cancel(TimerKey(TimerKind.SESSION, group.group_id, member.member_id))
        group.update(member, before.protocols, before.session_timeout_ms, before.rebalance_timeout_ms)
        group.rename_static(member, before.member_id)
        self._rebalance.restart_session(group, member, now_ms)

    def _take_over(self, group: ClassicGroup, member: ClassicMember, new_id: str, now_ms: int) -> None:
        group.answer_join(member, JoinResponse(ErrorCode.FENCED_INSTANCE_ID, member.member_id))
        group.answer_sync(member, SyncResponse(ErrorCode.FENCED_INSTANCE_ID))
        self._timers.cancel(TimerKey(TimerKind.SESSION, group.group_id, member.member_id))
        group.rename_static(member, new_id)
        self._rebalance.restart_session(group, member, now_ms)

    # --- Leaving

    def leave(self, group: ClassicGroup, leaving: LeavingMember, now_ms: int) -> ErrorCode:
        member_id = leaving.member_id
        if member_id in group.pending_members:
            self._rebalance.remove_pending(group, member_id, now_ms)
            return ErrorCode.NONE
        if member_id == UNKNOWN_MEMBER_ID:
            member_id = group.static_members.get(leaving.group_instance_id or "", UNKNOWN_MEMBER_ID)
        error = group.member_error(member_id, leaving.group_instance_id)
        if error is ErrorCode.NONE:
            self._rebalance.remove_member(group, group.members[member_id], now_ms)
        return error
