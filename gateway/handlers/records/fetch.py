"""Fetch (key 1), v0-v18.

v0-v1 answer magic 0, v2-v3 magic 1 (down-converted); v1 throttle time; v3 response max_bytes, first batch whole
(KIP-74); v4 isolation level; v5 log start; v7 sessions (KIP-227); v9 leader epochs; v10 zstd; v11 rack (KIP-392);
v12 flexible, diverging epochs; v13 topic ids; v15 replica state; v16 node endpoints; v17 directory ids;
v18 high watermarks of followers (KIP-1166), which consumers leave out.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine
from functools import partial
from types import CoroutineType
from typing import Any

from gateway.errors import KafkaError, fetch_error_code
from gateway.fetching.delayed_fetch import ParkedFetch, Wanted
from gateway.fetching.down_conversion import down_converted
from gateway.fetching.fetch_answer import FetchAnswer, PartitionAnswer, group_by_topic
from gateway.fetching.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchedPartition,
    FetchSession,
    Key,
)
from gateway.pulsar.errors import PulsarError
from gateway.requests.call import Call, Outcome
from gateway.requests.cluster import check_leader, preferred_reader
from gateway.requests.fan_out import Slices
from gateway.topics.topic import Topic
from protocol.kafka.errors import ErrorCode

RECORDS_EPOCH = 0
"""Of all records: logs are never cut back here, whoever leads them."""
NO_EPOCH = -1
"""What Kafka takes every negative one for, here."""
START_AGE_S = 1.0
"""Of the start of a log that consumers read elsewhere."""
RESOLVED_AT_ONCE = 500
"""Partitions that are looked at without giving others their turn."""
FIRST_BATCH_VERSION = 4
RACK_VERSION = 11
TOPIC_ID_VERSION = 13
SESSION_VERSION = 7
ISOLATION_LEVELS = {0, 1}


def handle(call: Call) -> Outcome | Coroutine[Any, Any, Outcome]:
    try:
        fetched, session = wanted(call)
    except KafkaError as error:
        return FetchAnswer(error_code=error.code)
    return fetch(call, fetched, session)


def fetch(
    call: Call, fetched: list[FetchedPartition], session: FetchSession | None
) -> Outcome | Coroutine[Any, Any, Outcome]:
    """Of logs that this gateway leads."""
    outcome = _fetch(call, fetched, session)
    return outcome if call.version >= FIRST_BATCH_VERSION else _message_sets(call, outcome)


def _fetch(
    call: Call, fetched: list[FetchedPartition], session: FetchSession | None
) -> Outcome | Coroutine[Any, Any, Outcome]:
    if len(fetched) > RESOLVED_AT_ONCE:
        return _fetch_many(call, fetched, session)
    return _park(call, [_resolve(call, part) for part in fetched], session)


async def _fetch_many(call: Call, fetched: list[FetchedPartition], session: FetchSession | None) -> Outcome:
    parts, slices = [], Slices()
    for part in fetched:
        await slices.pause()
        parts.append(_resolve(call, part))
    return _park(call, parts, session)


def _park(call: Call, parts: list[Wanted], session: FetchSession | None) -> Outcome:
    if call.request.isolation_level not in ISOLATION_LEVELS:
        return _refuse_all(call, parts)
    return ParkedFetch(call, parts, session, partial(_open, call)).start()


async def _message_sets(call: Call, outcome: Outcome | Coroutine[Any, Any, Outcome]) -> FetchAnswer:
    outcome = await outcome if isinstance(outcome, CoroutineType) else outcome
    answer: Any = await outcome if isinstance(outcome, asyncio.Future) else outcome
    return await down_converted(call, answer)


async def _open(call: Call, part: Wanted) -> None:
    """The log of a partition that nobody has used for long."""
    fetched = part.fetched
    try:
        topics = call.services.topics
        by_id = call.version >= TOPIC_ID_VERSION
        topic = await (topics.get_by_id(fetched.topic) if by_id else topics.get(str(fetched.topic)))  # type: ignore[arg-type]
        if topic is None:
            part.error = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return
        part.name, part.error = topic.name, _check(call, topic, fetched)
        if not part.error:
            part.log = await call.services.logs.open(topic, fetched.partition)
            _name_reader(call, topic, part)
    except (KafkaError, PulsarError, TimeoutError) as error:
        part.error = fetch_error_code(error)


def _resolve(call: Call, fetched: FetchedPartition) -> Wanted:
    """The log, if it is known without waiting."""
    part = Wanted(fetched)
    topics = call.services.topics
    name = topics.cached_name(fetched.topic) if isinstance(fetched.topic, uuid.UUID) else fetched.topic
    topic = topics.cached(name) if name is not None else None
    if topic is not None:
        part.name, part.error = topic.name, _check(call, topic, fetched)
        if not part.error:
            part.log = call.services.logs.get(topic, fetched.partition)
            _name_reader(call, topic, part)
    if fetched.max_bytes < 0:
        part.error = ErrorCode.UNKNOWN_SERVER_ERROR
    elif not part.error and fetched.fetched_epoch > RECORDS_EPOCH:
        part.error = ErrorCode.OFFSET_OUT_OF_RANGE
    return part


def _name_reader(call: Call, topic: Topic, part: Wanted) -> None:
    """A consumer whose offset is out of range hears so from the leader only: what a reader says of it sends it here."""
    rack, offset, found = _rack(call), part.fetched.offset, part.log
    if rack and found is not None and found.start.offset <= offset <= found.end_offset:
        part.preferred_reader = preferred_reader(call, topic.name, part.fetched.partition, rack)
        if part.preferred_reader is not None:  # who reads finds out that the start has moved, and the leader has to
            found.start.refresh_ahead(START_AGE_S)


def _check(call: Call, topic: Topic, fetched: FetchedPartition) -> ErrorCode:
    if not 0 <= fetched.partition < topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_leader(call, topic.name, fetched.partition, max(NO_EPOCH, fetched.leader_epoch), _rack(call))
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _rack(call: Call) -> str:
    """Of the consumer; empty if it does not say."""
    return (call.request.rack_id or "") if call.version >= RACK_VERSION else ""


def wanted(call: Call) -> tuple[list[FetchedPartition], FetchSession | None]:
    """What to fetch, by the request alone or with its session. Raises KafkaError."""
    request, sessions, owner = call.request, call.services.fetch_sessions, call.client.host
    named = list(_named(call).values())
    if call.version < SESSION_VERSION or request.session_epoch == FINAL_EPOCH:
        sessions.close(owner, request.session_id)
        return named, None
    if request.session_epoch == INITIAL_EPOCH:
        sessions.close(owner, request.session_id)
        return named, sessions.create(owner, named)
    if request.session_id == NO_SESSION:
        raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    forgotten: list[Key] = [
        (topic.topic_id if call.version >= TOPIC_ID_VERSION else topic.topic, partition)
        for topic in request.forgotten_topics_data or ()
        for partition in topic.partitions
    ]
    session = sessions.resume(owner, request.session_id, request.session_epoch, named, forgotten)
    return list(session.partitions.values()), session


def _named(call: Call) -> dict[Key, FetchedPartition]:
    by_id = call.version >= TOPIC_ID_VERSION
    named: dict[Key, FetchedPartition] = {}
    for topic in call.request.topics:
        for part in topic.partitions:
            fetched = FetchedPartition(
                topic.topic_id if by_id else topic.topic, part.partition, part.fetch_offset, part.partition_max_bytes,
                part.current_leader_epoch, part.last_fetched_epoch,
            )  # fmt: skip
            named[fetched.key] = fetched
    return named


def _refuse_all(call: Call, parts: list[Wanted]) -> FetchAnswer:
    rows = [PartitionAnswer(part.fetched, error_code=ErrorCode.UNKNOWN_SERVER_ERROR) for part in parts]
    code = ErrorCode.UNKNOWN_SERVER_ERROR if call.version >= SESSION_VERSION else ErrorCode.NONE
    return FetchAnswer(error_code=code, responses=group_by_topic(rows, by_id=call.version >= TOPIC_ID_VERSION))
