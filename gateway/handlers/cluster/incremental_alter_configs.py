"""IncrementalAlterConfigs (key 44), v0-v1 (KIP-339). v1 flexible.

Each configuration is set, deleted (reset to its default), or, if it is a list, extended or reduced.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import partial

from gateway.errors import KafkaError
from gateway.requests.call import Call
from gateway.requests.config_resources import (
    ResourceType,
    alter_all,
    check_broker,
    check_broker_name,
    check_count,
    check_group_name,
    check_names,
    check_topic_name,
    invalid,
    refuse_broker,
    refuse_client_metrics,
    stop_writers,
    unknown_type,
)
from gateway.topics.config_values import ConfigType
from gateway.topics.topic_configs import TOPIC_CONFIGS, check_size, list_parts
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.cluster import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse

_Resource = IncrementalAlterConfigsRequest.AlterConfigsResource


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def handle(call: Call[IncrementalAlterConfigsRequest]) -> IncrementalAlterConfigsResponse:
    row = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    rows = await alter_all(call, call.request.resources, partial(_alter, call), row)
    return IncrementalAlterConfigsResponse(responses=rows)


def is_wrong(call: Call[IncrementalAlterConfigsRequest], resource: _Resource) -> bool:
    """Whether the resource is refused, whatever rights the client has."""
    try:
        _check(call, resource)
    except KafkaError:
        return True
    return False


def _check(call: Call[IncrementalAlterConfigsRequest], resource: _Resource) -> None:
    """Raises KafkaError."""
    check_count(resource)
    without_value = [
        each.name for each in resource.configs if each.value is None and each.config_operation != Operation.DELETE
    ]
    check_names([each.name for each in resource.configs], without_value)
    check_broker_name(call, resource)


async def _alter(call: Call[IncrementalAlterConfigsRequest], resource: _Resource) -> None:
    _check(call, resource)
    kind, name, operations = resource.resource_type, resource.resource_name, resource.configs
    changed = [each.name for each in operations if each.config_operation != Operation.DELETE]
    if kind == ResourceType.BROKER:
        refuse_broker(call, name, changed)
    elif kind == ResourceType.BROKER_LOGGER:
        _refuse_loggers(call, name, operations)
    elif kind == ResourceType.CLIENT_METRICS:
        refuse_client_metrics(name, changed)
    elif kind == ResourceType.TOPIC:
        check_topic_name(name)
        await call.cluster.topics.alter_configs(
            name, lambda present: _changed(present, operations), validate_only=call.request.validate_only,
            requested=call.topics, when_hidden=lambda: stop_writers(call.cluster, name),
        )  # fmt: skip
    elif kind == ResourceType.GROUP:
        check_group_name(name)
        configs, validate_only = call.cluster.group_service.configs, call.request.validate_only
        await configs.alter(name, lambda present: _changed(present, operations), validate_only=validate_only)
    else:
        raise unknown_type(kind)


def _changed(present: Mapping[str, str], operations: list[_Resource.AlterableConfig]) -> dict[str, str]:
    configs = dict(present)
    for each in operations:
        value = each.value or ""  # null is refused where a value is required
        if each.config_operation == Operation.SET:
            configs[each.name] = value
        elif each.config_operation == Operation.DELETE:
            configs.pop(each.name, None)
        else:
            configs[each.name] = changed_list(configs, each.name, each.config_operation, value)
    return configs


def changed_list(configs: Mapping[str, str], name: str, operation: int, value: str) -> str:
    if operation not in set(Operation):
        raise invalid(f"Unknown operations type {operation}")
    config = TOPIC_CONFIGS.get(name)
    if config is None or config.kind is not ConfigType.LIST:
        text = f"Can't {Operation(operation).name} to key {name} because its type is not LIST."
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)
    check_size(value)
    parts, others = list_parts(configs.get(name, config.default)), _named_parts(value)
    if operation == Operation.APPEND:
        parts += [part for part in dict.fromkeys(others) if part not in parts]
    else:
        parts = [part for part in parts if part not in others]
    return ",".join(parts)


def _named_parts(value: str) -> list[str]:
    """Elements to add or remove. As in Kafka, an empty one counts, unless it is at the end of others."""
    if not value:
        return [""]
    return value.rstrip(",").split(",") if value.strip(",") else []


def _refuse_loggers(call: Call, name: str, operations: list[_Resource.AlterableConfig]) -> None:
    if not name:
        raise invalid("Node id must be an integer, but it is: ")
    check_broker(call, name)
    for each in operations:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {each.name} does not exist!")
