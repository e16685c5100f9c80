"""CreateTopics (key 19), v0-v7. v1 validate-only and messages; v4 defaults by -1; v5 flexible, configs in the answer
(KIP-525); v6 refusals above the quota (KIP-599); v7 topic ids. Of manual assignments, only the number of partitions
counts.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gateway.errors import KafkaError, error_code
from gateway.fan_out import fan_out, sliced
from gateway.handlers.topics.controller_timeout import is_over
from gateway.pulsar.errors import PulsarError
from gateway.requests.broker_configs import effective_configs
from gateway.requests.brokers import Brokers
from gateway.requests.call import Call
from gateway.requests.repeated import times_of
from gateway.requests.replica_assignment import check_assignments
from gateway.topics.topic_configs import check_configs
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.topics import CreateTopicsRequest, CreateTopicsResponse

MAX_PARTITIONS = 10_000
"""Partitions of one request, as in Kafka, also those of invalid topics."""
MAX_RECORDS = 10_000
"""Kafka's controller writes at most so many records for a request: one for each topic, partition and configuration."""
MAX_TOPICS = 5_000
"""Topics of one request: each needs two of these records, at least."""
TOO_MANY = "Unable to perform excessively large batch operation."

_Wanted = CreateTopicsRequest.CreatableTopic
_Row = CreateTopicsResponse.CreatableTopicResult


class _Planned(NamedTuple):
    name: str
    partitions: int
    configs: Mapping[str, str]


async def handle(call: Call[CreateTopicsRequest]) -> CreateTopicsResponse:
    request = call.request
    named = await times_of(topic.name for topic in request.topics)
    once = [topic async for topic in sliced(request.topics) if named[topic.name] == 1]
    if once and is_over(request.timeout_ms):
        rows = [_failed(topic.name, ErrorCode.REQUEST_TIMED_OUT, None) async for topic in sliced(request.topics)]
    elif await _names_too_much(call, once) or (created := await _create_all(call, once)) is None:
        rows = [_failed(topic.name, ErrorCode.POLICY_VIOLATION, TOO_MANY) async for topic in sliced(request.topics)]
    else:
        duplicates = [name async for name, times in sliced(named.items()) if times > 1]
        rows = created + [
            _failed(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.") async for name in sliced(duplicates)
        ]
    async for row in sliced(rows):
        if row.error_code:
            call.count_error(ErrorCode(row.error_code))
    return CreateTopicsResponse(topics=rows)


async def _names_too_much(call: Call[CreateTopicsRequest], wanted: Sequence[_Wanted]) -> bool:
    default = call.cluster.config.kafka.default_partitions
    partitions = 0
    async for topic in sliced(wanted):
        count = default if topic.num_partitions == -1 else topic.num_partitions
        partitions += len(topic.assignments) or max(0, count)
        if partitions > MAX_PARTITIONS:
            return True
    return len(wanted) > MAX_TOPICS


async def _create_all(call: Call[CreateTopicsRequest], wanted: Sequence[_Wanted]) -> list[_Row] | None:
    """All topics are planned before the first one is created. None if they are too much for one request."""
    planned = await fan_out(lambda topic: _plan(call, topic), wanted, at_once=1)
    valid = [each async for each in sliced(planned) if isinstance(each, _Planned)]
    if sum([1 + len(each.configs) + each.partitions async for each in sliced(valid)]) > MAX_RECORDS:
        return None
    return await fan_out(lambda each: _create(call, each), planned, at_once=1)


async def _plan(call: Call[CreateTopicsRequest], wanted: _Wanted) -> _Planned | _Row:
    try:
        await call.cluster.topics.check_creatable(wanted.name)
        configs = check_configs({config.name: config.value async for config in sliced(wanted.configs or ())})
        partitions = _partitions(call, wanted)
        call.charge_mutations(partitions)
        return _Planned(wanted.name, partitions, configs)
    except KafkaError as error:
        return _failed(wanted.name, error.code, error.text)
    except PulsarError as error:
        return _failed(wanted.name, error_code(error), str(error))


async def _create(call: Call[CreateTopicsRequest], planned: _Planned | _Row) -> _Row:
    if not isinstance(planned, _Planned):
        return planned
    name, partitions, configs = planned
    if call.version >= 1 and call.request.validate_only:
        return _created(call, name, uuid.uuid4(), partitions, configs)
    try:
        created = await call.cluster.topics.create(name, partitions, configs)
    except KafkaError as error:
        return _failed(name, error.code, error.text)
    except PulsarError as error:
        return _failed(name, error_code(error), str(error))
    return _created(call, name, created.topic_id, partitions, configs)


def _partitions(call: Call, wanted: _Wanted) -> int:
    if wanted.assignments:
        if wanted.num_partitions != -1 or wanted.replication_factor != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but numPartitions was not set to -1."
                if wanted.num_partitions != -1
                else "A manual partition assignment was specified, but replication factor was not set to -1.",
            )
        return _assigned_partitions(call, wanted.assignments)
    if wanted.replication_factor not in {-1, 1}:
        _check_replication_factor(wanted.replication_factor)
    if wanted.num_partitions == -1:
        return call.cluster.config.kafka.default_partitions
    if wanted.num_partitions <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    return wanted.num_partitions


def _check_replication_factor(factor: int) -> None:
    # BookKeeper replicates, independent of the request: every positive factor is accepted.
    if factor <= 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )


def _assigned_partitions(call: Call, assignments: list[_Wanted.CreatableReplicaAssignment]) -> int:
    numbers = sorted(assignment.partition_index for assignment in assignments)
    if numbers != list(range(len(numbers))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    check_assignments(call, [assignment.broker_ids for assignment in assignments])
    return len(numbers)


def _created(
    call: Call, name: str, topic_id: uuid.UUID | None, partitions: int, configs: Mapping[str, str]
) -> _Row:
    return _Row(
        name=name, topic_id=topic_id, error_code=0, error_message=None, num_partitions=partitions,
        replication_factor=Brokers(call).replication_factor,
        configs=[
            _Row.CreatableTopicConfigs(
                name=each.config.name, value=each.value, read_only=False, config_source=each.source, is_sensitive=False
            )
            for each in effective_configs(call.cluster, configs)
        ],
    )  # fmt: skip


def _failed(name: str, code: ErrorCode, text: str | None) -> _Row:
    return _Row(
        name=name, error_code=code, error_message=text, num_partitions=-1, replication_factor=-1, configs=[]
    )
