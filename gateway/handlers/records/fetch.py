"""Fetch (key 1), v0-v18.

v0-v1 answer magic 0, v2-v3 magic 1 (down-converted); v1 throttle time; v3 response max_bytes, first batch whole
(KIP-74); v4 isolation level; v5 log start; v7 sessions (KIP-227); v9 leader epochs; v10 zstd; v11 rack (KIP-392);
v12 flexible, diverging epochs; v13 topic ids; v15 replica state; v16 node endpoints; v17 directory ids;
v18 high watermarks of followers (KIP-1166), which consumers leave out.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence, Set
from functools import partial

from gateway.errors import KafkaError, fetch_error_code
from gateway.fan_out import Slices, in_steps, sliced
from gateway.fetching.delayed_fetch import DelayedFetch
from gateway.fetching.down_conversion import down_convert_all, skip_empty_batches
from gateway.fetching.fetch_answer import FetchAnswer, PartitionAnswer, TopicAnswer, add_rows
from gateway.fetching.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchedPartition,
    FetchSession,
    Key,
    record_if_changed,
)
from gateway.fetching.fetched_parts import FetchParams, FetchPartitionState
from gateway.fetching.large_fetch import LargeFetch
from gateway.handlers.records.awaited_fetch import awaited, outdated
from gateway.handlers.records.fetch_bounds import (
    WHOLE_FIRST_BATCH_VERSION,
    is_room_for_answers,
    max_bytes,
    max_wait_ms,
    min_bytes,
)
from gateway.handlers.records.fetch_rights import is_of_a_replica, may_read, while_allowed
from gateway.handlers.records.rack_readers import find_reader
from gateway.pulsar.errors import PulsarError
from gateway.requests.brokers import RECORDS_EPOCH, Brokers, check_leader
from gateway.requests.call import Call
from gateway.requests.cluster import Unread
from gateway.requests.policy import ALL_ALLOWED
from gateway.requests.reply import Reply
from gateway.topics.topic import Topic
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import FetchRequest, FetchResponse

NO_EPOCH = -1
"""Kafka treats every negative epoch here as this one."""
READ_ON = 100
"""Maximum number of reads for one request; the client's next request then continues."""
RESOLVED_AT_ONCE = 500
"""Partitions that are resolved without giving others their turn."""
FIRST_BATCH_VERSION = 4
RACK_VERSION = 11
TOPIC_ID_VERSION = 13
LEADER_HINT_VERSION = 16
SESSION_VERSION = 7
ZSTD_VERSION = 10
READ_COMMITTED = 1
ISOLATION_LEVELS = {0, READ_COMMITTED}


def handle(call: Call[FetchRequest]) -> Reply:
    return with_requested(call, partial(fetch, call))


def with_requested(
    call: Call[FetchRequest], then: Callable[[list[FetchedPartition], FetchSession | None], Reply]
) -> Reply:
    """The reply of `then`, which gets the partitions to fetch, by the request alone or with its session."""
    if names_many(call.request):
        return Reply.after(_with_many(call, then))
    named: dict[Key, FetchedPartition] = {}
    for topic in call.request.topics:
        _add_named(named, call, topic, topic.partitions)
    try:
        fetched, session = _in_session(call, named)
    except KafkaError as error:
        return Reply(FetchAnswer(error_code=error.code))
    return then(fetched, session)


def names_many(request: FetchRequest) -> bool:
    """Whether the request is handled in slices."""
    count = sum([len(topic.partitions) for topic in request.topics])
    return count + sum([len(topic.partitions) for topic in request.forgotten_topics_data]) > RESOLVED_AT_ONCE


async def _with_many(
    call: Call[FetchRequest], then: Callable[[list[FetchedPartition], FetchSession | None], Reply]
) -> Reply:
    named: dict[Key, FetchedPartition] = {}
    async for topic in sliced(call.request.topics):
        async for some in in_steps(topic.partitions):
            _add_named(named, call, topic, some)
    try:
        fetched, session = await _in_session_of_many(call, named)
    except KafkaError as error:
        return Reply(FetchAnswer(error_code=error.code))
    return then(fetched, session)


def fetch(call: Call[FetchRequest], fetched: list[FetchedPartition], session: FetchSession | None) -> Reply:
    """Fetch from logs that this gateway leads."""
    if call.version < FIRST_BATCH_VERSION:
        return Reply.after(_message_sets(call, fetched))
    return _fetch(call, fetched, session)


def _fetch(call: Call[FetchRequest], fetched: list[FetchedPartition], session: FetchSession | None) -> Reply:
    if len(fetched) > RESOLVED_AT_ONCE:
        return Reply.after(_fetch_many(call, fetched, session))
    return delay(call, [_resolve(call, part) for part in fetched], session)


async def _fetch_many(call: Call[FetchRequest], fetched: list[FetchedPartition], session: FetchSession | None) -> Reply:
    parts, slices = [], Slices()
    for part in fetched:
        await slices.pause()
        if _is_outdated(call, session):  # the rest would be in vain
            break
        parts.append(_resolve(call, part))
    return delay(call, parts, session)


def delay(call: Call[FetchRequest], parts: list[FetchPartitionState], session: FetchSession | None) -> Reply:
    """Answer when there is enough data, from the logs of `parts`. Logs that are not open are opened."""
    if session is not None and _is_outdated(call, session):
        return Reply(outdated(session))
    if call.request.isolation_level not in ISOLATION_LEVELS:
        return Reply.after(_refuse_all(call, parts))
    params = _params(call, len(parts))
    if len(parts) > RESOLVED_AT_ONCE:
        large = LargeFetch(
            params, parts, partial(_open, call), partial(_respond_in_slices, call, parts, session),
            partial(_hold, call.cluster.unread),
        )  # fmt: skip
        large.start()
        return awaited(call, large, session, len(parts))
    delayed = DelayedFetch(params, parts, partial(_open, call), partial(_respond, call, parts, session))
    answer = delayed.start()
    return awaited(call, delayed, session, len(parts)) if answer is None else Reply(answer)


def _is_outdated(call: Call[FetchRequest], session: FetchSession | None) -> bool:
    """Another connection has continued the session, or has closed it."""
    return session is not None and not session.is_at(call.request.session_epoch)


def _params(call: Call[FetchRequest], partitions: int) -> FetchParams:
    request, cluster = call.request, call.cluster
    limit_bytes = max_bytes(call)
    return FetchParams(
        max_wait_ms=max_wait_ms(call, partitions),
        min_bytes=min_bytes(call),
        room_bytes=lambda: limit_bytes if is_room_for_answers(cluster) else 0,
        whole_first_batch=call.version >= WHOLE_FIRST_BATCH_VERSION,
        read_committed=request.isolation_level == READ_COMMITTED,
        # Unless others are excluded, a successor may have written more: the client must not reset its offset then.
        beyond_end=lambda: (
            ErrorCode.OFFSET_OUT_OF_RANGE
            if cluster.fleet.state.permissions.excludes_others
            else ErrorCode.NOT_LEADER_OR_FOLLOWER
        ),
    )


def _respond(
    call: Call[FetchRequest], parts: list[FetchPartitionState], session: FetchSession | None,
    rows: list[PartitionAnswer],
) -> FetchAnswer:
    if session is not None and _is_outdated(call, session):
        return outdated(session)
    topics: list[TopicAnswer] = []
    endpoints: list[FetchResponse.NodeEndpoint] = []
    _show(call, session, parts, rows, topics, endpoints)
    return _answer(session, topics, endpoints)


async def _respond_in_slices(
    call: Call[FetchRequest], parts: list[FetchPartitionState], session: FetchSession | None,
    rows: list[PartitionAnswer],
) -> FetchAnswer:
    """As `_respond`. From the first slice on, the session counts the answer as given, also if it moves on meanwhile:
    that is as if this answer had been a moment earlier."""
    if session is not None:
        if _is_outdated(call, session):
            return outdated(session)
        session.in_flight = None
    topics: list[TopicAnswer] = []
    endpoints: list[FetchResponse.NodeEndpoint] = []
    done = 0
    async for some in in_steps(rows):
        _show(call, session, parts[done : done + len(some)], some, topics, endpoints)
        done += len(some)
    return _answer(session, topics, endpoints)


def _show(
    call: Call[FetchRequest], session: FetchSession | None, parts: Sequence[FetchPartitionState],
    rows: Sequence[PartitionAnswer], topics: list[TopicAnswer], endpoints: list[FetchResponse.NodeEndpoint],
) -> None:  # fmt: skip
    """Add the rows that the client has to see to the topics of the answer."""
    if call.context.policy is not ALL_ALLOWED:
        rows = [while_allowed(call, part.name, row) for part, row in zip(parts, rows, strict=True)]
    for part, row in zip(parts, rows, strict=True):
        if row.error_code:
            call.count_error(ErrorCode(row.error_code))
        if row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and part.name is not None:
            _point_to_leader(call, part.name, row, endpoints)
    shown = [row for row in rows if record_if_changed(session, call.request.session_epoch, row)]
    add_rows(topics, shown, by_id=call.version >= TOPIC_ID_VERSION)


def _answer(
    session: FetchSession | None, topics: list[TopicAnswer], endpoints: list[FetchResponse.NodeEndpoint]
) -> FetchAnswer:
    session_id = session.session_id if session is not None else 0
    return FetchAnswer(session_id=session_id, responses=topics, node_endpoints=endpoints)


def _hold(unread: Unread, size_bytes: int) -> None:
    unread.size_bytes += size_bytes


def _point_to_leader(call: Call, topic: str, row: PartitionAnswer, endpoints: list[FetchResponse.NodeEndpoint]) -> None:
    brokers = Brokers(call)
    node = brokers.hint(topic, row.partition_index) if call.version >= LEADER_HINT_VERSION else None
    if node is not None:
        row.current_leader = row.LeaderIdAndEpoch(leader_id=node.node_id, leader_epoch=brokers.epoch)
        endpoint = FetchResponse.NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        if endpoint not in endpoints:
            endpoints.append(endpoint)


async def _message_sets(call: Call[FetchRequest], fetched: list[FetchedPartition]) -> Reply:
    """If batches give no messages, as transaction markers, the batches after them are read."""
    limit_bytes, logs = call.cluster.config.limits.max_decompressed_bytes, call.cluster.logs
    asked = {part.key: part.offset async for part in sliced(fetched)}
    for _ in range(READ_ON):
        await skip_empty_batches(logs, fetched, asked)
        answer = await _fetch(call, fetched, None).result()
        assert isinstance(answer, FetchAnswer)
        converted = await down_convert_all(answer, call.version, limit_bytes, logs, call.client.number, asked)
        for error in converted.errors:
            call.count_error(error)
        if not converted.is_nothing:
            break
    return Reply(answer)


async def _open(call: Call[FetchRequest], part: FetchPartitionState) -> None:
    """Open the log of a partition that was not used for long."""
    fetched = part.fetched
    try:
        topics = call.cluster.topics
        by_id = call.version >= TOPIC_ID_VERSION
        topic = await (topics.get_by_id(fetched.topic) if by_id else call.topics.get(str(fetched.topic)))  # type: ignore[arg-type]
        if topic is None:
            part.error = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return
        part.name, part.error = topic.name, _check(call, topic, fetched)
        if not may_read(call, topic.name):  # the name of a topic id was not known before
            part.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if not part.error:
            part.log = await call.cluster.logs.open(topic, fetched.partition, whose=call.client.number)
            find_reader(call, topic.name, part, _rack(call))
    except (KafkaError, PulsarError, TimeoutError) as error:
        part.error = fetch_error_code(error)


def _resolve(call: Call[FetchRequest], fetched: FetchedPartition) -> FetchPartitionState:
    """Find the partition's log, if this needs no waiting."""
    part = FetchPartitionState(fetched)
    topics = call.cluster.topics
    name = topics.cached_name(fetched.topic) if isinstance(fetched.topic, uuid.UUID) else fetched.topic
    if call.context.policy is not ALL_ALLOWED and name is not None and not may_read(call, name):
        part.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return part
    topic = topics.cached(name) if name is not None else None
    if topic is not None:
        part.name, part.error = topic.name, _check(call, topic, fetched)
        if not part.error:
            part.log = call.cluster.logs.find(topic.name, fetched.partition)
            find_reader(call, topic.name, part, _rack(call))
    if fetched.max_bytes < 0:
        part.error = ErrorCode.UNKNOWN_SERVER_ERROR
    return part


def _check(call: Call[FetchRequest], topic: Topic, fetched: FetchedPartition) -> ErrorCode:
    if not 0 <= fetched.partition < topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if is_of_a_replica(call.request):  # as in Kafka, when the broker holds no replica: no gateway does
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    try:
        check_leader(call, topic.name, fetched.partition, max(NO_EPOCH, fetched.leader_epoch), _rack(call))
    except KafkaError as error:
        return error.code
    unreadable = _unreadable(call.version, topic)
    if unreadable:
        return unreadable
    return ErrorCode.OFFSET_OUT_OF_RANGE if fetched.fetched_epoch > RECORDS_EPOCH else ErrorCode.NONE


def _unreadable(version: int, topic: Topic) -> ErrorCode:
    """Why consumers of this version get no records of the topic, as in Kafka."""
    if version < ZSTD_VERSION and topic.config("compression.type") == "zstd":
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if version < FIRST_BATCH_VERSION and topic.config("message.downconversion.enable") == "false":
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE


def _rack(call: Call[FetchRequest]) -> str:
    """The consumer's rack; empty if the consumer does not name it."""
    return (call.request.rack_id or "") if call.version >= RACK_VERSION else ""


def _in_session(
    call: Call[FetchRequest], by_key: dict[Key, FetchedPartition]
) -> tuple[list[FetchedPartition], FetchSession | None]:
    """The partitions to fetch, by the request alone or with its session. Raises KafkaError."""
    request, sessions, owner = call.request, call.cluster.fetch_sessions, call.client.host
    named, uses_topic_ids = list(by_key.values()), call.version >= TOPIC_ID_VERSION
    if _is_full(call):
        sessions.close(owner, request.session_id)
        begins = _begins_session(call)
        return named, sessions.create(owner, named, uses_topic_ids=uses_topic_ids) if begins else None
    session = sessions.resume(
        owner, request.session_id, request.session_epoch, named, forgotten_keys(call), uses_topic_ids=uses_topic_ids
    )
    return (named, None) if session is None else (list(session.partitions.values()), session)


async def _in_session_of_many(
    call: Call[FetchRequest], by_key: dict[Key, FetchedPartition]
) -> tuple[list[FetchedPartition], FetchSession | None]:
    """As `_in_session`, in slices."""
    request, sessions, owner = call.request, call.cluster.fetch_sessions, call.client.host
    named, uses_topic_ids = list(by_key.values()), call.version >= TOPIC_ID_VERSION
    if _is_full(call):
        sessions.close(owner, request.session_id)
        begins = _begins_session(call)
        return named, await sessions.create_large(owner, by_key, uses_topic_ids=uses_topic_ids) if begins else None
    forgotten = (
        (topic.topic_id if uses_topic_ids else topic.topic, topic.partitions) for topic in request.forgotten_topics_data
    )
    session = await sessions.resume_large(
        owner, request.session_id, request.session_epoch, named, forgotten, uses_topic_ids=uses_topic_ids
    )
    return (named, None) if session is None else (list(session.partitions.values()), session)


def _is_full(call: Call[FetchRequest]) -> bool:
    """The request names all its partitions."""
    return call.version < SESSION_VERSION or call.request.session_epoch in {INITIAL_EPOCH, FINAL_EPOCH}


def _begins_session(call: Call[FetchRequest]) -> bool:
    return call.version >= SESSION_VERSION and call.request.session_epoch == INITIAL_EPOCH


def forgotten_keys(call: Call[FetchRequest]) -> Set[Key]:
    """The partitions that the client removes from its session."""
    return {
        (topic.topic_id if call.version >= TOPIC_ID_VERSION else topic.topic, partition)
        for topic in call.request.forgotten_topics_data
        for partition in topic.partitions
    }


def _add_named(
    named: dict[Key, FetchedPartition], call: Call[FetchRequest], topic: FetchRequest.FetchTopic,
    partitions: Sequence[FetchRequest.FetchTopic.FetchPartition],
) -> None:  # fmt: skip
    name = topic.topic_id if call.version >= TOPIC_ID_VERSION else topic.topic
    for part in partitions:
        named[name, part.partition] = FetchedPartition(
            name, part.partition, part.fetch_offset, part.partition_max_bytes, part.current_leader_epoch,
            part.last_fetched_epoch,
        )  # fmt: skip


async def _refuse_all(call: Call, parts: list[FetchPartitionState]) -> Reply:
    topics: list[TopicAnswer] = []
    async for some in in_steps(parts):
        rows = [PartitionAnswer(part.fetched, error_code=ErrorCode.UNKNOWN_SERVER_ERROR) for part in some]
        add_rows(topics, rows, by_id=call.version >= TOPIC_ID_VERSION)
    code = ErrorCode.UNKNOWN_SERVER_ERROR if call.version >= SESSION_VERSION else ErrorCode.NONE
    return Reply(FetchAnswer(error_code=code, responses=topics))
