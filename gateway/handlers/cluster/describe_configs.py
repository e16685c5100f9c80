"""DescribeConfigs (key 32), v0-v4. v1 sources and synonyms; v3 types and documentation (KIP-569); v4 flexible.

Resources are topics, this gateway, and groups, as in Kafka 4. There are no loggers and no client metrics subscriptions.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from gateway.coordination.groups.group_configs import DOCUMENTATION
from gateway.errors import KafkaError, error_code
from gateway.fan_out import sliced
from gateway.pulsar.errors import PulsarError
from gateway.requests.broker_configs import SOURCE_DEFAULT, SOURCE_GROUP, Synonym, broker_configs, effective_configs
from gateway.requests.brokers import Brokers
from gateway.requests.call import Call
from gateway.requests.config_resources import MAX_CONFIGS, ResourceType, broker_id
from gateway.requests.repeated import look_up_each
from gateway.topics import topic_names
from gateway.topics.config_values import ConfigType
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.cluster import DescribeConfigsRequest, DescribeConfigsResponse

FIRST_SYNONYMS_VERSION, FIRST_DOCUMENTATION_VERSION = 1, 3
_Resource = DescribeConfigsRequest.DescribeConfigsResource
_Result = DescribeConfigsResponse.DescribeConfigsResult
_Config = _Result.DescribeConfigsResourceResult


async def handle(call: Call[DescribeConfigsRequest]) -> DescribeConfigsResponse:
    resources = call.request.resources
    unknown = {each.resource_type async for each in sliced(resources)} - set(_ROWS)
    if unknown:  # As in Kafka, this fails the whole request.
        refusal = _invalid(f"Unexpected resource type {', '.join(map(str, sorted(unknown)))}")
        return DescribeConfigsResponse(results=[_failed(call, each, refusal) async for each in sliced(resources)])
    too_often = _invalid("The resource appears too often.")
    named = [
        _Asked(each.resource_type, each.resource_name, tuple((each.configuration_keys or ())[: MAX_CONFIGS + 1]))
        async for each in sliced(resources)
    ]
    results = await look_up_each(named, partial(_describe, call), lambda asked: _failed(call, asked, too_often))
    return DescribeConfigsResponse(results=results)


class _Asked(NamedTuple):
    resource_type: int
    resource_name: str
    keys: tuple[str, ...]
    """None means all."""


async def _describe(call: Call[DescribeConfigsRequest], resource: _Asked) -> _Result:
    try:
        if len(resource.keys) > MAX_CONFIGS:
            raise _invalid(f"At most {MAX_CONFIGS} configurations of a resource may be named.")
        rows = await _ROWS[ResourceType(resource.resource_type)](call, resource.resource_name)
    except (KafkaError, PulsarError) as error:
        return _failed(call, resource, error)
    keys = frozenset(resource.keys)
    return _Result(
        error_code=0, error_message="", resource_type=resource.resource_type, resource_name=resource.resource_name,
        configs=[row for row in rows if not keys or row.name in keys],
    )  # fmt: skip


def _failed(call: Call, resource: _Resource | _Asked, error: KafkaError | PulsarError) -> _Result:
    code = error_code(error)
    call.count_error(code)
    return _Result(
        error_code=code, error_message=str(error), resource_type=resource.resource_type,
        resource_name=resource.resource_name, configs=[],
    )  # fmt: skip


async def _topic_rows(call: Call[DescribeConfigsRequest], name: str) -> list[_Config]:
    reason = topic_names.invalid_reason(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    topic = await call.topics.get(name, fresh=True)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    return [
        _row(call, config.name, config.kind, value, config.documentation, synonyms, read_only=False)
        for config, value, synonyms in effective_configs(call.cluster, topic.configs)
    ]


async def _broker_rows(call: Call[DescribeConfigsRequest], name: str) -> list[_Config]:
    if name == "":
        return []  # the defaults of all brokers: nothing can set them
    node_id = Brokers(call).own_id
    if broker_id(name, "Broker id") != node_id:
        raise _invalid(f"Unexpected broker id, expected {node_id} or empty string, but received {name}")
    return [
        _row(call, each.name, each.kind, each.value, each.documentation, each.synonyms, read_only=True)
        for each in broker_configs(call.cluster, Brokers(call).own, call.context.listener.protocol).values()
    ]


async def _logger_rows(call: Call, name: str) -> list[_Config]:
    if name == "":
        raise _invalid("Broker id must not be empty")
    node_id = Brokers(call).own_id
    if broker_id(name, "Broker id") != node_id:
        raise _invalid(f"Unexpected broker id, expected {node_id} but received {name}")
    return []


async def _client_metrics_rows(call: Call, name: str) -> list[_Config]:
    if name == "":
        raise _invalid("Client metrics subscription name must not be empty")
    return []


async def _group_rows(call: Call[DescribeConfigsRequest], name: str) -> list[_Config]:
    """The group need not exist."""
    if name == "":
        raise _invalid("Group name must not be empty")
    configs = call.cluster.group_service.configs
    own = (await configs.all()).get(name, {})
    rows = []
    for key, default in configs.defaults.items():
        synonym = Synonym(key, own.get(key, default), SOURCE_GROUP if key in own else SOURCE_DEFAULT)
        rows.append(_row(call, key, ConfigType.INT, synonym.value, DOCUMENTATION[key], [synonym], read_only=False))
    return rows


_ROWS = {
    ResourceType.TOPIC: _topic_rows,
    ResourceType.BROKER: _broker_rows,
    ResourceType.BROKER_LOGGER: _logger_rows,
    ResourceType.CLIENT_METRICS: _client_metrics_rows,
    ResourceType.GROUP: _group_rows,
}


def _row(
    call: Call[DescribeConfigsRequest], name: str, kind: ConfigType, value: str | None, documentation: str,
    synonyms: list[Synonym], *, read_only: bool,
) -> _Config:  # fmt: skip
    with_synonyms = call.version >= FIRST_SYNONYMS_VERSION and call.request.include_synonyms
    documented = call.version >= FIRST_DOCUMENTATION_VERSION and call.request.include_documentation
    return _Config(
        name=name, value=value, read_only=read_only, is_default=False, is_sensitive=False,
        config_source=synonyms[0].source if synonyms else SOURCE_DEFAULT,
        synonyms=[_Config.DescribeConfigsSynonym(**each._asdict()) for each in synonyms] if with_synonyms else [],
        config_type=kind, documentation=documentation if documented else None,
    )  # fmt: skip


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, text)
