"""Metadata (key 3), v0-v13.

v0 no topics means all; v1 null means all, controller id, racks; v2 cluster id; v4 auto-creation may be forbidden;
v5 offline replicas; v7 leader epochs; v8 authorized operations; v9 flexible; v10 topic ids; v12 by topic id;
v13 a top-level error.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from contextlib import suppress

import structlog
from kafka.protocol.metadata import MetadataResponse

from gateway.errors import KafkaError, error_code
from gateway.pulsar.errors import PulsarError
from gateway.requests.call import Call, Response
from gateway.requests.cluster import Cluster
from gateway.requests.fan_out import Slices, fan_out
from gateway.topics import topic_names
from gateway.topics.topic import Topic
from protocol.kafka.errors import ErrorCode

TOPIC_OPERATIONS = {3, 4, 5, 6, 7, 8, 10, 11}
_CLUSTER_OPERATIONS = {5, 7, 8, 9, 10, 11, 12}
"""Without an authorizer a client may do everything (AclOperation codes)."""
FIRST_CHOICE_VERSION, LISTENER_ERROR_VERSION, FIRST_OPERATIONS_VERSION = 4, 6, 8
FIRST_ID_VERSION, BY_ID_VERSION = 10, 12
MAX_LOOKUPS = 100
"""Unknown names of one request that Pulsar is asked about one by one."""
_NO_ID = uuid.UUID(int=0)

log = structlog.get_logger()


async def handle(call: Call) -> Response:
    request, services = call.request, call.services
    wanted = request.topics
    if wanted is None or (call.version == 0 and not wanted):
        try:
            rows = await _all_rows(call)
        except PulsarError as error:  # there never was a listing
            log.warning("metadata of all topics", error=str(error))
            return _refused(call, (), error_code(error))
    else:
        code = _malformed(call.version, wanted)
        if code:
            return _refused(call, wanted, code)
        rows = await _NamedTopics(call).rows(wanted)
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


async def _all_rows(call: Call) -> list[Response]:
    """Raises PulsarError."""
    topics, unknown = await call.services.topics.all()
    slices = Slices()
    rows = [await _row(call, topic, slices) for topic in topics]
    return rows + [_failed(call, name, ErrorCode.LEADER_NOT_AVAILABLE) for name in unknown]


class _NamedTopics:
    """The topics that a request names; those that do not exist are created, if the gateway and the client allow it."""

    def __init__(self, call: Call) -> None:
        self._call = call
        kafka = call.services.config.kafka
        asks = call.version < FIRST_CHOICE_VERSION or call.request.allow_auto_topic_creation
        self._may_create = kafka.max_auto_created_topics if kafka.auto_create_topics and asks else 0
        self._creates = bool(self._may_create)
        self._existing: AbstractSet[str] | None = None
        self._slices = Slices()

    async def rows(self, wanted: Iterable[Response]) -> list[Response]:
        cached = self._call.services.topics.cached
        named: dict[tuple[str | None, uuid.UUID | None], None] = {}
        unknown = 0
        for item in wanted:
            await self._slices.pause()
            named[item.name, item.topic_id] = None
            unknown += item.name is not None and cached(item.name) is None
        if unknown > MAX_LOOKUPS:  # one listing instead of so many requests
            with suppress(PulsarError):
                self._existing = await self._call.services.topics.list_names()
        return await fan_out(lambda key: self._row(*key), list(named))

    async def _row(self, name: str | None, topic_id: uuid.UUID | None) -> Response:
        call = self._call
        try:
            if topic_id is not None and call.version >= FIRST_ID_VERSION:
                topic = await call.services.topics.get_by_id(topic_id)
                if topic is None:
                    return _failed(call, None, ErrorCode.UNKNOWN_TOPIC_ID, topic_id)
                return await _row(call, topic, self._slices)
            if name is None:
                return _failed(call, name, ErrorCode.INVALID_TOPIC_EXCEPTION)
            return await _row(call, await self._found(name) or await self._create(name), self._slices)
        except KafkaError as error:
            return _failed(call, name, error.code)
        except PulsarError as error:
            log.warning("metadata", topic=name, error=str(error))
            return _failed(call, name, ErrorCode.LEADER_NOT_AVAILABLE)

    async def _found(self, name: str) -> Topic | None:
        catalog = self._call.services.topics
        if self._existing is not None and name not in self._existing:
            return catalog.cached(name)
        return await catalog.get(name)

    async def _create(self, name: str) -> Topic:
        """As Kafka creates topics on first use. Raises KafkaError and PulsarError."""
        if topic_names.invalid_reason(name) is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if name in topic_names.INTERNAL_TOPICS or not self._creates:  # coordinators create internal ones
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self._may_create == 0:  # enough for one request: the client asks again
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        self._may_create -= 1
        return await _create(self._call, name)


async def _create(call: Call, name: str) -> Topic:
    services = call.services
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


async def _row(call: Call, topic: Topic, slices: Slices) -> Response:
    cluster, name = Cluster(call), topic.name
    has_listener_error = call.version >= LISTENER_ERROR_VERSION
    partitions = await call.services.partition_rows.get(
        name,
        (cluster.perspective, has_listener_error),
        lambda: cluster.view,
        topic.partitions,
        lambda numbers: _partitions(call, name, numbers),
        slices,
    )
    return MetadataResponse.MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in topic_names.INTERNAL_TOPICS,
        partitions=partitions,
        authorized_operations=TOPIC_OPERATIONS if _operations_asked(call) else None,
    )


def _partitions(call: Call, topic: str, numbers: range) -> list[Response]:
    cluster = Cluster(call)  # of this moment: the fleet may have changed since the request came
    return [_partition(cluster, call.version, topic, number) for number in numbers]


def _partition(cluster: Cluster, version: int, topic: str, number: int) -> Response:
    leader, error = cluster.leader_or_error(topic, number)
    replicas = cluster.replicas(topic, number, leader.node_id)
    if error is ErrorCode.LISTENER_NOT_FOUND and version < LISTENER_ERROR_VERSION:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponse.MetadataResponseTopic.MetadataResponsePartition(
        error_code=error, partition_index=number,
        leader_id=leader.node_id, leader_epoch=cluster.epoch, replica_nodes=replicas,
        isr_nodes=replicas, offline_replicas=[],
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
