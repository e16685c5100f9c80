"""Converts groups that have members from one protocol to the other (KIP-848).

A classic group becomes a consumer group when its first member of the consumer protocol joins. Its classic members stay,
and follow the group with the requests of their protocol (`classic_members`). The group becomes a classic group again
when the last member of the consumer protocol has left. Generations continue as epochs, and epochs as generations.
"""

from collections.abc import Mapping

from coordinator.group.classic.group import ClassicGroup
from coordinator.group.classic.member import ClassicMember
from coordinator.group.classic.states import ClassicGroupState
from coordinator.group.consumer.assignment import Assignment, partitions_of, to_assignment, to_value
from coordinator.group.consumer.classic_members import encoded_assignment, with_ids
from coordinator.group.consumer.group import Change, ConsumerGroup
from coordinator.group.consumer.member import ClassicProtocols, ConsumerMember
from coordinator.group.consumer.messages import Topics
from coordinator.group.records.codec import encode_record
from coordinator.group.records.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE, ConsumerOfGroup
from coordinator.log import Log, Record

AnyGroup = ClassicGroup | ConsumerGroup


def to_consumer_group(
    group: ClassicGroup, consumers: Mapping[str, ConsumerOfGroup], log: Log, topics: Topics
) -> ConsumerGroup:
    """Keeps the classic members as they are; its records are written with its next append.

    `consumers` are the group's. Topics that do not exist are assigned to nobody.
    """
    made = ConsumerGroup(group.group_id, log)
    made.offsets = group.offsets
    group_id, epoch = group.group_id, group.generation
    changes = [
        Change(ConsumerGroupMetadataKey(group_id), ConsumerGroupMetadataValue(epoch)),
        Change(ConsumerGroupTargetAssignmentMetadataKey(group_id), ConsumerGroupTargetAssignmentMetadataValue(epoch)),
    ]
    for change in changes:
        made.apply(change)
    records = [*group.tombstones(), *(encode_record(each.key, each.value) for each in changes)]
    owned = _owned(consumers, topics)
    for classic in group.members.values():
        named = consumers[classic.member_id].subscription.topics
        member = _to_consumer(group, classic, named, owned[classic.member_id])
        made.add(member)
        records += _records(group_id, member)
    made.writer.write_with_next(records)
    return made


def _records(group_id: str, member: ConsumerMember) -> list[Record]:
    key, target = (group_id, member.member_id), ConsumerGroupTargetAssignmentMemberValue(to_value(member.assigned))
    return [
        encode_record(ConsumerGroupMemberMetadataKey(*key), member.subscription()),
        encode_record(ConsumerGroupTargetAssignmentMemberKey(*key), target),
        encode_record(ConsumerGroupCurrentMemberAssignmentKey(*key), member.current()),
    ]


def _owned(consumers: Mapping[str, ConsumerOfGroup], topics: Topics) -> dict[str, Assignment]:
    """By member: its assignment, and what else it owned when it joined, as far as nobody else was given it.

    A cooperative member reads this until it has got its new assignment and joins again. If a rebalance was cut short,
    there are no assignments at all.
    """
    assigned = {member_id: with_ids(each.assigned, topics.find) for member_id, each in consumers.items()}
    taken = {partition for assignment in assigned.values() for partition in partitions_of(assignment)}
    for member_id, each in consumers.items():
        claimed = set(partitions_of(with_ids(each.subscription.owned, topics.find))) - taken
        taken |= claimed
        assigned[member_id] = to_assignment({*partitions_of(assigned[member_id]), *claimed})
    return assigned


def _to_consumer(
    group: ClassicGroup, member: ClassicMember, topics: frozenset[str], owned: Assignment
) -> ConsumerMember:
    return ConsumerMember(
        member.member_id,
        member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=topics,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=owned,
        classic=ClassicProtocols(member.session_timeout_ms, tuple(member.protocols)),
    )


def to_classic_group(group: ConsumerGroup, now_ms: int) -> ClassicGroup:
    """The members of the classic protocol, each with the partitions that it may still read; its target may differ."""
    made = ClassicGroup(group.group_id, now_ms)
    made.offsets = group.offsets
    made.generation = group.epoch
    made.state = ClassicGroupState.STABLE
    for member in group.members.values():
        if member.classic is not None:
            made.add(_to_classic(group, member), CONSUMER_PROTOCOL_TYPE)
    made.protocol_name = made.select_protocol()
    made.refresh_subscribed_topics()
    return made


def _to_classic(group: ConsumerGroup, member: ConsumerMember) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.classic.session_timeout_ms,
        member.rebalance_timeout_ms,
        member.classic.protocols,
        encoded_assignment(member, to_assignment(member.held()), group),
    )
