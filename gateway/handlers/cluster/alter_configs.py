"""AlterConfigs (key 33), v0-v2. v2 flexible. Configurations that are not named are reset to their defaults, so
IncrementalAlterConfigs (key 44) replaced this API.
"""

from __future__ import annotations

from functools import partial

from gateway.errors import KafkaError
from gateway.requests.call import Call
from gateway.requests.config_resources import (
    ResourceType,
    alter_all,
    check_broker_name,
    check_count,
    check_group_name,
    check_names,
    check_topic_name,
    refuse_broker,
    refuse_client_metrics,
    stop_writers,
    unknown_type,
)
from protocol.kafka.messages.cluster import AlterConfigsRequest, AlterConfigsResponse


async def handle(call: Call[AlterConfigsRequest]) -> AlterConfigsResponse:
    row = AlterConfigsResponse.AlterConfigsResourceResponse
    rows = await alter_all(call, call.request.resources, partial(_alter, call), row)
    return AlterConfigsResponse(responses=rows)


def is_wrong(call: Call[AlterConfigsRequest], resource: AlterConfigsRequest.AlterConfigsResource) -> bool:
    """Whether the resource is refused, whatever rights the client has."""
    try:
        _check(call, resource)
    except KafkaError:
        return True
    return resource.resource_type == ResourceType.BROKER_LOGGER


def _check(call: Call[AlterConfigsRequest], resource: AlterConfigsRequest.AlterConfigsResource) -> None:
    """Raises KafkaError."""
    check_count(resource)
    without_value = [config.name for config in resource.configs if config.value is None]
    check_names([config.name for config in resource.configs], without_value)
    check_broker_name(call, resource)


async def _alter(call: Call[AlterConfigsRequest], resource: AlterConfigsRequest.AlterConfigsResource) -> None:
    _check(call, resource)
    kind, name = resource.resource_type, resource.resource_name
    configs = {config.name: config.value for config in resource.configs if config.value is not None}
    validate_only = call.request.validate_only
    if kind == ResourceType.BROKER:
        refuse_broker(call, name, configs)
    elif kind == ResourceType.CLIENT_METRICS:
        refuse_client_metrics(name, configs)
    elif kind == ResourceType.TOPIC:
        check_topic_name(name)
        topics = call.cluster.topics
        await topics.alter_configs(
            name, lambda _: configs, validate_only=validate_only, requested=call.topics,
            when_hidden=lambda: stop_writers(call.cluster, name),
        )  # fmt: skip
    elif kind == ResourceType.GROUP:
        check_group_name(name)
        await call.cluster.group_service.configs.alter(name, lambda _: configs, validate_only=validate_only)
    else:
        raise unknown_type(kind)
