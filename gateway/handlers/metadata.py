"""Metadata (key 3), v0-v13.

v0 no topics means all; v1 null means all, controller id, racks; v2 cluster id; v4 auto-creation may be forbidden;
v5 offline replicas; v7 leader epochs; v8 authorized operations; v9 flexible; v10 topic ids; v12 by topic id;
v13 a top-level error.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable

import structlog
from kafka.protocol.metadata import MetadataResponse

from gateway.handlers.call import Call, Response
from gateway.handlers.cluster import Cluster
from gateway.pulsar.errors import PulsarError
from gateway.storage import topic_names
from gateway.storage.errors import KafkaError
from gateway.storage.topics import Topic
from protocol.kafka.errors import ErrorCode

TOPIC_OPERATIONS = {3, 4, 5, 6, 7, 8, 10, 11}
_CLUSTER_OPERATIONS = {5, 7, 8, 9, 10, 11, 12}
"""Without an authorizer a client may do everything (AclOperation codes)."""
LISTENER_ERROR_VERSION = 6
FIRST_OPERATIONS_VERSION = 8
FIRST_ID_VERSION, BY_ID_VERSION = 10, 12
_NO_ID = uuid.UUID(int=0)

log = structlog.get_logger()


async def handle(call: Call) -> Response:
    request, services = call.request, call.services
    wanted = request.topics
    if wanted is None or (call.version == 0 and not wanted):
        rows = [_row(call, topic) for topic in await services.topics.all()]
    else:
        code = _malformed(call.version, wanted)
        if code:
            return _refused(call, wanted, code)
        named = {(item.name, item.topic_id): item for item in wanted}.values()
        rows = list(await asyncio.gather(*(_lookup(call, item.name, item.topic_id) for item in named)))
    cluster = Cluster(call)
    asked = FIRST_OPERATIONS_VERSION <= call.version <= 10 and request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=node.node_id, host=node.host, port=node.port, rack=node.rack
            )
            for node in cluster.nodes
        ],
        cluster_id=services.cluster_id,
        controller_id=cluster.controller_id,
        topics=rows,
        authorized_operations=_CLUSTER_OPERATIONS if asked else None,
    )


def _malformed(version: int, wanted: Iterable[Response]) -> ErrorCode:
    """Topic ids are in the schema from v10 on, but asked by only from v12 on."""
    if FIRST_ID_VERSION <= version < BY_ID_VERSION and any(item.topic_id or item.name is None for item in wanted):
        return ErrorCode.INVALID_REQUEST
    if version >= BY_ID_VERSION and any(item.topic_id is None and item.name is None for item in wanted):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE


def _refused(call: Call, wanted: Iterable[Response], code: ErrorCode) -> Response:
    rows = [_failed(call, item.name, code, item.topic_id or _NO_ID) for item in wanted]
    return MetadataResponse(brokers=[], cluster_id=None, controller_id=-1, topics=rows, error_code=code)


async def _lookup(call: Call, name: str | None, topic_id: uuid.UUID | None) -> Response:
    try:
        if topic_id is not None and call.version >= 10:
            topic = await call.services.topics.get_by_id(topic_id)
            return _row(call, topic) if topic else _failed(call, None, ErrorCode.UNKNOWN_TOPIC_ID, topic_id)
        if name is None:
            return _failed(call, name, ErrorCode.INVALID_TOPIC_EXCEPTION)
        topic = await call.services.topics.get(name)
        if topic is None:
            topic = await _create(call, name)
        return _row(call, topic)
    except KafkaError as error:
        return _failed(call, name, error.code)
    except PulsarError as error:
        log.warning("metadata", topic=name, error=str(error))
        return _failed(call, name, ErrorCode.LEADER_NOT_AVAILABLE)


async def _create(call: Call, name: str) -> Topic:
    """Auto-create as Kafka does, if the gateway and the client allow it. Raises KafkaError and PulsarError."""
    if topic_names.invalid_reason(name) is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if name in topic_names.INTERNAL_TOPICS:  # coordinators create these
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    services = call.services
    allowed = services.config.kafka.auto_create_topics and (call.version < 4 or call.request.allow_auto_topic_creation)
    if not allowed:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        topic = await services.topics.create(name, services.config.kafka.default_partitions, {})
    except KafkaError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        existing = await services.topics.get(name)
        if existing is None:  # it is being deleted
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from error
        return existing
    log.info("topic created on first use", topic=name, client_id=call.client_id, address=call.client.address)
    return topic


def _row(call: Call, topic: Topic) -> Response:
    cluster = Cluster(call)
    return MetadataResponse.MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in topic_names.INTERNAL_TOPICS,
        partitions=[_partition(cluster, call.version, topic.name, number) for number in range(topic.partitions)],
        authorized_operations=TOPIC_OPERATIONS if _operations_asked(call) else None,
    )


def _partition(cluster: Cluster, version: int, topic: str, number: int) -> Response:
    """Its leader is its only replica."""
    leader, error = cluster.leader_or_error(topic, number)
    if error is ErrorCode.LISTENER_NOT_FOUND and version < LISTENER_ERROR_VERSION:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponse.MetadataResponseTopic.MetadataResponsePartition(
        error_code=error, partition_index=number,
        leader_id=leader.node_id, leader_epoch=cluster.epoch, replica_nodes=[leader.node_id],
        isr_nodes=[leader.node_id], offline_replicas=[],
    )  # fmt: skip


def _operations_asked(call: Call) -> bool:
    return call.version >= FIRST_OPERATIONS_VERSION and bool(call.request.include_topic_authorized_operations)


def _failed(call: Call, name: str | None, code: ErrorCode, topic_id: uuid.UUID = _NO_ID) -> Response:
    call.count_error(code)
    if name is None and (call.version < BY_ID_VERSION or code != ErrorCode.UNKNOWN_TOPIC_ID):
        name = ""
    return MetadataResponse.MetadataResponseTopic(
        error_code=code,
        name=name,
        topic_id=topic_id,
        is_internal=False,
        partitions=[],
        authorized_operations=TOPIC_OPERATIONS if _operations_asked(call) else None,
    )
