"""The membership of groups: requests of members go to the protocol of their group's type.

A group changes its type when it is empty, or member by member (`migration`).
"""

from collections.abc import Callable, Mapping
from typing import Any

from coordinator.group.busy_groups import TIMERS_AGAIN_MS, BusyGroups
from coordinator.group.classic.group import ClassicGroup
from coordinator.group.classic.protocol import ClassicProtocol
from coordinator.group.config import GroupConfig
from coordinator.group.consumer.group import MEMBER_EPOCH_COMMIT_VERSION, NAME_BYTES, ConsumerGroup
from coordinator.group.consumer.member import JOIN_EPOCH, ConsumerMember
from coordinator.group.consumer.messages import (
    ConsumerHeartbeatReply,
    ConsumerHeartbeatRequest,
    ConsumerHeartbeatResponse,
    Topics,
)
from coordinator.group.consumer.protocol import ConsumerProtocol
from coordinator.group.consumer.states import ConsumerGroupState
from coordinator.group.consumer.validation import leaves
from coordinator.group.downgrade import Conversion, Downgrades
from coordinator.group.group import GroupProtocol, GroupType
from coordinator.group.messages import (
    MAX_MEMBER_BYTES,
    UNKNOWN_MEMBER_ID,
    CommitRequest,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    JoinResponse,
    LeavingMember,
    RefusedError,
    SyncReply,
    SyncRequest,
    SyncResponse,
    TransactionalCommitRequest,
    metadata_bytes,
    texts_bytes,
)
from coordinator.group.metadata_memory import MetadataMemory
from coordinator.group.migration import AnyGroup, Upgrades, refusal_of
from coordinator.group.ports import NewId, OwnTimes
from coordinator.group.timer_keys import TimerKey
from coordinator.log import Log
from coordinator.slices import Steps
from coordinator.timers import Timers
from protocol.kafka.errors import ErrorCode


class Membership:
    """Works on `groups`, which the coordinator owns."""

    def __init__(
        self,
        config: GroupConfig,
        own_times: OwnTimes,
        log: Log,
        timers: Timers[TimerKey],
        groups: dict[str, AnyGroup],
        topics: Topics,
        new_id: NewId,
        start: Callable[[Steps], None],
        start_answers: Callable[[Steps], None],
    ) -> None:
        """`start` runs changes of groups in slices, `start_answers` the answers to many members."""
        self._config = config
        self._log = log
        self._groups = groups
        self._upgrades = Upgrades(log, topics, start)
        self._timers = timers
        self._metadata = MetadataMemory(config.max_metadata_bytes, groups)
        self._classic = ClassicProtocol(config, log, timers, new_id, start_answers)
        self._busy = BusyGroups()
        self._consumer = ConsumerProtocol(
            config, own_times, log, timers, topics, new_id, self._downgrade, self._busy, start
        )
        self._downgrades = Downgrades(log, self._busy, start, self._consumer.cancel_timers)
        self._protocols: Mapping[GroupType, GroupProtocol[Any]] = {
            GroupType.CLASSIC: self._classic,
            GroupType.CONSUMER: self._consumer,
        }

    # --- The classic protocol

    def join(self, request: JoinRequest, now_ms: int, reply: JoinReply) -> None:
        if self._is_busy(request.group_id, request.member_id, now_ms):
            reply(JoinResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, request.member_id))
            return
        group = self._groups.get(request.group_id)
        growth_bytes = _growth_bytes(group, request)
        if not self._metadata.admits(growth_bytes, now_ms):
            reply(JoinResponse(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID))
            return
        if group is None or not group.admits_classic_members:
            if request.member_id != UNKNOWN_MEMBER_ID:
                reply(JoinResponse(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
                return
            group = self._new_classic(request.group_id, now_ms)
        if isinstance(group, ClassicGroup):
            before_bytes = group.metadata_bytes
            self._classic.join(group, request, now_ms, reply)
            growth_bytes = group.metadata_bytes - before_bytes
        else:  # an upper bound
            self._consumer.join(group, request, now_ms, reply)
        self._metadata.grew(growth_bytes)

    def _new_classic(self, group_id: str, now_ms: int) -> ClassicGroup:
        """Replaces an empty group of another type, if there is one; the offsets stay."""
        old, group = self._groups.get(group_id), ClassicGroup(group_id, now_ms)
        if old is not None:
            group.offsets = old.offsets
            old.die(now_ms)
            self._log.append([*old.tombstones()], lambda error, now_ms: None, irrevocable=True)
        self._groups[group_id] = group
        return group

    def sync(self, request: SyncRequest, now_ms: int, reply: SyncReply) -> None:
        group = self._groups.get(request.group_id)
        if group is None:
            reply(SyncResponse(ErrorCode.UNKNOWN_MEMBER_ID))
            return
        if self._is_busy(request.group_id, request.member_id, now_ms):
            reply(SyncResponse(ErrorCode.REBALANCE_IN_PROGRESS))
            return
        growth_bytes = group.assigned_growth(request) if isinstance(group, ClassicGroup) else 0
        if self._metadata.admits(growth_bytes, now_ms):
            self._protocols[group.type].sync(group, request, now_ms, reply)
            self._metadata.grew(growth_bytes)
        else:
            reply(SyncResponse(ErrorCode.GROUP_MAX_SIZE_REACHED))

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        group = self._groups.get(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if self._is_busy(request.group_id, request.member_id, now_ms):
            return ErrorCode.NONE
        return self._protocols[group.type].heartbeat(group, request, now_ms)

    def leave(self, group_id: str, member: LeavingMember, now_ms: int) -> ErrorCode:
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if isinstance(group, ConsumerGroup) and group_id in self._busy:
            is_known = member.member_id in group.members or member.group_instance_id in group.static_members
            if is_known:
                self._busy.later(group_id, lambda now_ms: self.leave(group_id, member, now_ms))
            return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_MEMBER_ID
        return self._protocols[group.type].leave(group, member, now_ms)

    def group_to_commit_for(self, request: CommitRequest, now_ms: int) -> AnyGroup:
        """Creates a simple consumer's group if it does not exist: it needs no membership. Raises RefusedError."""
        group = self._groups.get(request.group_id)
        if group is None:
            if request.generation >= 0:
                has_epoch = request.version >= MEMBER_EPOCH_COMMIT_VERSION
                raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND if has_epoch else ErrorCode.ILLEGAL_GENERATION)
            group = self._new_classic(request.group_id, now_ms)
        if isinstance(request, TransactionalCommitRequest):
            error = group.transactional_commit_error(request)
        else:
            error = self._protocols[group.type].offset_commit_error(group, request, now_ms)
        if error:
            raise RefusedError(error)
        return group

    def release_waiting(self, error: ErrorCode, now_ms: int) -> None:
        """Answer the members whose requests wait for other members."""
        for group in self._groups.values():
            if group.members:
                self._protocols[group.type].release_waiting(group, error, now_ms)

    def takes_long(self, timer: TimerKey) -> bool:
        """Whether the timer's group has so many topics that one timer is enough work for one call."""
        group = self._groups.get(timer.group_id)
        return isinstance(group, ConsumerGroup) and group.has_many_topics

    # --- The consumer protocol

    def consumer_heartbeat(self, request: ConsumerHeartbeatRequest, now_ms: int, reply: ConsumerHeartbeatReply) -> None:
        """Raises RefusedError."""
        if self._is_busy(request.group_id, request.member_id, now_ms):
            self._heartbeat_while_busy(request, reply)
            return
        old = self._groups.get(request.group_id)
        group = self._consumer_group(request, now_ms)
        growth_bytes = 0 if group is old else NAME_BYTES * group.named_count  # of an upgrade: the rest is no more
        if request.subscribed_topic_names is not None:
            topics = frozenset(request.subscribed_topic_names)
            growth_bytes += NAME_BYTES * group.named_growth(topics, request.member_id)
        growth_bytes += _growth_of_ids(group, request)
        if not self._metadata.admits(growth_bytes, now_ms):
            message = "The members of all groups subscribe to too many topics, or have too long ids."
            raise RefusedError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
        matched_bytes = group.matched_bytes
        self._consumer.consumer_heartbeat(group, request, now_ms, reply)
        self._metadata.grew(growth_bytes)
        if request.group_id in self._busy:  # its expressions are resolved then
            self._busy.later(request.group_id, lambda _: self._metadata.grew(group.matched_bytes - matched_bytes))
        else:
            self._metadata.grew(group.matched_bytes - matched_bytes)
        if group.members and not group.is_dead:  # A new group whose first member was refused is not kept.
            self._install(group, now_ms)

    def _is_busy(self, group_id: str, member_id: str, now_ms: int) -> bool:
        """Whether the group changes in slices. Its member cannot do what it asks for, but it is alive."""
        group = self._groups.get(group_id)
        if group_id not in self._busy or not isinstance(group, ConsumerGroup):
            return False
        self._consumer.stays(group, member_id, now_ms)
        return True

    def _heartbeat_while_busy(self, request: ConsumerHeartbeatRequest, reply: ConsumerHeartbeatReply) -> None:
        """Raises RefusedError."""
        if not leaves(request):
            raise RefusedError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The group is changing.")

        def leave(now_ms: int) -> None:
            try:
                self.consumer_heartbeat(request, now_ms, reply)
            except RefusedError as refused:
                reply(ConsumerHeartbeatResponse(refused.error, str(refused) or None))

        self._busy.later(request.group_id, leave)

    def _install(self, group: ConsumerGroup, now_ms: int) -> None:
        """May replace a classic group: its members join again, and get the other protocol."""
        old, self._groups[group.group_id] = self._groups.get(group.group_id), group
        if old is not None and old is not group:
            self._protocols[old.type].replaced(old, now_ms)
            self._consumer.restart_timers(group, now_ms)

    def _consumer_group(self, request: ConsumerHeartbeatRequest, now_ms: int) -> ConsumerGroup:
        """Creates the joining member's group if it does not exist, also in place of a classic group without members.

        Raises RefusedError.
        """
        old = self._groups.get(request.group_id)
        if old is not None and old.type is GroupType.CONSUMER:
            return old
        if old is not None and not old.is_empty:
            return self._upgraded(old, request, now_ms)
        if request.member_epoch != JOIN_EPOCH:
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found.")
        group = ConsumerGroup(request.group_id, self._log)
        if old is not None:
            group.offsets = old.offsets
            group.writer.write_with_next([*old.tombstones()])
        return group

    def _upgraded(self, old: ClassicGroup, request: ConsumerHeartbeatRequest, now_ms: int) -> ConsumerGroup:
        """The change is not in force yet. Raises RefusedError."""
        has_room = len(old.members) < self._config.consumer_max_size and (
            old.metadata_bytes <= MAX_MEMBER_BYTES
            or all(metadata_bytes(member.protocols) <= MAX_MEMBER_BYTES for member in old.members.values())
        )
        if request.member_epoch != JOIN_EPOCH or not self._config.online_upgrade or not has_room:
            raise refusal_of(request.group_id)
        return self._upgrades.converted(old, now_ms)

    def _downgrade(
        self,
        group: ConsumerGroup,
        leaving: ConsumerMember | None,
        now_ms: int,
        on_stored: Callable[[ErrorCode], None],
        otherwise: Callable[[int], None],
    ) -> bool:
        """Converts the group into a classic one if the last member of the consumer protocol leaves it, or has left."""
        size = len(group.members) if leaving is None else len(group.members) - 1
        if not self._config.online_downgrade or size > self._config.max_size:
            return False
        if leaving is not None and not group.only_classic_without(leaving.member_id):
            return False
        is_stable = leaving is None and group.state is ConsumerGroupState.STABLE

        def on_made(classic: ClassicGroup, now_ms: int) -> None:
            if self._groups.get(group.group_id) is group:  # otherwise the coordinator has resigned
                self._groups[group.group_id] = classic
                group.die(now_ms)
                self._classic.continue_migrated(classic, now_ms, rebalances=not is_stable)

        return self._downgrades.convert(group, now_ms, Conversion(on_made, otherwise, on_stored))

    # --- Timers

    def restart_timers(self, group: AnyGroup, now_ms: int) -> None:
        """After loading, every member's timers start again."""
        self._protocols[group.type].restart_timers(group, now_ms)

    def period_ms(self, timer: TimerKey) -> int:
        """The duration of the timer from its start, 0 if it waits for no member."""
        group = self._groups.get(timer.group_id)
        return 0 if group is None else self._protocols[group.type].period_ms(group, timer)

    def on_timer(self, timer: TimerKey, now_ms: int) -> None:
        group = self._groups.get(timer.group_id)
        if timer.group_id in self._busy:
            self._timers.set(timer, now_ms + TIMERS_AGAIN_MS)
        elif group is not None:
            self._protocols[group.type].on_timer(group, timer, now_ms)


def _growth_bytes(group: AnyGroup | None, request: JoinRequest) -> int:
    """How much more the sender will have sent than before."""
    if isinstance(group, ClassicGroup):
        member_id = group.static_members.get(request.group_instance_id or "", request.member_id)
        member = group.members.get(member_id)
        if member is not None:
            return metadata_bytes(request.protocols) - metadata_bytes(member.protocols)
    owner = request.group_instance_id or request.client_id
    ids = texts_bytes(owner, request.group_instance_id, request.client_id, request.client_host)
    return metadata_bytes(request.protocols) + ids


def _growth_of_ids(group: ConsumerGroup, request: ConsumerHeartbeatRequest) -> int:
    member = group.members.get(request.member_id)
    own = (request.subscribed_topic_regex, request.server_assignor)
    texts = (request.instance_id, request.rack_id, request.client_id, request.client_host, *own)
    if member is None:
        return texts_bytes(request.member_id, *texts) if request.member_epoch == JOIN_EPOCH else 0
    own = (member.topic_regex, member.server_assignor)
    before = (member.instance_id, member.rack_id, member.client_id, member.client_host, *own)
    return sum(texts_bytes(new) - texts_bytes(old) for new, old in zip(texts, before, strict=True) if new)
