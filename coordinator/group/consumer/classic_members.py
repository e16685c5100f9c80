"""Members of the classic protocol in a consumer group (KIP-848), during the upgrade of an application.

They join, sync and send heartbeats as in a classic group. Their generation is their member epoch, and they get
partitions from the group's target assignment like other members. A member that has to act (give partitions back, take
new ones, or follow a new epoch) gets REBALANCE_IN_PROGRESS, and joins again.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from coordinator.group.consumer.assignment import Assignment, TopicInfo, to_assignment
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.heartbeats import Changes, ConsumerHeartbeats, Downgrade, StepsOfMember, successor
from coordinator.group.consumer.member import JOIN_EPOCH, ClassicProtocols, ConsumerMember, MemberState
from coordinator.group.consumer.member_timers import MemberTimers
from coordinator.group.consumer.messages import Topics
from coordinator.group.consumer.validation import check_names, check_record, check_room
from coordinator.group.messages import (
    MAX_MEMBER_BYTES,
    UNKNOWN_MEMBER_ID,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    JoinResponse,
    LeavingMember,
    RefusedError,
    SyncReply,
    SyncRequest,
    SyncResponse,
    metadata_bytes,
)
from coordinator.group.ports import GROUP_APPEND_ERRORS, NewId
from coordinator.group.records.fields import MAX_STRING_BYTES
from coordinator.group.subscription import (
    CONSUMER_PROTOCOL_TYPE,
    MalformedSubscriptionError,
    PartitionsByTopic,
    read_subscription,
    version_of,
    write_assignment,
)
from protocol.kafka.errors import ErrorCode


class ClassicMembers:
    def __init__(
        self,
        max_size: int,
        timers: MemberTimers,
        topics: Topics,
        heartbeats: ConsumerHeartbeats,
        new_id: NewId,
        downgrade: Downgrade,
    ) -> None:
        self._max_size = max_size
        self._timers = timers
        self._topics = topics
        self._heartbeats = heartbeats
        self._new_id = new_id
        self._downgrade = downgrade

    # --- Joining

    def join(self, group: ConsumerGroup, request: JoinRequest, now_ms: int, reply: JoinReply) -> StepsOfMember:
        """If there are several steps, the group must not change in between."""
        try:
            return (yield from self._join(group, request, now_ms, reply))
        except RefusedError as refused:
            reply(JoinResponse(refused.error, UNKNOWN_MEMBER_ID))
        except MalformedSubscriptionError:
            reply(JoinResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID))
        return UNKNOWN_MEMBER_ID

    def _join(self, group: ConsumerGroup, request: JoinRequest, now_ms: int, reply: JoinReply) -> StepsOfMember:
        """Raises RefusedError and MalformedSubscriptionError."""
        is_long = len(request.member_id.encode()) > MAX_STRING_BYTES
        if is_long or metadata_bytes(request.protocols) > MAX_MEMBER_BYTES:  # no record can hold it
            raise RefusedError(ErrorCode.INVALID_REQUEST)
        member_id = request.member_id or self._new_id()
        check_room(group, member_id, self._max_size)
        if not group.supports_classic(request.protocol_type, request.protocols):
            raise RefusedError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.require_member_id and request.member_id == UNKNOWN_MEMBER_ID:
            reply(JoinResponse(ErrorCode.MEMBER_ID_REQUIRED, member_id))
            return UNKNOWN_MEMBER_ID
        subscription = read_subscription(request.protocols[0][1])
        check_names(group, member_id, subscription.topics)
        changes, had_others = Changes(group), group.has_consumer_members
        before, predecessor = _sender(group, request, member_id)
        after = replace(
            before,
            instance_id=before.instance_id if request.group_instance_id is None else request.group_instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topics=subscription.topics,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            classic=ClassicProtocols(request.session_timeout_ms, tuple(request.protocols)),
        )
        check_record(group, after)
        if predecessor is not None:
            before = self._heartbeats.succeed(changes, predecessor, member_id)
        owned = with_ids(subscription.owned, lambda name: self._find(group, name))
        member = yield from self._heartbeats.follow(changes, before, after, owned, now_ms)
        self._timers.has_joined(group, member, now_ms)
        answer = JoinResponse(
            ErrorCode.NONE, member.member_id, member.epoch, CONSUMER_PROTOCOL_TYPE, request.protocols[0][0]
        )

        def on_durable(error: ErrorCode) -> None:
            failed = JoinResponse(GROUP_APPEND_ERRORS.get(error, error), member.member_id)
            reply(answer if error is ErrorCode.NONE else failed)

        group.writer.write_with_next(changes.records)
        was_last = had_others and not group.has_consumer_members  # it has come back with this protocol

        def stay(now_ms: int) -> None:
            group.writer.write((), on_durable)

        if not was_last or not self._downgrade(group, None, now_ms, on_durable, stay):
            stay(now_ms)
        return member_id

    def _find(self, group: ConsumerGroup, name: str) -> TopicInfo | None:
        """The group's own record counts until the topic was looked up here: a member would otherwise seem to own
        nothing of it, and another one would get what it still reads."""
        return self._topics.find(name) if self._topics.is_known(name) else group.topics.get(name)

    # --- Being a member

    def sync(self, group: ConsumerGroup, request: SyncRequest, now_ms: int, reply: SyncReply) -> None:
        try:
            member = _find(group, request.member_id, request.group_instance_id)
            _check_generation(member, request.generation)
            _check_protocol(member, request)
            if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
                self._timers.await_join(group, member, now_ms)
                raise RefusedError(ErrorCode.REBALANCE_IN_PROGRESS)
        except RefusedError as refused:
            reply(SyncResponse(refused.error))
            return
        self._timers.has_synced(group, member)
        self._timers.restart_session(group, member.member_id, now_ms)
        assignment = encoded_assignment(member, member.assigned, group.topic_names())
        answer = SyncResponse(ErrorCode.NONE, assignment, request.protocol_type, request.protocol_name)

        def on_durable(error: ErrorCode) -> None:
            reply(answer if error is ErrorCode.NONE else SyncResponse(GROUP_APPEND_ERRORS.get(error, error)))

        group.writer.write((), on_durable)

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        try:
            member = _find(group, request.member_id, request.group_instance_id)
            _check_generation(member, request.generation)
        except RefusedError as refused:
            return refused.error
        self._timers.restart_session(group, member.member_id, now_ms)
        if not group.must_rejoin(member):
            return ErrorCode.NONE
        self._timers.await_join(group, member, now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def leave(self, group: ConsumerGroup, leaving: LeavingMember, now_ms: int) -> ErrorCode:
        member_id = leaving.member_id
        if member_id == UNKNOWN_MEMBER_ID:
            member_id = group.static_members.get(leaving.group_instance_id or "", UNKNOWN_MEMBER_ID)
        try:
            member = _find(group, member_id, leaving.group_instance_id)
        except RefusedError as refused:
            return refused.error
        self._heartbeats.expel(group, member, now_ms)
        return ErrorCode.NONE


def _sender(
    group: ConsumerGroup, request: JoinRequest, member_id: str
) -> tuple[ConsumerMember, ConsumerMember | None]:
    """The member as it was before, and the one that it succeeds; a new one is not in the group yet.

    Raises RefusedError."""
    instance_id = request.group_instance_id
    if instance_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id), None
    current_id = group.static_members.get(instance_id)
    if request.member_id == UNKNOWN_MEMBER_ID:
        if current_id is None:
            return ConsumerMember(member_id), None
        predecessor = group.members[current_id]
        return successor(predecessor, member_id), predecessor
    if current_id is None:  # no member gets an instance id later
        raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID)
    if request.member_id != current_id:
        raise RefusedError(ErrorCode.FENCED_INSTANCE_ID)
    return group.members[current_id], None


def _find(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """A member of the classic protocol. Raises RefusedError."""
    if instance_id is not None:
        current_id = group.static_members.get(instance_id)
        if current_id is None:
            raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID)
        if current_id != member_id:
            raise RefusedError(ErrorCode.FENCED_INSTANCE_ID)
    member = group.members.get(member_id)
    if member is None or member.classic is None:
        raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch or member.epoch == JOIN_EPOCH:
        raise RefusedError(ErrorCode.ILLEGAL_GENERATION)


def _check_protocol(member: ConsumerMember, request: SyncRequest) -> None:
    assert member.classic is not None
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
        raise RefusedError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if request.protocol_name not in (None, member.classic.protocols[0][0]):
        raise RefusedError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def with_ids(partitions: PartitionsByTopic, find: Callable[[str], TopicInfo | None]) -> Assignment:
    found = {name: find(name) for name in partitions}
    return to_assignment(
        (topic.topic_id, number)
        for name, numbers in partitions.items()
        if (topic := found[name]) is not None
        for number in numbers
        if number < topic.partition_count
    )


def with_names(assignment: Assignment, names: Mapping[bytes, str]) -> PartitionsByTopic:
    return {names[topic_id]: sorted(numbers) for topic_id, numbers in assignment.items() if topic_id in names}


def encoded_assignment(member: ConsumerMember, assignment: Assignment, names: Mapping[bytes, str]) -> bytes:
    """For a member of the classic protocol, in its own version. `names` are of the topics that the group knows."""
    assert member.classic is not None
    return write_assignment(version_of(member.classic.protocols[0][1]), with_names(assignment, names))
