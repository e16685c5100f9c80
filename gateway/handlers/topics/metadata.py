"""Metadata (key 3), v0-v13.

v0 no topics means all; v1 null means all, controller id, racks; v2 cluster id; v4 auto-creation may be forbidden;
v5 offline replicas; v7 leader epochs; v8 authorized operations; v9 flexible; v10 topic ids; v12 by topic id;
v13 a top-level error.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import structlog

from gateway.errors import KafkaError, error_code
from gateway.fan_out import Slices, fan_out, sliced
from gateway.observability.logs import LINES_PER_S, SparseLog
from gateway.pulsar.errors import PulsarError
from gateway.requests.brokers import Brokers
from gateway.requests.call import Call
from gateway.requests.partition_rows import MetadataPartition
from gateway.topics import topic_names
from gateway.topics.topic import Topic
from protocol.kafka.acl import CLUSTER_NAME, NOT_ASKED, AclOperation, ResourceType, bit_field
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.topics import MetadataRequest, MetadataResponse

FIRST_CHOICE_VERSION, LISTENER_ERROR_VERSION, FIRST_OPERATIONS_VERSION = 4, 6, 8
FIRST_ID_VERSION, BY_ID_VERSION = 10, 12
_Wanted = MetadataRequest.MetadataRequestTopic
_Topic = MetadataResponse.MetadataResponseTopic
_NO_ID = uuid.UUID(int=0)

log = SparseLog(structlog.get_logger(), lines=LINES_PER_S)


async def handle(call: Call[MetadataRequest]) -> MetadataResponse:
    request = call.request
    wanted = request.topics
    if wanted is None or (call.version == 0 and not wanted):
        try:
            rows = await _all_rows(call)
        except PulsarError as error:  # The topics were never listed.
            log.warning("metadata of all topics", error=str(error))
            return await _refused(call, (), error_code(error))
    else:
        wanted = looked_up(call.version, wanted)
        code = _malformed(call.version, wanted)
        if code:
            return await _refused(call, wanted, code)
        rows = await _NamedTopics(call).rows(wanted)
    brokers = Brokers(call)
    asked = FIRST_OPERATIONS_VERSION <= call.version <= 10 and request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=node.node_id, host=node.host, port=node.port, rack=node.rack
            )
            for node in brokers.nodes
        ],
        cluster_id=call.cluster.cluster_id,
        controller_id=brokers.controller_id,
        topics=rows,
        cluster_authorized_operations=bit_field(call.context.policy.cluster_operations()) if asked else NOT_ASKED,
    )


def _malformed(version: int, wanted: Iterable[_Wanted]) -> ErrorCode:
    """Topic ids are in the schema from v10 on, but may be requested only from v12 on."""
    if FIRST_ID_VERSION <= version < BY_ID_VERSION and any(item.topic_id or item.name is None for item in wanted):
        return ErrorCode.INVALID_REQUEST
    if version >= BY_ID_VERSION and any(item.topic_id is None and item.name is None for item in wanted):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE


def looked_up(version: int, wanted: list[_Wanted]) -> list[_Wanted]:
    """The topics that are in the answer: as in Kafka, only those with an id, if there are any."""
    by_id = [item for item in wanted if item.topic_id is not None] if version >= BY_ID_VERSION else []
    return by_id or wanted


async def _refused(call: Call[MetadataRequest], wanted: Iterable[_Wanted], code: ErrorCode) -> MetadataResponse:
    """Without operations: nothing was looked up."""
    rows = [_failed(call, item.name, code, item.topic_id or _NO_ID) async for item in sliced(wanted)]
    async for row in sliced(rows):
        row.topic_authorized_operations = NOT_ASKED
    return MetadataResponse(brokers=[], cluster_id=None, controller_id=-1, topics=rows, error_code=code)


async def _all_rows(call: Call[MetadataRequest]) -> list[_Topic]:
    """Raises PulsarError."""
    topics, unknown = await call.cluster.topics.all()
    slices, rows = Slices(), []
    for topic in topics:
        await slices.pause()
        rows.append(await _row(call, topic, slices))
    return rows + [_failed(call, name, ErrorCode.LEADER_NOT_AVAILABLE) async for name in sliced(unknown)]


class _NamedTopics:
    """The topics that a request names. Missing ones are created, if the gateway and the client allow it."""

    def __init__(self, call: Call[MetadataRequest]) -> None:
        self._call = call
        kafka = call.cluster.config.kafka
        asks = call.version < FIRST_CHOICE_VERSION or call.request.allow_auto_topic_creation
        self._may_create = kafka.max_auto_created_topics if kafka.auto_create_topics and asks else 0
        self._creates = bool(self._may_create)
        self._slices = Slices()

    async def rows(self, wanted: Iterable[_Wanted]) -> list[_Topic]:
        named: dict[tuple[str | None, uuid.UUID | None], None] = {}
        for item in wanted:
            await self._slices.pause()
            named[item.name, item.topic_id] = None
        return await fan_out(lambda key: self._row(*key), list(named))

    async def _row(self, name: str | None, topic_id: uuid.UUID | None) -> _Topic:
        call = self._call
        try:
            if topic_id is not None and call.version >= FIRST_ID_VERSION:
                topic = await call.cluster.topics.get_by_id(topic_id)
                if topic is None:
                    return _failed(call, None, ErrorCode.UNKNOWN_TOPIC_ID, topic_id)
                return await _row(call, topic, self._slices)
            if name is None:
                return _failed(call, name, ErrorCode.INVALID_TOPIC_EXCEPTION)
            return await _row(call, await call.topics.get(name) or await self._create(name), self._slices)
        except KafkaError as error:
            return _failed(call, name, error.code)
        except PulsarError as error:
            log.warning("metadata", topic=name, error=str(error))
            return _failed(call, name, ErrorCode.LEADER_NOT_AVAILABLE)

    async def _create(self, name: str) -> Topic:
        """Creates the topic on first use, as Kafka does. Raises KafkaError and PulsarError."""
        if topic_names.invalid_reason(name) is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if name in topic_names.NOT_FOR_CLIENTS or not self._creates:  # Coordinators create internal topics.
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not self._is_allowed_to_create(name):
            self._call.audit_denied(AclOperation.CREATE, ResourceType.TOPIC, name)
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if self._may_create == 0:  # Enough for one request: the client asks again.
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        self._may_create -= 1
        return await _create(self._call, name)

    def _is_allowed_to_create(self, name: str) -> bool:
        allows = self._call.context.policy.allows
        return allows(AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME) or allows(
            AclOperation.CREATE, ResourceType.TOPIC, name
        )


async def _create(call: Call, name: str) -> Topic:
    cluster = call.cluster
    try:
        topic = await cluster.topics.create(name, cluster.config.kafka.default_partitions, {})
    except KafkaError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        existing = await cluster.topics.get(name)
        if existing is None:  # The topic is being deleted.
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from error
        return existing
    log.info("topic created on first use", topic=name, client_id=call.client_id, address=call.client.address)
    return topic


async def _row(call: Call[MetadataRequest], topic: Topic, slices: Slices) -> _Topic:
    name = topic.name
    has_listener_error = call.version >= LISTENER_ERROR_VERSION
    partitions = await call.cluster.partition_rows.get(
        name,
        (Brokers(call).perspective, has_listener_error),
        lambda: Brokers(call).view,
        topic.partitions,
        lambda numbers: _partitions(call, name, numbers),
        slices,
    )
    return _Topic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in topic_names.INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=_topic_operations(call, topic.name),
    )


def _partitions(call: Call, topic: str, numbers: range) -> list[MetadataPartition]:
    brokers = Brokers(call)  # as of now: the fleet may have changed since the request arrived
    return [_partition(brokers, call.version, topic, number) for number in numbers]


def _partition(brokers: Brokers, version: int, topic: str, number: int) -> MetadataPartition:
    leader, error = brokers.leader_or_error(topic, number)
    replicas = brokers.replicas(topic, number, leader.node_id)
    if error is ErrorCode.LISTENER_NOT_FOUND and version < LISTENER_ERROR_VERSION:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataPartition(
        error_code=error, partition_index=number,
        leader_id=leader.node_id, leader_epoch=brokers.epoch, replica_nodes=replicas,
        isr_nodes=replicas, offline_replicas=[],
    )  # fmt: skip


def _topic_operations(call: Call[MetadataRequest], topic: str) -> int:
    asked = call.version >= FIRST_OPERATIONS_VERSION and call.request.include_topic_authorized_operations
    return bit_field(call.context.policy.topic_operations(topic)) if asked else NOT_ASKED


def _failed(call: Call[MetadataRequest], name: str | None, code: ErrorCode, topic_id: uuid.UUID = _NO_ID) -> _Topic:
    call.count_error(code)
    if name is None and (call.version < BY_ID_VERSION or code != ErrorCode.UNKNOWN_TOPIC_ID):
        name = ""
    return _Topic(
        error_code=code,
        name=name,
        topic_id=topic_id,
        is_internal=False,
        partitions=[],
        topic_authorized_operations=NOT_ASKED if name is None else _topic_operations(call, name),
    )
