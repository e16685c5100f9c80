"""ConsumerGroupHeartbeat (KIP-848): the one request to join, to follow the target assignment, and to leave.

A heartbeat is processed in steps, and each step sees the changes of the steps before: the member and its subscription,
the group epoch, the target assignment, the member's next step towards it. The response is sent when all is durable.
"""

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

from coordinator.group.consumer.assignment import CHANGE_SLICES, Assignment, Assignor, TopicInfo, to_value
from coordinator.group.consumer.group import DEFAULT_ASSIGNOR, Change, ConsumerGroup, Resolved
from coordinator.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMember,
    reconcile,
)
from coordinator.group.consumer.member_timers import MemberTimers
from coordinator.group.consumer.messages import (
    ConsumerHeartbeatReply,
    ConsumerHeartbeatRequest,
    ConsumerHeartbeatResponse,
    Rights,
    Topics,
)
from coordinator.group.consumer.range import assign_range
from coordinator.group.consumer.uniform import assign_uniform
from coordinator.group.consumer.validation import (
    check_epoch,
    check_names,
    check_record,
    check_regex,
    check_room,
    find_member,
    leaves,
    released_predecessor,
)
from coordinator.group.ports import CONSUMER_APPEND_ERRORS, NewId
from coordinator.group.records.codec import encode_record
from coordinator.group.records.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicMetadata,
)
from coordinator.log import Record
from coordinator.slices import SliceCounter, Steps, last_of
from protocol.kafka.errors import ErrorCode

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}

Downgrade = Callable[
    [ConsumerGroup, ConsumerMember | None, int, Callable[[ErrorCode], None], Callable[[int], None]], bool
]
"""(group, leaving member, now, on durable, otherwise): whether the group becomes a classic one without the member. That
of a large group takes some time; if it fails, `otherwise` is called with the current time."""

StepsOfMember = Generator[None, None, str]
"""The steps of a member's request. The result is its id; empty if it was refused."""

MANY_TOPICS = 1_000
"""A change of the target of a member with more is two steps."""

TOPIC_UNITS = 3
"""To record a topic of a member's target."""

CHECK_AGAIN_MS = 500
"""A group that names many topics looks at most this often whether unknown ones exist by now."""

RESOLVED_AT_ONCE = 20_000
"""A heartbeat resolves no more expressions when those that it has resolved match so many topics; a single one may match
more. The next heartbeats resolve the others."""


class Changes:
    """Changes of one group, in force at once; their records are not written yet."""

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group
        self.records: list[Record] = []

    def make(self, key: Any, value: Any | None) -> None:
        last_of(self.make_in_steps(key, value))

    def make_in_steps(self, key: Any, value: Any | None) -> Steps:
        """For what may have tens of thousands of topics."""
        self.records.append(encode_record(key, value))
        yield
        self.group.apply(Change(key, value))


class ConsumerHeartbeats:
    def __init__(
        self, max_size: int, timers: MemberTimers, topics: Topics, new_id: NewId, downgrade: Downgrade
    ) -> None:
        self._max_size = max_size
        self._timers = timers
        self._topics = topics
        self._new_id = new_id
        self._downgrade = downgrade

    def heartbeat(
        self, group: ConsumerGroup, request: ConsumerHeartbeatRequest, now_ms: int, reply: ConsumerHeartbeatReply
    ) -> StepsOfMember:
        """The request was validated. The first step raises RefusedError. If there are others, the group must not change
        in between."""
        changes = Changes(group)

        def on_durable(error: ErrorCode) -> None:
            reply(ConsumerHeartbeatResponse(CONSUMER_APPEND_ERRORS.get(error, error)) if error else response)

        if leaves(request):
            member = find_member(group, request)
            response = ConsumerHeartbeatResponse(ErrorCode.NONE, None, request.member_id, request.member_epoch)

            def leave(now_ms: int) -> None:
                self._leave(changes, member, request.member_epoch, now_ms)
                group.writer.write(changes.records, on_durable)

            stays = request.member_epoch == LEAVE_STATIC_EPOCH
            if stays or not self._downgrade(group, member, now_ms, on_durable, leave):
                leave(now_ms)
        else:
            response = yield from self._follow(changes, request, now_ms)
            group.writer.write(changes.records, on_durable)
        return response.member_id or ""

    # --- Joining and following

    def _follow(
        self, changes: Changes, request: ConsumerHeartbeatRequest, now_ms: int
    ) -> Generator[None, None, ConsumerHeartbeatResponse]:
        group = changes.group
        before, predecessor = self._sender(group, request)
        after = _with_subscription(before, request)
        if after != before or predecessor is not None:
            check_record(group, after)
        if predecessor is not None:
            before = self.succeed(changes, predecessor, before.member_id)
        member = yield from self.follow(changes, before, after, request.owned, now_ms, request.rights)
        is_full = request.member_epoch == JOIN_EPOCH or (
            request.rebalance_timeout_ms != -1 and request.has_subscription and request.owned is not None
        )
        return ConsumerHeartbeatResponse(
            ErrorCode.NONE,
            None,
            member.member_id,
            member.epoch,
            self._timers.times(group).heartbeat_interval_ms,
            member.assigned if is_full or member.assigned != before.assigned else None,
        )

    def follow(
        self,
        changes: Changes,
        before: ConsumerMember,
        after: ConsumerMember,
        reported: Assignment | None,
        now_ms: int,
        rights: Rights | None = None,
    ) -> Generator[None, None, ConsumerMember]:
        """The member with its new subscription, one step closer to its target. `reported` is what the client says it
        owns. Without `rights`, regular expressions of other members keep the topics that they matched."""
        group, member_id = changes.group, before.member_id
        if after != before:
            changes.make(ConsumerGroupMemberMetadataKey(group.group_id, member_id), after.subscription())
        is_new = (after.topics, after.topic_regex) != (before.topics, before.topic_regex)
        if after.topic_regex != before.topic_regex:  # the rights of this member count
            group.resolved.pop(after.topic_regex or "", None)
        yield from self._update_epoch(changes, is_new, rights, now_ms)
        if group.epoch > group.target_epoch:
            yield
            yield from self._update_target(changes)
            yield
        yield from self._reconcile(changes, group.members[member_id], reported, now_ms)
        self._timers.restart_session(group, member_id, now_ms)
        return group.members[member_id]

    def _sender(
        self, group: ConsumerGroup, request: ConsumerHeartbeatRequest
    ) -> tuple[ConsumerMember, ConsumerMember | None]:
        """The member as it was, and the one that it succeeds; a new one is not in the group yet."""
        check_room(group, request.member_id, self._max_size)
        if request.subscribed_topic_names is not None:
            check_names(group, request.member_id, frozenset(request.subscribed_topic_names))
        if request.subscribed_topic_regex:
            matched = self._topics.matching(request.subscribed_topic_regex) or ()
            check_regex(
                group, request.member_id, request.subscribed_topic_regex, matched, request.rights.may_describe
            )
        if request.member_epoch != JOIN_EPOCH:
            member = find_member(group, request)
            check_epoch(member, request)
            return member, None
        member_id = request.member_id or self._new_id()
        if request.instance_id is not None:
            predecessor = released_predecessor(group, request)
            return successor(predecessor, member_id) if predecessor else ConsumerMember(member_id), predecessor
        known = group.members.get(member_id)
        if known is not None:
            check_epoch(known, request)
        return known or ConsumerMember(member_id), None

    def succeed(self, changes: Changes, predecessor: ConsumerMember, member_id: str) -> ConsumerMember:
        """The successor gets subscription, target and partitions."""
        group = changes.group
        target = group.target.get(predecessor.member_id, {})
        self._remove(changes, predecessor)
        member = successor(predecessor, member_id)
        changes.make(ConsumerGroupMemberMetadataKey(group.group_id, member_id), member.subscription())
        changes.make(
            ConsumerGroupTargetAssignmentMemberKey(group.group_id, member_id),
            ConsumerGroupTargetAssignmentMemberValue(to_value(target)),
        )
        changes.make(ConsumerGroupCurrentMemberAssignmentKey(group.group_id, member_id), member.current())
        return group.members[member_id]

    def _update_epoch(self, changes: Changes, is_new: bool, rights: Rights | None, now_ms: int) -> Steps:
        group = changes.group
        is_new |= group.epoch == 0  # an epoch that no member can be in
        if not is_new and (group.topics_are_current or now_ms < group.check_topics_at_ms):
            return
        yield
        is_new |= yield from self._update_topics(changes, rights)
        if not group.topics_are_current and group.has_many_topics:
            group.check_topics_at_ms = now_ms + CHECK_AGAIN_MS
        if is_new:
            changes.make(ConsumerGroupMetadataKey(group.group_id), ConsumerGroupMetadataValue(group.epoch + 1))

    def _update_topics(self, changes: Changes, rights: Rights | None) -> Generator[None, None, bool]:
        """Unknown topics stay as they were, and are looked up at the next heartbeat again."""
        group, counter = changes.group, SliceCounter(CHANGE_SLICES)
        before = dict(group.matches)
        group.topics_are_current = True  # unless some change between two steps
        is_current = yield from self._update_matches(changes, rights)
        is_new = before != group.matches
        topics: dict[str, TopicInfo] = {}
        for name in sorted(group.subscribed_names()):
            is_known = self._topics.is_known(name)
            is_current &= is_known
            topic = self._topics.find(name) if is_known else group.topics.get(name)
            if topic is not None:
                topics[name] = topic
            if counter.is_full(1):
                yield
        group.topics_are_current &= is_current
        if topics == group.topics:
            return is_new
        values = [TopicMetadata(topic.topic_id, name, topic.partition_count) for name, topic in topics.items()]
        yield
        yield from changes.make_in_steps(
            ConsumerGroupPartitionMetadataKey(group.group_id), ConsumerGroupPartitionMetadataValue(values)
        )
        return True

    def _update_matches(self, changes: Changes, rights: Rights | None) -> Generator[None, None, bool]:
        """Returns whether all expressions are up to date; the others keep what they matched."""
        group, are_all, left = changes.group, True, RESOLVED_AT_ONCE
        regexes = group.regexes()
        for regex in group.matches.keys() - regexes:
            changes.make(ConsumerGroupRegularExpressionKey(group.group_id, regex), None)
        for regex in sorted(regexes, key=lambda regex: (regex in group.resolved, regex)):
            matched = None if rights is None else self._topics.matching(regex)
            if matched is None or rights is None:
                are_all = False
            elif group.resolved.get(regex) != (resolved := Resolved(matched, rights.version)):
                if left <= 0:
                    are_all = False
                    continue
                left -= len(matched)
                found = frozenset(filter(rights.may_describe, matched))
                _resolve(changes, regex, frozenset(matched) if len(found) == len(matched) else found)
                group.resolved[regex] = resolved
                yield
        return are_all

    def _update_target(self, changes: Changes) -> Steps:
        group, counter = changes.group, SliceCounter(CHANGE_SLICES)
        assign = ASSIGNORS.get(group.assignor(), ASSIGNORS[DEFAULT_ASSIGNOR])
        counts = {topic.topic_id: topic.partition_count for topic in group.topics.values()}
        specs = group.member_specs()
        yield
        assigned = yield from assign(specs, counts)
        for member_id, assignment in assigned.items():
            if group.target.get(member_id) != assignment:
                key = ConsumerGroupTargetAssignmentMemberKey(group.group_id, member_id)
                change = changes.make_in_steps(key, ConsumerGroupTargetAssignmentMemberValue(to_value(assignment)))
                if len(assignment) > MANY_TOPICS:
                    yield from change
                else:
                    last_of(change)
            if counter.is_full(1 + TOPIC_UNITS * len(assignment)):
                yield
        changes.make(
            ConsumerGroupTargetAssignmentMetadataKey(group.group_id),
            ConsumerGroupTargetAssignmentMetadataValue(group.epoch),
        )

    def _reconcile(self, changes: Changes, member: ConsumerMember, reported: Assignment | None, now_ms: int) -> Steps:
        group = changes.group
        target = group.target.get(member.member_id, {})
        after = reconcile(member, target, group.target_epoch, reported, group.holders.is_taken)
        if after != member:
            yield
            yield from changes.make_in_steps(
                ConsumerGroupCurrentMemberAssignmentKey(group.group_id, member.member_id), after.current()
            )
            self._timers.await_revocation(group, after, now_ms)

    # --- Leaving

    def _leave(self, changes: Changes, member: ConsumerMember, epoch: int, now_ms: int) -> None:
        if epoch == LEAVE_STATIC_EPOCH:
            away = replace(member, epoch=LEAVE_STATIC_EPOCH, to_revoke={})
            changes.make(
                ConsumerGroupCurrentMemberAssignmentKey(changes.group.group_id, member.member_id), away.current()
            )
            self._timers.await_revocation(changes.group, away, now_ms)
        else:
            self._fence(changes, member)

    def expel(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        def fence(now_ms: int) -> None:
            changes = Changes(group)
            self._fence(changes, member)
            group.writer.write(changes.records, lambda error: None)

        if not self._downgrade(group, member, now_ms, lambda error: None, fence):
            fence(now_ms)

    def _fence(self, changes: Changes, member: ConsumerMember) -> None:
        """The other members get its partitions with the next target, which the next heartbeat computes. It also looks
        at the topics, if they are many: once, however many members have left together."""
        group = changes.group
        self._remove(changes, member)
        if group.members and group.has_many_topics:
            group.topics_are_current, group.check_topics_at_ms = False, 0
        else:
            last_of(self._update_topics(changes, None))
        changes.make(
            ConsumerGroupMetadataKey(changes.group.group_id), ConsumerGroupMetadataValue(changes.group.epoch + 1)
        )

    def _remove(self, changes: Changes, member: ConsumerMember) -> None:
        group_id = changes.group.group_id
        for key_class in (
            ConsumerGroupCurrentMemberAssignmentKey,
            ConsumerGroupTargetAssignmentMemberKey,
            ConsumerGroupMemberMetadataKey,
        ):
            changes.make(key_class(group_id, member.member_id), None)
        self._timers.cancel(changes.group, member.member_id)


def _resolve(changes: Changes, regex: str, found: frozenset[str]) -> None:
    if found != changes.group.matches.get(regex):
        key = ConsumerGroupRegularExpressionKey(changes.group.group_id, regex)
        changes.make(key, ConsumerGroupRegularExpressionValue(sorted(found)))
    changes.group.matches[regex] = found  # the same as before, but shared with others where it can be


def successor(predecessor: ConsumerMember, member_id: str) -> ConsumerMember:
    """It starts at epoch 0."""
    return replace(predecessor, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)


def _with_subscription(before: ConsumerMember, request: ConsumerHeartbeatRequest) -> ConsumerMember:
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        before,
        instance_id=request.instance_id or before.instance_id,
        rack_id=request.rack_id or before.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=before.topics if names is None else frozenset(names),
        topic_regex=before.topic_regex if regex is None else regex,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=request.server_assignor or before.server_assignor,
        classic=None,
    )
