"""ConsumerGroupHeartbeat (key 68, KIP-848), v0-v1.

One call joins, follows the assignment and leaves. v1 regular expressions, which the server resolves, and member ids of
the client's choice.
"""

from __future__ import annotations

import asyncio
import uuid

from coordinator.group.consumer.assignment import Assignment, to_assignment
from coordinator.group.consumer.member import JOIN_EPOCH
from coordinator.group.consumer.messages import ConsumerHeartbeatRequest, ConsumerHeartbeatResponse
from coordinator.group.consumer.validation import MAX_TOPIC_NAMES
from coordinator.topic_regex import InvalidRegexError
from gateway.requests.call import Call
from gateway.requests.reply import Reply
from protocol.kafka.acl import AclOperation, ResourceType
from protocol.kafka.messages.groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from protocol.kafka.value_counts import has_more_rows

OWN_ID_VERSION = 1
LARGE_ROWS = 2_000
"""In a request with more rows, the partitions that the member owns are collected in a thread."""
_ASSIGNMENT = ConsumerGroupHeartbeatResponse.Assignment


def handle(call: Call[ConsumerGroupHeartbeatRequest]) -> Reply:
    if len(call.request.subscribed_topic_names or ()) > MAX_TOPIC_NAMES:
        return _heartbeat(call, None)  # The coordinator refuses it, whatever the member owns.
    if has_more_rows(ConsumerGroupHeartbeatRequest, call.request, LARGE_ROWS):
        return Reply.after(_of_large_owner(call))
    return _of_owner(call, _owned(call.request.topic_partitions))


async def _of_large_owner(call: Call[ConsumerGroupHeartbeatRequest]) -> Reply:
    return _of_owner(call, await asyncio.to_thread(_owned, call.request.topic_partitions))


def _of_owner(call: Call[ConsumerGroupHeartbeatRequest], owned: Assignment | None) -> Reply:
    topics = call.cluster.group_service.subscribed_topics
    known = topics.knows(_names_to_know(call), call.request.subscribed_topic_regex)
    return _heartbeat(call, owned) if known else Reply.after(_look_up(call, owned))


async def _look_up(call: Call[ConsumerGroupHeartbeatRequest], owned: Assignment | None) -> Reply:
    names, regex = _names_to_know(call), call.request.subscribed_topic_regex
    try:
        await call.cluster.group_service.subscribed_topics.learn(names, regex)
    except InvalidRegexError as error:
        return _heartbeat(call, owned, str(error))
    return _heartbeat(call, owned)


def _heartbeat(
    call: Call[ConsumerGroupHeartbeatRequest], owned: Assignment | None, regex_problem: str | None = None
) -> Reply:
    asked = _request(call, owned, regex_problem)
    beating = call.cluster.groups.ask(
        asked.group_id,
        lambda coordinator, now_ms, reply: coordinator.consumer_heartbeat(asked, now_ms, reply),
        _response,
    )
    return Reply.later(beating)


def _names_to_know(call: Call[ConsumerGroupHeartbeatRequest]) -> set[str]:
    """The member's topics; and the topics of a classic group that it joins and thereby turns into a consumer group."""
    names, group_id = set(_names(call) or ()), call.request.group_id
    if call.request.member_epoch == JOIN_EPOCH:
        names |= call.cluster.groups.run(group_id, lambda coordinator, now_ms: coordinator.classic_topics(group_id))
    return names


def _names(call: Call[ConsumerGroupHeartbeatRequest]) -> list[str] | None:
    """Of too many, as many as show that they are too many."""
    names = call.request.subscribed_topic_names
    return None if names is None else [name or "" for name in names[: MAX_TOPIC_NAMES + 1]]  # null is not allowed here


def _request(
    call: Call[ConsumerGroupHeartbeatRequest], owned: Assignment | None, regex_problem: str | None
) -> ConsumerHeartbeatRequest:
    request = call.request
    return ConsumerHeartbeatRequest(
        group_id=request.group_id,
        member_id=request.member_id or "",
        member_epoch=request.member_epoch,
        client_id=call.client_id or "",
        client_host=call.client.host,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_topic_names=_names(call),
        subscribed_topic_regex=request.subscribed_topic_regex,
        regex_problem=regex_problem,
        server_assignor=request.server_assignor,
        owned=owned,
        has_own_id=call.version >= OWN_ID_VERSION,
        may_describe=lambda name: call.context.client_policy.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name),
    )


def _owned(topics: list[ConsumerGroupHeartbeatRequest.TopicPartitions] | None) -> Assignment | None:
    if topics is None:
        return None
    ids = [(bytes(16) if topic.topic_id is None else topic.topic_id.bytes, topic.partitions) for topic in topics]
    return to_assignment((topic_id, number) for topic_id, numbers in ids for number in numbers)


def _response(answer: ConsumerHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=answer.error,
        error_message=answer.error_message,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=None if answer.assignment is None else _assignment(answer.assignment),
    )


def _assignment(assignment: Assignment) -> _ASSIGNMENT:
    row = _ASSIGNMENT.TopicPartitions
    return _ASSIGNMENT(
        topic_partitions=[
            row(topic_id=uuid.UUID(bytes=topic_id), partitions=sorted(numbers))
            for topic_id, numbers in assignment.items()
        ]
    )
