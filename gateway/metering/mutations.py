"""The quota for changes of topics, charged by the number of partitions (KIP-599).

Old clients get their answer, and then have to wait. From the versions that know THROTTLING_QUOTA_EXCEEDED, topics are
refused with this error while the bucket is in debt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.authorization.guard import needs_each
from gateway.requests.call import Call, Handle
from gateway.requests.reply import Reply
from gateway.security.quota_rates import TokenBucket
from protocol.kafka.api_key import ApiKey
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.topics import CreatePartitionsResponse, CreateTopicsResponse, DeleteTopicsResponse

Mutations = Callable[[Call[Any], Handle, TokenBucket, float, float], Reply]
"""(call, handle, bucket, tokens per second, now in ms)."""
_EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
_UNKNOWN_COUNT = -1
BY_ID_VERSION = 6
CREATE_STRICT_VERSION, DELETE_STRICT_VERSION, PARTITIONS_STRICT_VERSION = 6, 5, 3


def _charged(
    asked: str, answered: str, count: Callable[[Call[Any], Any], int], refuse: Callable[[Any], Any], strict_version: int
) -> Mutations:
    def charge(call: Call[Any], handle: Handle, bucket: TokenBucket, rate: float, now_ms: float) -> Reply:
        def allows(call: Call[Any], row: Any) -> bool:
            if call.version >= strict_version and bucket.is_empty(rate, now_ms):
                return False
            bucket.take(count(call, row), rate, now_ms)
            return True

        def refused(call: Call[Any], row: Any) -> Any:
            call.count_error(_EXCEEDED)
            return refuse(row)

        return needs_each(asked, allows, answered, refused)(call, handle)

    return charge


def _created(call: Call[Any], row: Any) -> int:
    if row.assignments:
        return len(row.assignments)
    default: int = call.cluster.config.kafka.default_partitions
    return default if row.num_partitions == _UNKNOWN_COUNT else max(0, row.num_partitions)


def _partitions(call: Call[Any], name: str | None) -> int:
    topic = None if name is None else call.cluster.topics.cached(name)
    return 1 if topic is None else int(topic.partitions)


def _deleted(call: Call[Any], row: Any) -> int:
    if isinstance(row, str):
        return _partitions(call, row)
    return _partitions(call, row.name if row.topic_id is None else call.cluster.topics.cached_name(row.topic_id))


def _added(call: Call[Any], row: Any) -> int:
    return max(0, int(row.count) - _partitions(call, row.name))


def _refuse_creation(row: Any) -> Any:
    return CreateTopicsResponse.CreatableTopicResult(
        name=row.name, error_code=_EXCEEDED, error_message=None, num_partitions=_UNKNOWN_COUNT,
        replication_factor=_UNKNOWN_COUNT, configs=[],
    )  # fmt: skip


def _refuse_deletion(row: Any) -> Any:
    name, topic_id = (row, None) if isinstance(row, str) else (row.name, row.topic_id)
    return DeleteTopicsResponse.DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=_EXCEEDED, error_message=None
    )


def _refuse_partitions(row: Any) -> Any:
    return CreatePartitionsResponse.CreatePartitionsTopicResult(name=row.name, error_code=_EXCEEDED, error_message=None)


_create = _charged("topics", "topics", _created, _refuse_creation, CREATE_STRICT_VERSION)
_extend = _charged("topics", "results", _added, _refuse_partitions, PARTITIONS_STRICT_VERSION)
_delete_named = _charged("topic_names", "responses", _deleted, _refuse_deletion, DELETE_STRICT_VERSION)
_delete_any = _charged("topics", "responses", _deleted, _refuse_deletion, DELETE_STRICT_VERSION)


def _delete(call: Call[Any], handle: Handle, bucket: TokenBucket, rate: float, now_ms: float) -> Reply:
    delete = _delete_any if call.version >= BY_ID_VERSION else _delete_named
    return delete(call, handle, bucket, rate, now_ms)


MUTATIONS: dict[int, Mutations] = {
    ApiKey.CreateTopics: _create, ApiKey.CreatePartitions: _extend, ApiKey.DeleteTopics: _delete,
}  # fmt: skip
"""By API key."""
