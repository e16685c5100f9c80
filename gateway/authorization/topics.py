"""Guards of topics: Create, Delete, Alter and Describe; CLUSTER Alter to elect and to reassign."""

from __future__ import annotations

import uuid
from collections.abc import Hashable, Sequence
from functools import partial
from operator import attrgetter

from gateway.authorization.guard import (
    MESSAGES,
    NeedsEach,
    TopicRows,
    changed,
    changing,
    is_new,
    may,
    may_cluster,
    needs_cluster,
    showing,
    topic_name,
    with_error_and_text,
)
from gateway.errors import error_code
from gateway.fan_out import fan_out, sliced
from gateway.handlers.topics.delete_topics import UNKNOWN_ID, UNKNOWN_NAME
from gateway.handlers.topics.metadata import looked_up
from gateway.pulsar.errors import PulsarError
from gateway.requests.call import Call, Handle
from gateway.requests.repeated import times_of
from gateway.requests.reply import Reply
from protocol.kafka.acl import NOT_ASKED, AclOperation, ResourceType
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.topics import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    MetadataRequest,
    MetadataResponse,
)

_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_UNKNOWN_COUNT = -1


def _may(call: Call, operation: AclOperation, topic: str) -> bool:
    return may(call, operation, ResourceType.TOPIC, topic)


# Metadata

_Described = MetadataResponse.MetadataResponseTopic


def metadata(call: Call[MetadataRequest], handle: Handle) -> Reply:
    """A client does not learn of topics that it may not describe, unless it already has their names or ids."""
    wanted = call.request.topics
    if wanted is None or (call.version == 0 and not wanted):
        return showing(handle(call), "topics", partial(_is_describable, call))
    return Reply.after(_named(call, handle, looked_up(call.version, wanted)))


async def _named(
    call: Call[MetadataRequest], handle: Handle, wanted: Sequence[MetadataRequest.MetadataRequestTopic]
) -> Reply:
    allowed, refused, seen = [], [], set[Hashable]()
    async for item in sliced(wanted):
        if item.topic_id is None and item.name is not None and not _may(call, AclOperation.DESCRIBE, item.name):
            if is_new(item.name, seen):
                call.count_denied(AclOperation.DESCRIBE, ResourceType.TOPIC, item.name)
                refused.append(_Described(error_code=_DENIED, name=item.name))
        else:
            allowed.append(item)

    def shown(row: _Described) -> _Described:
        row = row if _is_describable(call, row) else _without_name(call, row)
        # DENIED: topics that the client may not create.
        return _without_operations(row) if row.error_code == _DENIED else row

    reply = handle(call.asking(changed(call.request, "topics", allowed)))
    if not allowed:  # in v0, an empty list requests all topics
        return reply.then(lambda response: changed(response, "topics", refused))
    return changing(reply, "topics", shown, lambda _: refused)


def _is_describable(call: Call, row: _Described) -> bool:
    return not row.name or _may(call, AclOperation.DESCRIBE, row.name)


def _without_operations(row: _Described) -> _Described:
    return changed(row, "topic_authorized_operations", NOT_ASKED)  # type: ignore[no-any-return]


def _without_name(call: Call, row: _Described) -> _Described:
    call.count_denied(AclOperation.DESCRIBE, ResourceType.TOPIC, row.name or "")
    return _Described(error_code=_DENIED, name=None, topic_id=row.topic_id)


_Page = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic


def _refused_description(call: Call, row: DescribeTopicPartitionsRequest.TopicRequest) -> _Page:
    call.count_denied(AclOperation.DESCRIBE, ResourceType.TOPIC, row.name)
    return _Page(error_code=_DENIED, name=row.name, topic_authorized_operations=NOT_ASKED)


DESCRIBE_TOPIC_PARTITIONS = NeedsEach(
    "topics", lambda call, row: _may(call, AclOperation.DESCRIBE, row.name), "topics", _refused_description,
    once=attrgetter("name"),
)  # fmt: skip

# Creation

_Created = CreateTopicsResponse.CreatableTopicResult


def create_topics(call: Call[CreateTopicsRequest], handle: Handle) -> Reply:
    if may_cluster(call, AclOperation.CREATE):
        return _create_allowed(call, handle, [])
    return Reply.after(_create_topics(call, handle))


async def _create_topics(call: Call[CreateTopicsRequest], handle: Handle) -> Reply:
    """A name that occurs twice is an error, which takes precedence over the denial."""
    times = await times_of(topic.name for topic in call.request.topics)
    allowed, refused = [], list[_Created]()
    async for topic in sliced(call.request.topics):
        if times[topic.name] > 1 or _may(call, AclOperation.CREATE, topic.name):
            allowed.append(topic)
        else:
            call.count_denied(AclOperation.CREATE, ResourceType.TOPIC, topic.name)
            refused.append(_refused_creation(topic.name))
    if not allowed:
        return Reply(CreateTopicsResponse(topics=refused))
    return _create_allowed(call.asking(changed(call.request, "topics", allowed)), handle, refused)


def _create_allowed(call: Call[CreateTopicsRequest], handle: Handle, refused: list[_Created]) -> Reply:
    return changing(handle(call), "topics", partial(_with_configs, call), lambda _: refused)


def _refused_creation(name: str) -> _Created:
    return _Created(
        name=name, error_code=_DENIED, error_message="Authorization failed.", num_partitions=_UNKNOWN_COUNT,
        replication_factor=_UNKNOWN_COUNT, configs=[],
    )  # fmt: skip


def _with_configs(call: Call, row: _Created) -> _Created:
    """Leave out the configurations unless the client may describe them (KIP-525)."""
    if row.error_code or _may(call, AclOperation.DESCRIBE_CONFIGS, row.name):
        return row
    return _Created(
        name=row.name, topic_id=row.topic_id, topic_config_error_code=_DENIED, error_message=row.error_message,
        num_partitions=_UNKNOWN_COUNT, replication_factor=_UNKNOWN_COUNT, configs=[],
    )  # fmt: skip


_Extended = CreatePartitionsResponse.CreatePartitionsTopicResult


def create_partitions(call: Call[CreatePartitionsRequest], handle: Handle) -> Reply:
    return Reply.after(_create_partitions(call, handle))


async def _create_partitions(call: Call[CreatePartitionsRequest], handle: Handle) -> Reply:
    times = await times_of(topic.name for topic in call.request.topics)
    guard = NeedsEach(
        "topics",
        lambda call, row: times[row.name] > 1 or _may(call, AclOperation.ALTER, row.name),
        "results",
        _refused_partitions,
    )
    return guard(call, handle)


def _refused_partitions(call: Call, row: CreatePartitionsRequest.CreatePartitionsTopic) -> _Extended:
    call.count_denied(AclOperation.ALTER, ResourceType.TOPIC, row.name)
    return _Extended(name=row.name, error_code=_DENIED, error_message=None)


# Deletion

_Deleted = DeleteTopicsResponse.DeletableTopicResult
BY_ID_VERSION = 6


def delete_topics(call: Call[DeleteTopicsRequest], handle: Handle) -> Reply:
    if may_cluster(call, AclOperation.DELETE):
        return handle(call)
    return Reply.after(_delete_topics(call, handle))


async def _delete_topics(call: Call[DeleteTopicsRequest], handle: Handle) -> Reply:
    by_name = call.version < BY_ID_VERSION
    names = call.request.topic_names or () if by_name else ()
    items = [DeleteTopicsRequest.DeleteTopicState(name=name) async for name in sliced(names)]
    items = items if by_name else call.request.topics or []
    times = await times_of((item.name, item.topic_id) for item in items)

    async def judged(item: DeleteTopicsRequest.DeleteTopicState) -> _Deleted | None:
        # What occurs twice is an error, which takes precedence over the denial.
        return await _refusal_to_delete(call, item) if times[item.name, item.topic_id] == 1 else None

    answers = await fan_out(judged, items)
    refused = [answer async for answer in sliced(answers) if answer is not None]
    async for answer in sliced(refused):
        call.count_error(ErrorCode(answer.error_code))
    if len(refused) == len(items):
        return Reply(DeleteTopicsResponse(responses=refused))
    allowed = [item async for item, answer in sliced(zip(items, answers, strict=True)) if answer is None]
    asked = [item.name async for item in sliced(allowed)] if by_name else allowed
    request = changed(call.request, "topic_names" if by_name else "topics", asked)
    return handle(call.asking(request)).then(
        lambda response: changed(response, "responses", response.responses + refused)
    )


async def _refusal_to_delete(call: Call, item: DeleteTopicsRequest.DeleteTopicState) -> _Deleted | None:
    """None if the handler may delete the topic. It gets no unknown id: the topic may be known when it looks for it."""
    topic_id, name = item.topic_id, item.name
    if (name is None) == (topic_id is None):
        return None  # the handler refuses it
    if topic_id is not None:
        try:
            name = await topic_name(call, topic_id)
        except PulsarError as error:
            return _Deleted(name=None, topic_id=topic_id, error_code=error_code(error), error_message=str(error))
    if name is None:
        return _Deleted(name=None, topic_id=topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID, error_message=UNKNOWN_ID)
    may_describe = _may(call, AclOperation.DESCRIBE, name)
    if _may(call, AclOperation.DELETE, name) and (may_describe or topic_id is not None):
        return None
    if topic_id is None:
        return await _refused_name(call, name) if may_describe else _denied(call, name)
    return _denied(call, name, topic_id, is_shown=may_describe)


async def _refused_name(call: Call, name: str) -> _Deleted:
    """A client that may describe a topic learns that there is none."""
    try:
        topic = await call.topics.get(name)
    except PulsarError as error:
        return _Deleted(name=name, topic_id=None, error_code=error_code(error), error_message=str(error))
    if topic is not None:
        return _denied(call, name)
    return _Deleted(
        name=name, topic_id=None, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message=UNKNOWN_NAME
    )


def _denied(call: Call, name: str, topic_id: uuid.UUID | None = None, *, is_shown: bool = True) -> _Deleted:
    call.audit_denied(AclOperation.DELETE, ResourceType.TOPIC, name)
    return _Deleted(
        name=name if is_shown else None, topic_id=topic_id, error_code=_DENIED, error_message=MESSAGES[_DENIED]
    )


# Leaders and replicas

_Elected = ElectLeadersResponse.ReplicaElectionResult
_elections = TopicRows(
    AclOperation.ALTER, "topic_partitions", "replica_election_results", _Elected,
    lambda **fields: _Elected.PartitionResult(
        error_message=MESSAGES[ErrorCode.CLUSTER_AUTHORIZATION_FAILED], **fields
    ),
    name="topic", asked_index=None, partitions="partition_result", index="partition_id",
)  # fmt: skip


def _refuse_elections(call: Call[ElectLeadersRequest], code: ErrorCode) -> ElectLeadersResponse:
    rows = [_elections.refused(row, code) for row in call.request.topic_partitions or ()]
    return ElectLeadersResponse(error_code=code, replica_election_results=rows)


_Reassigned = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_reassignments = TopicRows(
    AclOperation.ALTER, "topics", "responses", _Reassigned,
    lambda **fields: _Reassigned.ReassignablePartitionResponse(
        error_message=MESSAGES[ErrorCode.CLUSTER_AUTHORIZATION_FAILED], **fields
    ),
)  # fmt: skip


def _refuse_reassignments(
    call: Call[AlterPartitionReassignmentsRequest], code: ErrorCode
) -> AlterPartitionReassignmentsResponse:
    """With each partition: Java's client reports an unknown error if one is missing."""
    rows = [_reassignments.refused(row, code) for row in call.request.topics or ()]
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=MESSAGES[code], responses=rows)


ELECT_LEADERS = needs_cluster(AclOperation.ALTER, _refuse_elections)
ALTER_PARTITION_REASSIGNMENTS = needs_cluster(AclOperation.ALTER, _refuse_reassignments)
LIST_PARTITION_REASSIGNMENTS = needs_cluster(AclOperation.DESCRIBE, with_error_and_text)
