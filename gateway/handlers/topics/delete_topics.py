"""DeleteTopics (key 20), v0-v6. v1 throttle time; v4 flexible; v5 messages, refusals above the quota (KIP-599);
v6 by topic id (KIP-516).
"""

from __future__ import annotations

import uuid

from gateway.background import run_once
from gateway.errors import KafkaError, error_code
from gateway.fan_out import fan_out, sliced
from gateway.handlers.topics.controller_timeout import is_over
from gateway.pulsar.errors import PulsarError
from gateway.requests.call import Call
from gateway.requests.cluster import Cluster
from gateway.requests.repeated import times_of
from gateway.topics.topic import Topic
from gateway.topics.topic_names import INTERNAL_TOPICS
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.topics import DeleteTopicsRequest, DeleteTopicsResponse

BY_ID_VERSION = 6
UNKNOWN_NAME = "This server does not host this topic-partition."
UNKNOWN_ID = "This server does not host this topic ID."

DELETED_AT_ONCE = 8
"""Topics of one request. Pulsar deletes a topic in a fraction of a second or so, partition by partition."""

_Row = DeleteTopicsResponse.DeletableTopicResult
_Key = tuple[str | None, uuid.UUID | None]
"""The name or the id by which a topic is named."""


async def handle(call: Call[DeleteTopicsRequest]) -> DeleteTopicsResponse:
    request = call.request
    wanted: list[_Key]
    if call.version < BY_ID_VERSION:
        wanted = [(name, None) async for name in sliced(request.topic_names or ())]
    else:
        wanted = [(item.name, item.topic_id) async for item in sliced(request.topics or ())]
    times = await times_of(wanted)
    rows, once = [], []
    async for name, topic_id in sliced(wanted):
        if (name is None) == (topic_id is None):
            rows.append(_row(name, topic_id, ErrorCode.INVALID_REQUEST, "Give a topic's name or its id."))
        elif times[name, topic_id] == 1:
            once.append((name, topic_id))
    if once and is_over(request.timeout_ms):
        call.count_error(ErrorCode.REQUEST_TIMED_OUT)
        return DeleteTopicsResponse(
            responses=[_row(*each, ErrorCode.REQUEST_TIMED_OUT, None) async for each in sliced(wanted)]
        )
    async for (name, topic_id), number in sliced(times.items()):
        if number > 1 and (name is None) != (topic_id is None):  # whether there is such a topic or not
            rows.append(_row(name, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic name or id."))
    return DeleteTopicsResponse(responses=rows + await _delete_each(call, once))


async def _delete_each(call: Call, wanted: list[_Key]) -> list[_Row]:
    found = await fan_out(lambda item: _find(call, *item), wanted)
    names = await times_of(topic.name if isinstance(topic, Topic) else None for topic in found)
    rows: dict[_Key, _Row | None] = {}
    asked: dict[_Key, Topic | PulsarError | None] = {}
    async for (name, topic_id), topic in sliced(zip(wanted, found, strict=True)):
        if isinstance(topic, Topic) and names[topic.name] > 1:  # by its name and by its id
            rows[topic.name, None] = _row(topic.name, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        else:
            rows[name, topic_id], asked[name, topic_id] = None, topic
    answers = await fan_out(
        lambda item: _delete(call, item[1], *item[0]), list(asked.items()), at_once=DELETED_AT_ONCE
    )
    async for key, row in sliced(zip(asked, answers, strict=True)):
        rows[key] = rows[key] or row
    return [row async for row in sliced(rows.values()) if row is not None]


async def _find(call: Call, name: str | None, topic_id: uuid.UUID | None) -> Topic | PulsarError | None:
    try:
        if name is not None:
            return await call.topics.get(name, fresh=True)
        known = await call.cluster.topics.get_by_id(topic_id)
        topic = None if known is None else await call.topics.get(known.name, fresh=True)
        # Otherwise it is another topic by now.
        return topic if topic is not None and topic.topic_id == topic_id else None
    except PulsarError as error:
        return error


async def _delete(
    call: Call, topic: Topic | PulsarError | None, name: str | None, topic_id: uuid.UUID | None
) -> _Row:
    if isinstance(topic, Topic) and topic_id is not None:
        topic = await _find(call, None, topic_id)  # again: others may have deleted it while it waited for its turn
    if isinstance(topic, PulsarError):
        return _refused(call, name, topic_id, topic)
    if topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic_id is None else ErrorCode.UNKNOWN_TOPIC_ID
        call.count_error(code)
        return _row(name, topic_id, code, UNKNOWN_NAME if topic_id is None else UNKNOWN_ID)
    if topic.name in INTERNAL_TOPICS:  # The coordinators would lose their state.
        text = f"{topic.name} is an internal topic."
        return _row(topic.name, topic.topic_id, ErrorCode.INVALID_TOPIC_EXCEPTION, text)
    try:
        call.charge_mutations(topic.partitions)
    except KafkaError as refusal:
        call.count_error(refusal.code)
        return _row(topic.name, topic.topic_id, refusal.code, refusal.text)
    try:
        await call.cluster.topics.change("topic deletion", _delete_everywhere(call.cluster, topic))
    except PulsarError as error:
        return _refused(call, topic.name, topic.topic_id, error)
    return _row(topic.name, topic.topic_id, ErrorCode.NONE, None)


def _refused(call: Call, name: str | None, topic_id: uuid.UUID | None, error: Exception) -> _Row:
    code = error_code(error)
    call.count_error(code)
    return _row(name, topic_id, code, str(error))


async def _delete_everywhere(cluster: Cluster, topic: Topic) -> None:
    """Continues when the client has disconnected: committed offsets must not outlive the topic. Raises PulsarError."""
    try:
        await cluster.logs.forget_topic(topic.name)
        await cluster.topics.delete(topic, lambda: cluster.group_service.leave_topic_everywhere(topic.name))
        await cluster.logs.forget_topic(topic.name)
    except PulsarError:
        run_once("offsets of a deleted topic", cluster.group_service.deletion_failed(topic))
        raise
    cluster.group_service.topic_deleted(topic)


def _row(name: str | None, topic_id: uuid.UUID | None, code: ErrorCode, text: str | None) -> _Row:
    return _Row(name=name, topic_id=topic_id, error_code=code, error_message=text)
