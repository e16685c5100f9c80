"""ConsumerGroupDescribe (key 69, KIP-848), v0-v1. v1 member types."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from coordinator.group.messages import DescribedConsumer, DescribedConsumerGroup, PartitionsByTopicId
from gateway.requests.call import Call
from gateway.requests.repeated import answer_each
from protocol.kafka.acl import NOT_ASKED, bit_field
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.groups import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1
_GROUP = ConsumerGroupDescribeResponse.DescribedGroup
_ASSIGNMENT = _GROUP.Member.Assignment


async def handle(call: Call[ConsumerGroupDescribeRequest]) -> ConsumerGroupDescribeResponse:
    rows = await answer_each(
        call.request.group_ids,
        lambda group_id: _row(call, _describe(call, group_id)),
        lambda group_id: _GROUP(error_code=ErrorCode.INVALID_REQUEST, group_id=group_id),
    )
    return ConsumerGroupDescribeResponse(groups=rows)


def _describe(call: Call, group_id: str) -> DescribedConsumerGroup:
    return call.cluster.groups.run(group_id, lambda coordinator, now_ms: coordinator.describe_consumer_group(group_id))


def _row(call: Call[ConsumerGroupDescribeRequest], group: DescribedConsumerGroup) -> _GROUP:
    call.count_error(group.error)
    operations = call.context.policy.group_operations(group.group_id)
    asked = group.error is ErrorCode.NONE and call.request.include_authorized_operations
    return _GROUP(
        error_code=group.error,
        error_message=None,
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[_member(member, group.topic_names) for member in group.members],
        authorized_operations=bit_field(operations) if asked else NOT_ASKED,
    )


def _member(member: DescribedConsumer, names: Mapping[bytes, str]) -> _GROUP.Member:
    return _GROUP.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(member.assigned, names),
        target_assignment=_assignment(member.target, names),
        member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


def _assignment(assignment: PartitionsByTopicId, names: Mapping[bytes, str]) -> _ASSIGNMENT:
    row = _ASSIGNMENT.TopicPartitions
    return _ASSIGNMENT(
        topic_partitions=[
            row(topic_id=uuid.UUID(bytes=topic_id), topic_name=names[topic_id], partitions=sorted(numbers))
            for topic_id, numbers in assignment.items()
            if topic_id in names
        ]
    )
