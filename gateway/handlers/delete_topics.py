"""DeleteTopics (key 20), v0-v6. v1 throttle time; v4 flexible; v5 messages; v6 by topic id (KIP-516)."""

from __future__ import annotations

import uuid

from kafka.protocol.admin import DeleteTopicsResponse

from gateway.handlers.call import Call, Response
from gateway.pulsar.errors import PulsarError
from gateway.storage.errors import error_code
from gateway.storage.topics import Topic
from protocol.kafka.errors import ErrorCode


async def handle(call: Call) -> Response:
    request, topics = call.request, call.services.topics
    rows = []
    if call.version < 6:
        for name in request.topic_names or ():
            rows.append(await _delete(call, await topics.get(name, fresh=True), name, None))
    else:
        for item in request.topics or ():
            if (item.name is None) == (item.topic_id is None):
                rows.append(_row(item.name, item.topic_id, ErrorCode.INVALID_REQUEST, "Give a name or an id."))
            elif item.name is not None:
                rows.append(await _delete(call, await topics.get(item.name, fresh=True), item.name, None))
            else:
                rows.append(await _delete(call, await topics.get_by_id(item.topic_id), None, item.topic_id))
    return DeleteTopicsResponse(responses=rows)


async def _delete(call: Call, topic: Topic | None, name: str | None, topic_id: uuid.UUID | None) -> Response:
    if topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic_id is None else ErrorCode.UNKNOWN_TOPIC_ID
        call.count_error(code)
        text = "This server does not host this topic-partition." if topic_id is None else "This server does not host this topic ID."
        return _row(name, topic_id, code, text)
    try:
        await call.services.logs.forget_topic(topic.name)
        await call.services.topics.delete(topic)
        await call.services.logs.forget_topic(topic.name)
    except PulsarError as error:
        code = error_code(error)
        call.count_error(code)
        return _row(topic.name, topic.topic_id, code, str(error))
    return _row(topic.name, topic.topic_id, ErrorCode.NONE, None)


def _row(name: str | None, topic_id: uuid.UUID | None, code: ErrorCode, text: str | None) -> Response:
    return DeleteTopicsResponse.DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=text)
