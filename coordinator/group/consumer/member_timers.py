"""Timers of the members of consumer groups: sessions, and steps with a deadline."""

from coordinator.group.config import ConsumerTimes, GroupConfig
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.member import LEAVE_STATIC_EPOCH, ConsumerMember, MemberState
from coordinator.group.ports import OwnTimes
from coordinator.group.timer_keys import TimerKey, TimerKind
from coordinator.timers import Timers

CONSUMER_TIMERS = (
    TimerKind.CONSUMER_SESSION,
    TimerKind.CONSUMER_REBALANCE,
    TimerKind.CONSUMER_JOIN,
    TimerKind.CONSUMER_SYNC,
)


class MemberTimers:
    def __init__(self, config: GroupConfig, own_times: OwnTimes, timers: Timers[TimerKey]) -> None:
        self._config = config
        self._own_times = own_times
        self._timers = timers

    def start_all(self, group: ConsumerGroup, now_ms: int) -> None:
        """The timers of members that have none start."""
        for member in group.members.values():
            self.restart_session(group, member.member_id, now_ms)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                self.await_revocation(group, member, now_ms)

    def cancel(self, group: ConsumerGroup, member_id: str) -> None:
        for kind in CONSUMER_TIMERS:
            self._timers.cancel(TimerKey(kind, group.group_id, member_id))

    def restart_session(self, group: ConsumerGroup, member_id: str, now_ms: int) -> None:
        timer = TimerKey(TimerKind.CONSUMER_SESSION, group.group_id, member_id)
        self._timers.set(timer, now_ms + self._session_timeout_ms(group, group.members[member_id]))

    def await_revocation(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        """Members of the classic protocol have other timers, for joining and syncing. A static member that restarts
        owns nothing: only its session counts."""
        timer = TimerKey(TimerKind.CONSUMER_REBALANCE, group.group_id, member.member_id)
        is_present = member.classic is None and member.epoch != LEAVE_STATIC_EPOCH
        if member.state is MemberState.UNREVOKED_PARTITIONS and is_present:
            self._timers.set(timer, now_ms + member.rebalance_timeout_ms)
        else:
            self._timers.cancel(timer)

    def await_join(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        """The timer starts with the first answer that asks the classic member for the step."""
        timer = TimerKey(TimerKind.CONSUMER_JOIN, group.group_id, member.member_id)
        if timer not in self._timers:
            self._timers.set(timer, now_ms + member.rebalance_timeout_ms)

    def has_joined(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        """The classic member has to ask for its assignment next."""
        self._timers.cancel(TimerKey(TimerKind.CONSUMER_JOIN, group.group_id, member.member_id))
        timer = TimerKey(TimerKind.CONSUMER_SYNC, group.group_id, member.member_id)
        self._timers.set(timer, now_ms + member.rebalance_timeout_ms)

    def has_synced(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        self._timers.cancel(TimerKey(TimerKind.CONSUMER_SYNC, group.group_id, member.member_id))

    def period_ms(self, group: ConsumerGroup, timer: TimerKey) -> int:
        """The duration of the timer from its start; 0 if the member has left."""
        member = group.members.get(timer.member_id)
        if member is None:
            return 0
        if timer.kind is TimerKind.CONSUMER_SESSION:
            return self._session_timeout_ms(group, member)
        return member.rebalance_timeout_ms

    def _session_timeout_ms(self, group: ConsumerGroup, member: ConsumerMember) -> int:
        if member.classic is not None:
            return member.classic.session_timeout_ms
        return self.times(group).session_timeout_ms

    def times(self, group: ConsumerGroup) -> ConsumerTimes:
        return self._own_times(group.group_id) or self._config.consumer_times
