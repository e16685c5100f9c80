"""A consumer group of KIP-848 as data. It changes by its records only, in the same way when serving and when loading.

Epochs: the group epoch grows with every change of members, subscriptions or topics. The target assignment is computed
for an epoch. A member's epoch says how far the member has followed.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from coordinator.group.consumer.assignment import (
    Assignment,
    MemberSpec,
    TopicInfo,
    from_value,
    partitions_of,
)
from coordinator.group.consumer.durable_writer import DurableWriter
from coordinator.group.consumer.holders import Holders
from coordinator.group.consumer.member import JOIN_EPOCH, ConsumerMember, MemberState, described
from coordinator.group.consumer.states import ConsumerGroupState
from coordinator.group.group import Group, GroupSubscription, GroupType
from coordinator.group.messages import (
    CommitRequest,
    DescribedConsumerGroup,
    TransactionalCommitRequest,
)
from coordinator.group.offsets.group_offsets import OffsetExpirationCondition
from coordinator.group.records.codec import encode_record
from coordinator.group.records.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE
from coordinator.group.supported_protocols import SupportedProtocols
from coordinator.log import Log, Record
from coordinator.slices import Steps
from protocol.kafka.errors import ErrorCode

DEFAULT_ASSIGNOR = "uniform"
NAME_BYTES = 150
"""What the name of a topic takes in memory."""
MATCH_BYTES = 60
"""What a topic that an expression matches takes; its name is in memory anyway."""
FEW_TOPICS = 1_000
"""With more, `has_many_topics`."""
FEW_PARTITIONS = 10_000
"""With more, it `is_large`."""
MEMBER_EPOCH_COMMIT_VERSION = 9  # of OffsetCommit


@dataclass(frozen=True)
class Change:
    """One decoded record: a key and a value of `records.consumer_group`; None removes."""

    key: Any
    value: Any | None


class Resolved(NamedTuple):
    """An expression is resolved again when it matches other topics, or rights have changed."""

    matched: AbstractSet[str]
    rights_version: int


class ConsumerGroup(Group):
    type: Literal[GroupType.CONSUMER] = GroupType.CONSUMER
    protocol_type = CONSUMER_PROTOCOL_TYPE

    def __init__(self, group_id: str, log: Log) -> None:
        super().__init__(group_id)
        self.writer = DurableWriter(log)
        self.epoch = 0
        self.topics: dict[str, TopicInfo] = {}  # the subscribed topics that exist
        self.topics_are_current = False  # False: check the topics again at the next heartbeat
        self.check_topics_at_ms = 0  # but not earlier than this
        self.matches: dict[str, frozenset[str]] = {}  # names of topics that match the members' regular expressions
        self.resolved: dict[str, Resolved] = {}  # what `matches` come from, as far as this coordinator resolved them
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}  # group.instance.id -> member id
        self.target_epoch = 0
        self.target: dict[str, Assignment] = {}
        self.is_dead = False
        self.holders = Holders()
        self._partition_count = 0  # of `topics`
        self._supported = SupportedProtocols()  # by the members of the classic protocol
        self._named: Counter[frozenset[str]] = Counter()
        """The topics that members name, with the number of these members: most of them name the same ones."""

    # --- Changes

    def apply(self, change: Change) -> None:
        """ValueError if Kafka could not have written the record."""
        key, value = change.key, change.value
        match key:
            case ConsumerGroupMetadataKey():
                self.epoch = 0 if value is None else value.epoch
            case ConsumerGroupPartitionMetadataKey():
                topics = () if value is None else value.topics
                self.topics = {topic.topic_name: TopicInfo(topic.topic_id, topic.num_partitions) for topic in topics}
                self._partition_count = sum(topic.num_partitions for topic in topics)
            case ConsumerGroupRegularExpressionKey():
                self.matches.pop(key.regex, None)
                if value is None:
                    self.resolved.pop(key.regex, None)
                else:
                    self.matches[key.regex] = frozenset(value.topics)
            case ConsumerGroupMemberMetadataKey():
                self._apply_member(key.member_id, value)
            case ConsumerGroupTargetAssignmentMetadataKey():
                self.target_epoch = 0 if value is None else value.assignment_epoch
            case ConsumerGroupTargetAssignmentMemberKey():
                self.target.pop(key.member_id, None)
                if value is not None:
                    self.target[key.member_id] = from_value(value.topic_partitions)
            case ConsumerGroupCurrentMemberAssignmentKey():
                self._apply_current(key.member_id, value)

    def add(self, member: ConsumerMember) -> None:
        """Add a member that owns its target assignment, as its records would."""
        self.members[member.member_id] = member
        self._named[member.topics] += 1
        if member.classic is not None:
            self._supported.add(member.classic.protocols)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.target[member.member_id] = member.assigned
        self.holders.hold(member)

    def _apply_member(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        before = self.members.get(member_id)
        if before is not None and self.static_members.get(before.instance_id or "") == member_id:
            del self.static_members[before.instance_id or ""]
        if before is not None:
            self._unname(before.topics)
        if before is not None and before.classic is not None:
            self._supported.remove(before.classic.protocols)
        if value is None:
            if before is not None:
                self.holders.release(before)
            self.members.pop(member_id, None)
            return
        member = (before or ConsumerMember(member_id)).with_subscription(value)
        member = self.members[member_id] = self._with_shared_topics(member)
        if member.classic is not None:
            self._supported.add(member.classic.protocols)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member_id

    def _apply_current(self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> None:
        known = self.members.get(member_id)
        if known is not None:
            self.holders.release(known)
        member = known or ConsumerMember(member_id)
        if value is not None:
            if known is None:
                self._named[member.topics] += 1
            self.members[member_id] = member = member.with_current(value)
            self.holders.hold(member)
        elif member_id in self.members:
            self.members[member_id] = replace(member, epoch=JOIN_EPOCH, assigned={}, to_revoke={})

    def _with_shared_topics(self, member: ConsumerMember) -> ConsumerMember:
        """Equal sets of topics are kept once."""
        shared = next((topics for topics in self._named if topics == member.topics), member.topics)
        self._named[shared] += 1
        return member if shared is member.topics else replace(member, topics=shared)

    def _unname(self, topics: frozenset[str]) -> None:
        self._named[topics] -= 1
        if not self._named[topics]:
            del self._named[topics]

    # --- Derived from the members

    @property
    def state(self) -> ConsumerGroupState:
        if self.is_dead:
            return ConsumerGroupState.DEAD
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if not all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return ConsumerGroupState.RECONCILING
        return ConsumerGroupState.STABLE

    @property
    def metadata_bytes(self) -> int:
        of_members = sum(member.memory_bytes for member in self.members.values())
        return self.named_count * NAME_BYTES + self.matched_bytes + of_members

    @property
    def matched_bytes(self) -> int:
        """Of what expressions match for members who may not describe all of it. The rest is shared by all groups."""
        own = [
            found
            for regex, found in self.matches.items()
            if (resolved := self.resolved.get(regex)) is not None and found is not resolved.matched
        ]
        return MATCH_BYTES * sum(map(len, own))

    @property
    def named_count(self) -> int:
        """The number of topics that members name. What several members name alike counts once."""
        return sum(map(len, self._named))

    @property
    def is_large(self) -> bool:
        """A change of a member is so much work that it is done in slices."""
        return self.has_many_topics or self._partition_count > FEW_PARTITIONS

    @property
    def has_many_topics(self) -> bool:
        """Each change of a member is much work, and each look at the topics, too."""
        return self.topic_count > FEW_TOPICS

    @property
    def topic_count(self) -> int:
        """The number of topics that members name, or that their expressions match."""
        return self.named_count + sum(map(len, self.matches.values()))

    def named_growth(self, topics: frozenset[str], member_id: str) -> int:
        """How many more topics are named once the member names these instead of its own."""
        if topics in self._named:
            return 0
        member = self.members.get(member_id)
        is_sole = member is not None and self._named[member.topics] == 1
        return len(topics) - (len(member.topics) if member is not None and is_sole else 0)

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def admits_classic_members(self) -> bool:
        """An empty group is replaced by a classic one instead."""
        return bool(self.members)

    def subscription(self) -> GroupSubscription:
        return GroupSubscription([*self._named, *self.matches.values()], self.regexes())

    def subscribed_names(self) -> frozenset[str]:
        """Topics that the members read, including topics that do not exist."""
        return frozenset[str]().union(*self._named, *self.matches.values())

    def regexes(self) -> frozenset[str]:
        return frozenset(member.topic_regex for member in self.members.values() if member.topic_regex)

    def topics_changed(self, names: Collection[str]) -> None:
        """They are checked again at the next heartbeat."""
        if self.matches or not all(named.isdisjoint(names) for named in self._named):
            self.topics_are_current, self.check_topics_at_ms = False, 0

    def assignor(self) -> str:
        """The assignor that most members ask for."""
        votes = Counter(m.server_assignor for m in self.members.values() if m.server_assignor is not None)
        return votes.most_common(1)[0][0] if votes else DEFAULT_ASSIGNOR

    def member_specs(self) -> list[MemberSpec]:
        subscriptions = {(member.topics, member.topic_regex) for member in self.members.values()}
        topic_ids = {each: self._topic_ids(*each) for each in subscriptions}
        return [
            MemberSpec(
                member.member_id,
                member.instance_id,
                topic_ids[member.topics, member.topic_regex],
                self.target.get(member.member_id, {}),
            )
            for member in self.members.values()
        ]

    def _topic_ids(self, names: frozenset[str], regex: str | None) -> frozenset[bytes]:
        """The topics of a subscription that exist."""
        names |= self.matches.get(regex or "", frozenset())
        return frozenset(self.topics[name].topic_id for name in names if name in self.topics)

    # --- Members of the classic protocol

    def supports_classic(self, protocol_type: str, protocols: Sequence[tuple[str, bytes]]) -> bool:
        """Whether a classic member with these protocols could be a member of this group."""
        return protocol_type == CONSUMER_PROTOCOL_TYPE and self._supported.have_common(protocols)

    def must_rejoin(self, member: ConsumerMember) -> bool:
        """The member is behind, has partitions to give back, or could get partitions that it waits for."""
        if member.epoch < self.epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
            return True
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        missing = set(partitions_of(self.target.get(member.member_id, {}))) - set(partitions_of(member.assigned))
        return not any(map(self.holders.is_taken, missing))

    @property
    def has_consumer_members(self) -> bool:
        """Members of the consumer protocol."""
        return len(self.members) > self._supported.member_count

    def only_classic_without(self, member_id: str) -> bool:
        """Whether there are other members, all of the classic protocol, so that this is the last one of the consumer
        protocol."""
        leaving = self.members.get(member_id)
        is_consumer = leaving is not None and leaving.classic is None
        return is_consumer and len(self.members) - 1 == self._supported.member_count > 0

    # --- Offsets

    def offset_commit_error(self, request: CommitRequest) -> ErrorCode:
        if request.generation < 0 and not self.members:
            return ErrorCode.NONE
        error = self._epoch_error(request.member_id, request.generation)
        member = self.members.get(request.member_id)
        if member is not None and member.classic is None and request.version < MEMBER_EPOCH_COMMIT_VERSION:
            return ErrorCode.UNSUPPORTED_VERSION
        return error

    def transactional_commit_error(self, request: TransactionalCommitRequest) -> ErrorCode:
        if request.generation < 0 and not self.members:
            return ErrorCode.NONE
        error = self._epoch_error(request.member_id, request.generation)
        return ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.STALE_MEMBER_EPOCH else error

    def offset_fetch_error(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        return self._epoch_error(member_id or "", member_epoch)

    def _epoch_error(self, member_id: str, member_epoch: int) -> ErrorCode:
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.epoch == member_epoch:
            return ErrorCode.NONE
        return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION

    def is_subscribed_to_topic(self, topic: str) -> bool:
        return any(topic in names for names in (*self._named, *self.matches.values()))

    def offset_delete_error(self) -> ErrorCode:
        return ErrorCode.NONE

    def offset_expiration_condition(self) -> OffsetExpirationCondition:
        return OffsetExpirationCondition(subscribed_topics=self.subscribed_names())

    # --- Answers and records

    def answer_all(self, error: ErrorCode) -> Steps:
        """No request waits for other members, only for the log."""
        yield from ()

    def describe_consumer_group(self) -> DescribedConsumerGroup:
        members = [described(member, self.target.get(member.member_id, {})) for member in self.members.values()]
        return DescribedConsumerGroup(
            ErrorCode.NONE, self.group_id, self.state.value, self.epoch, self.target_epoch, self.assignor(), members,
            self.topic_names(),
        )  # fmt: skip

    def topic_names(self) -> dict[bytes, str]:
        return {topic.topic_id: name for name, topic in self.topics.items()}

    def tombstones(self) -> Iterator[Record]:
        """Of all records of the group, also those that the log does not have yet. That of the group itself is the last
        one."""
        written = self.writer.keys
        for member_id in self.members:
            for key in (
                ConsumerGroupCurrentMemberAssignmentKey,
                ConsumerGroupTargetAssignmentMemberKey,
                ConsumerGroupMemberMetadataKey,
            ):
                gone = encode_record(key(self.group_id, member_id), None)
                written.discard(gone.key)
                yield gone
        own = [
            *(ConsumerGroupRegularExpressionKey(self.group_id, regex) for regex in self.matches),
            ConsumerGroupTargetAssignmentMetadataKey(self.group_id),
            ConsumerGroupPartitionMetadataKey(self.group_id),
            ConsumerGroupMetadataKey(self.group_id),
        ]
        last = [encode_record(each, None) for each in own]
        for each in sorted(written - {record.key for record in last}):
            yield Record(each, None)
        yield from last

    def die(self, now_ms: int) -> None:
        self.is_dead = True
        self.writer.close()
