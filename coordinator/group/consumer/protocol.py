"""The consumer group protocol (KIP-848), and members of the classic protocol in its groups."""

from collections.abc import Callable

from coordinator.group.busy_groups import BusyGroups
from coordinator.group.config import GroupConfig
from coordinator.group.consumer.classic_members import ClassicMembers
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.heartbeats import ConsumerHeartbeats, Downgrade, StepsOfMember
from coordinator.group.consumer.member import MemberState
from coordinator.group.consumer.member_timers import CONSUMER_TIMERS, MemberTimers
from coordinator.group.consumer.messages import (
    ConsumerHeartbeatReply,
    ConsumerHeartbeatRequest,
    ConsumerHeartbeatResponse,
    Topics,
)
from coordinator.group.group import GroupProtocol
from coordinator.group.messages import (
    CommitRequest,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    JoinResponse,
    LeavingMember,
    SyncReply,
    SyncRequest,
)
from coordinator.group.ports import NewId, OwnTimes
from coordinator.group.timer_keys import TimerKey, TimerKind
from coordinator.log import Log
from coordinator.slices import Steps, begun
from coordinator.timers import Timers
from protocol.kafka.errors import ErrorCode


class ConsumerProtocol(GroupProtocol[ConsumerGroup]):
    def __init__(
        self,
        config: GroupConfig,
        own_times: OwnTimes,
        log: Log,
        timers: Timers[TimerKey],
        topics: Topics,
        new_id: NewId,
        downgrade: Downgrade,
        busy: BusyGroups,
        start: Callable[[Steps], None],
    ) -> None:
        """`start` runs work in slices; a group that has some is in `busy`."""
        self._log = log
        self._busy = busy
        self._start = start
        self._timers = MemberTimers(config, own_times, timers)
        self._heartbeats = ConsumerHeartbeats(config.consumer_max_size, self._timers, topics, new_id, downgrade)
        self._classic_members = ClassicMembers(
            config.consumer_max_size, self._timers, topics, self._heartbeats, new_id, downgrade
        )

    # --- Requests

    def consumer_heartbeat(
        self, group: ConsumerGroup, request: ConsumerHeartbeatRequest, now_ms: int, reply: ConsumerHeartbeatReply
    ) -> None:
        """The request was validated. Raises RefusedError."""
        steps = self._heartbeats.heartbeat(group, request, now_ms, reply)
        self._take(group, steps, now_ms, lambda: reply(ConsumerHeartbeatResponse(ErrorCode.NOT_COORDINATOR)))

    def join(self, group: ConsumerGroup, request: JoinRequest, now_ms: int, reply: JoinReply) -> None:
        steps = self._classic_members.join(group, request, now_ms, reply)
        self._take(group, steps, now_ms, lambda: reply(JoinResponse(ErrorCode.NOT_COORDINATOR, request.member_id)))

    def _take(self, group: ConsumerGroup, steps: StepsOfMember, now_ms: int, refuse: Callable[[], None]) -> None:
        """All steps now, or only the first ones if the group is large."""
        for _ in steps:
            if group.is_large:
                self._busy.begin(group.group_id)
                self._start(begun(self._rest(group, steps, now_ms, refuse)))
                return

    def _rest(self, group: ConsumerGroup, steps: StepsOfMember, now_ms: int, refuse: Callable[[], None]) -> Steps:
        is_done = False
        try:
            yield
            member_id = yield from steps
            is_done = True

            def end(error: ErrorCode, now_ms: int) -> None:
                self.stays(group, member_id, now_ms)  # It could not send anything since the first step.
                self._busy.end(group.group_id, now_ms)

            self._log.append([], end, irrevocable=True)
        finally:
            if not is_done:  # the coordinator has resigned
                refuse()
                self._busy.end(group.group_id, now_ms)

    def stays(self, group: ConsumerGroup, member_id: str, now_ms: int) -> None:
        """A request of the member is refused while the group is busy, or has waited for it."""
        if member_id in group.members:
            self._timers.restart_session(group, member_id, now_ms)

    def sync(self, group: ConsumerGroup, request: SyncRequest, now_ms: int, reply: SyncReply) -> None:
        self._classic_members.sync(group, request, now_ms, reply)

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        return self._classic_members.heartbeat(group, request, now_ms)

    def leave(self, group: ConsumerGroup, leaving: LeavingMember, now_ms: int) -> ErrorCode:
        return self._classic_members.leave(group, leaving, now_ms)

    def offset_commit_error(self, group: ConsumerGroup, request: CommitRequest, now_ms: int) -> ErrorCode:
        return group.offset_commit_error(request)

    # --- Timers

    def restart_timers(self, group: ConsumerGroup, now_ms: int) -> None:
        self._timers.start_all(group, now_ms)

    def cancel_timers(self, group: ConsumerGroup, member_id: str) -> None:
        self._timers.cancel(group, member_id)

    def period_ms(self, group: ConsumerGroup, timer: TimerKey) -> int:
        return self._timers.period_ms(group, timer)

    def on_timer(self, group: ConsumerGroup, timer: TimerKey, now_ms: int) -> None:
        """The member was silent, did not join or sync in time, or did not give partitions back."""
        member = group.members.get(timer.member_id)
        if member is None or timer.kind not in CONSUMER_TIMERS:
            return
        if timer.kind is not TimerKind.CONSUMER_REBALANCE or member.state is MemberState.UNREVOKED_PARTITIONS:
            self._heartbeats.expel(group, member, now_ms)
