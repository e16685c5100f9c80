"""ConsumerGroupHeartbeat (key 68, KIP-848), v0-v1.

One call joins, follows the assignment and leaves. v1 regular expressions, which the server resolves, and member ids of
the client's choice.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace

from coordinator.group.consumer.assignment import Assignment
from coordinator.group.consumer.member import JOIN_EPOCH
from coordinator.group.consumer.messages import ConsumerHeartbeatRequest, ConsumerHeartbeatResponse, Rights
from coordinator.group.consumer.validation import MAX_NAMES_OF_GROUP, MAX_TOPIC_NAMES, contradiction
from coordinator.topic_regex import InvalidRegexError
from gateway.requests.call import Call
from gateway.requests.reply import Reply
from protocol.kafka.acl import AclOperation, ResourceType
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from protocol.kafka.value_counts import has_more_rows

OWN_ID_VERSION = 1
MAX_OWNED_PARTITIONS = 500_000
"""More than a member has: with some more, no record could hold its assignment."""
LARGE_ROWS = 2_000
"""In a request with more rows, the partitions that the member owns are collected in a thread."""
_ASSIGNMENT = ConsumerGroupHeartbeatResponse.Assignment


def handle(call: Call[ConsumerGroupHeartbeatRequest]) -> Reply:
    if _reports_too_many(call.request):
        message = "TopicPartitions has more partitions than a member can own."
        return Reply(_response(ConsumerHeartbeatResponse(ErrorCode.INVALID_REQUEST, message)))
    if len(call.request.subscribed_topic_names or ()) > MAX_TOPIC_NAMES:
        return _heartbeat(call, _request(call, None))  # The coordinator refuses it, whatever the member owns.
    if has_more_rows(ConsumerGroupHeartbeatRequest, call.request, LARGE_ROWS):
        return Reply.after(_of_large_owner(call))
    return _checked(call, _request(call, _owned(call.request.topic_partitions)))


async def _of_large_owner(call: Call[ConsumerGroupHeartbeatRequest]) -> Reply:
    return _checked(call, _request(call, await asyncio.to_thread(_owned, call.request.topic_partitions)))


def _checked(call: Call[ConsumerGroupHeartbeatRequest], asked: ConsumerHeartbeatRequest) -> Reply:
    if contradiction(asked) is not None:
        return _heartbeat(call, asked)  # The coordinator refuses it: no topic need be known.
    names = _names_to_know(call, asked)
    topics = call.cluster.group_service.subscribed_topics
    known = topics.knows(names, asked.subscribed_topic_regex)
    return _heartbeat(call, asked) if known else Reply.after(_look_up(call, asked, names))


def _reports_too_many(request: ConsumerGroupHeartbeatRequest) -> bool:
    topics = request.topic_partitions or ()
    return len(topics) > MAX_NAMES_OF_GROUP or sum(len(each.partitions) for each in topics) > MAX_OWNED_PARTITIONS


async def _look_up(
    call: Call[ConsumerGroupHeartbeatRequest], asked: ConsumerHeartbeatRequest, names: set[str]
) -> Reply:
    try:
        await call.cluster.group_service.subscribed_topics.learn(names, asked.subscribed_topic_regex)
    except InvalidRegexError as error:
        return _heartbeat(call, replace(asked, regex_problem=str(error)))
    return _heartbeat(call, asked)


def _heartbeat(call: Call[ConsumerGroupHeartbeatRequest], asked: ConsumerHeartbeatRequest) -> Reply:
    beating = call.cluster.groups.ask(
        asked.group_id,
        lambda coordinator, now_ms, reply: coordinator.consumer_heartbeat(asked, now_ms, reply),
        _response,
    )
    return Reply.later(beating)


def _names_to_know(call: Call[ConsumerGroupHeartbeatRequest], asked: ConsumerHeartbeatRequest) -> set[str]:
    """The member's topics; and the topics of a classic group that it joins and thereby turns into a consumer group."""
    names, group_id = set(asked.subscribed_topic_names or ()), asked.group_id
    if asked.member_epoch == JOIN_EPOCH:
        names |= call.cluster.groups.run(group_id, lambda coordinator, now_ms: coordinator.classic_topics(group_id))
    return names


def _names(call: Call[ConsumerGroupHeartbeatRequest]) -> list[str] | None:
    """Of too many, as many as show that they are too many."""
    names = call.request.subscribed_topic_names
    return None if names is None else [name or "" for name in names[: MAX_TOPIC_NAMES + 1]]  # null is not allowed here


def _request(call: Call[ConsumerGroupHeartbeatRequest], owned: Assignment | None) -> ConsumerHeartbeatRequest:
    request, policy = call.request, call.context.client_policy
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
        server_assignor=request.server_assignor,
        owned=owned,
        has_own_id=call.version >= OWN_ID_VERSION,
        rights=Rights(
            lambda name: policy.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name), policy.version()
        ),
    )


def _owned(topics: list[ConsumerGroupHeartbeatRequest.TopicPartitions] | None) -> Assignment | None:
    if topics is None:
        return None
    owned: dict[bytes, set[int]] = {}
    for topic in topics:
        if topic.partitions:
            topic_id = bytes(16) if topic.topic_id is None else topic.topic_id.bytes
            owned.setdefault(topic_id, set()).update(topic.partitions)
    return owned


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
