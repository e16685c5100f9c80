"""ConsumerGroupDescribe (key 69, KIP-848), v0-v1. v1 member types."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import partial

from coordinator.group.messages import DescribedConsumer, DescribedConsumerGroup, PartitionsByTopicId
from gateway.fan_out import sliced
from gateway.requests.call import Call
from gateway.requests.repeated import LargeRows, answer_each
from protocol.kafka.acl import NOT_ASKED, bit_field
from protocol.kafka.buffers import SharedItems
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.groups import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1
_GROUP = ConsumerGroupDescribeResponse.DescribedGroup
_ASSIGNMENT = _GROUP.Member.Assignment
_ROW_BYTES, _MEMBER_BYTES, _TOPIC_BYTES, _NUMBER_BYTES = 64, 32, 24, 4
"""About their sizes in the answer, without ids and names."""
_TOO_LARGE = "The description of the group is too large for an answer."


async def handle(call: Call[ConsumerGroupDescribeRequest]) -> ConsumerGroupDescribeResponse:
    found = await answer_each(
        call.request.group_ids,
        partial(_describe, call),
        partial(_failed, call, ErrorCode.INVALID_REQUEST, None),
        LargeRows(
            _bytes_of,
            partial(_failed, call, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None),
            partial(_failed, call, ErrorCode.INVALID_REQUEST, _TOO_LARGE),
        ),
    )
    rows: dict[int, _GROUP] = {}
    async for group in sliced(found):  # a group that is named again is there again
        if id(group) not in rows:
            rows[id(group)] = group if isinstance(group, _GROUP) else await _row(call, group)
    return ConsumerGroupDescribeResponse(groups=[rows[id(group)] async for group in sliced(found)])


def _describe(call: Call, group_id: str) -> DescribedConsumerGroup | _GROUP:
    group = call.cluster.groups.run(group_id, lambda coordinator, now_ms: coordinator.describe_consumer_group(group_id))
    call.count_error(group.error)
    return group


def _failed(call: Call, error: ErrorCode, text: str | None, group_id: str) -> DescribedConsumerGroup | _GROUP:
    call.count_error(error)
    return _GROUP(error_code=error, error_message=text, group_id=group_id)


def _bytes_of(group: DescribedConsumerGroup | _GROUP) -> int:
    if isinstance(group, _GROUP):
        return _ROW_BYTES
    subscriptions = {id(each.topics): each.topics for each in group.members}
    names_bytes = {key: sum(len(name.encode()) + 2 for name in names) for key, names in subscriptions.items()}
    members = [_bytes_of_member(each, group.topic_names) + names_bytes[id(each.topics)] for each in group.members]
    return _ROW_BYTES + len(group.group_id) + sum(members)


def _bytes_of_member(member: DescribedConsumer, names: Mapping[bytes, str]) -> int:
    """Without the names of its subscription."""
    texts = (
        member.member_id, member.instance_id, member.rack_id, member.client_id, member.client_host, member.topic_regex,
    )  # fmt: skip
    assignments = _bytes_of_assignment(member.assigned, names) + _bytes_of_assignment(member.target, names)
    return _MEMBER_BYTES + sum(len(each or "") for each in texts) + assignments


def _bytes_of_assignment(assignment: PartitionsByTopicId, names: Mapping[bytes, str]) -> int:
    return sum(
        _TOPIC_BYTES + len(names.get(topic_id, "")) + _NUMBER_BYTES * len(numbers)
        for topic_id, numbers in assignment.items()
    )


async def _row(call: Call[ConsumerGroupDescribeRequest], group: DescribedConsumerGroup) -> _GROUP:
    """A group may have tens of thousands of topics."""
    operations = call.context.policy.group_operations(group.group_id)
    distinct = {member.topics for member in group.members}
    subscriptions = {topics: SharedItems(sorted(topics)) async for topics in sliced(distinct)}
    asked = group.error is ErrorCode.NONE and call.request.include_authorized_operations
    return _GROUP(
        error_code=group.error,
        error_message=None,
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[await _member(member, subscriptions, group.topic_names) async for member in sliced(group.members)],
        authorized_operations=bit_field(operations) if asked else NOT_ASKED,
    )


async def _member(
    member: DescribedConsumer, subscriptions: Mapping[AbstractSet[str], SharedItems[str]], names: Mapping[bytes, str]
) -> _GROUP.Member:
    """`subscriptions` has one list for all members whose subscriptions are equal."""
    return _GROUP.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=subscriptions[member.topics],
        subscribed_topic_regex=member.topic_regex,
        assignment=await _assignment(member.assigned, names),
        target_assignment=await _assignment(member.target, names),
        member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


async def _assignment(assignment: PartitionsByTopicId, names: Mapping[bytes, str]) -> _ASSIGNMENT:
    row = _ASSIGNMENT.TopicPartitions
    return _ASSIGNMENT(
        topic_partitions=[
            row(topic_id=uuid.UUID(bytes=topic_id), topic_name=names[topic_id], partitions=sorted(numbers))
            async for topic_id, numbers in sliced(assignment.items())
            if topic_id in names
        ]
    )
