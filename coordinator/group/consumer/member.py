"""A member of a consumer group, and how its partitions follow the target assignment (KIP-848's reconciliation).

A member gives back first: while it still reports partitions to be revoked, it stays in its epoch. Then it moves to the
target's epoch and gets the new partitions of its target, as far as their former owners have revoked them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

from coordinator.group.consumer.assignment import (
    Assignment,
    TopicIdPartition,
    from_value,
    partitions_of,
    to_value,
)
from coordinator.group.messages import DescribedConsumer, metadata_bytes, texts_bytes
from coordinator.group.records.consumer_group import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
)
from coordinator.group.records.fields import MAX_CHARACTER_BYTES

FIELD_BYTES = 5
"""The longest length before a text or bytes, and more than any number has."""
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2


class MemberState(IntEnum):
    """As stored in the member's current assignment record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # must give partitions back
    UNRELEASED_PARTITIONS = 2  # waits for partitions that others have not given back


@dataclass(frozen=True)
class ClassicProtocols:
    """The JoinGroup fields of a member of the classic protocol; `protocols` are (name, metadata), preferred first."""

    session_timeout_ms: int
    protocols: Sequence[tuple[str, bytes]]

    @classmethod
    def from_value(cls, value: ClassicMemberMetadata | None) -> "ClassicProtocols | None":
        if value is None:
            return None
        return cls(value.session_timeout_ms, tuple((each.name, each.metadata) for each in value.protocols))

    def value(self) -> ClassicMemberMetadata:
        return ClassicMemberMetadata(
            self.session_timeout_ms, [ClassicProtocol(name, data) for name, data in self.protocols]
        )


@dataclass(frozen=True)
class ConsumerMember:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    topic_regex: str | None = ""  # what Kafka 3.9 writes when there is none
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    epoch: int = JOIN_EPOCH
    previous_epoch: int = LEAVE_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=dict)
    to_revoke: Assignment = field(default_factory=dict)
    classic: ClassicProtocols | None = None
    """None: the member uses the consumer protocol."""

    def with_subscription(self, value: ConsumerGroupMemberMetadataValue) -> "ConsumerMember":
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
            topic_regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=ClassicProtocols.from_value(value.classic),
        )

    def subscription(self) -> ConsumerGroupMemberMetadataValue:
        return ConsumerGroupMemberMetadataValue(
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            sorted(self.topics),
            self.topic_regex,
            self.rebalance_timeout_ms,
            self.server_assignor,
            None if self.classic is None else self.classic.value(),
        )

    @property
    def most_record_bytes(self) -> int:
        """An upper bound for the record of its subscription, without the group's id."""
        ids = (self.member_id, self.instance_id, self.rack_id, self.client_id, self.client_host)
        texts = (*ids, self.topic_regex, self.server_assignor, *self.topics)
        protocols = () if self.classic is None else self.classic.protocols
        return sum(
            (
                FIELD_BYTES * (16 + len(texts) + 3 * len(protocols)),
                MAX_CHARACTER_BYTES * sum(len(text) for text in texts if text),
                sum(MAX_CHARACTER_BYTES * len(name) + len(metadata) for name, metadata in protocols),
            )
        )

    @property
    def memory_bytes(self) -> int:
        """Of what the client sent besides the names of topics, which members share."""
        ids = texts_bytes(self.member_id, self.instance_id, self.rack_id, self.client_id, self.client_host)
        protocols = () if self.classic is None else self.classic.protocols
        return ids + texts_bytes(self.topic_regex, self.server_assignor) + metadata_bytes(protocols)

    def with_current(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> "ConsumerMember":
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=from_value(value.assigned_partitions),
            to_revoke=from_value(value.partitions_pending_revocation),
        )

    def current(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        return ConsumerGroupCurrentMemberAssignmentValue(
            self.epoch, self.previous_epoch, self.state, to_value(self.assigned), to_value(self.to_revoke)
        )

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def held(self) -> set[TopicIdPartition]:
        """All partitions that no other member may read yet."""
        return {*partitions_of(self.assigned), *partitions_of(self.to_revoke)}


def described(member: ConsumerMember, target: Assignment) -> DescribedConsumer:
    return DescribedConsumer(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        member.topics,
        member.topic_regex,
        member.assigned,
        target,
        member.classic is not None,
    )


def reconcile(
    member: ConsumerMember,
    target: Assignment,
    target_epoch: int,
    reported: Assignment | None,
    is_taken: Callable[[TopicIdPartition], bool],
) -> ConsumerMember:
    """The member's next step towards its target; the same member if it has to wait.

    `reported` is what the client says it owns, None if it does not say; `is_taken`: whether any member holds a
    partition.
    """
    if member.is_reconciled_to(target_epoch):
        return member
    epoch = member.epoch
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _still_owns(reported, member.to_revoke):
            return member
        epoch += 1
    to_revoke = _without(member.assigned, target)
    if to_revoke and _still_owns(reported, to_revoke):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            epoch=epoch,
            previous_epoch=member.epoch,
            assigned=_without(member.assigned, to_revoke),
            to_revoke=to_revoke,
        )
    unreleased = {
        topic_id: held
        for topic_id, numbers in _without(target, member.assigned).items()
        if (held := {number for number in numbers if is_taken((topic_id, number))})
    }
    return replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE,
        epoch=target_epoch,
        previous_epoch=member.epoch,
        assigned=_without(target, unreleased),
        to_revoke={},
    )


def _without(assignment: Assignment, other: Assignment) -> Assignment:
    return {
        topic_id: left
        for topic_id, numbers in assignment.items()
        if (left := numbers - other[topic_id] if topic_id in other else numbers)
    }


def _still_owns(reported: Assignment | None, partitions: Assignment) -> bool:
    if reported is None:
        return True
    return any(reported.get(topic_id, set()) & numbers for topic_id, numbers in partitions.items())
