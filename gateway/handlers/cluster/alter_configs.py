"""AlterConfigs (key 33), v0-v2. v2 flexible. What is not named goes back to its default: IncrementalAlterConfigs (44)
replaced it for that reason.
"""

from __future__ import annotations

from gateway.requests.call import Call
from gateway.requests.config_resources import (
    ResourceType,
    alter_all,
    check_group_name,
    check_names,
    check_topic_name,
    refuse_broker,
    refuse_client_metrics,
    unknown_type,
)
from gateway.requests.reply import Response
from protocol.kafka.messages.cluster import AlterConfigsResponse


async def handle(call: Call) -> Response:
    rows = await alter_all(call, _alter, AlterConfigsResponse.AlterConfigsResourceResponse)
    return AlterConfigsResponse(responses=rows)


async def _alter(call: Call, resource: Response) -> None:
    check_names(resource.configs, [config.name for config in resource.configs if config.value is None])
    kind, name = resource.resource_type, resource.resource_name
    configs = {config.name: config.value for config in resource.configs}
    if kind == ResourceType.BROKER:
        refuse_broker(call, name, configs)
    elif kind == ResourceType.CLIENT_METRICS:
        refuse_client_metrics(name, configs)
    elif kind == ResourceType.TOPIC:
        check_topic_name(name)
        validate_only = call.request.validate_only
        await call.cluster.topics.alter_configs(name, lambda _: configs, validate_only=validate_only)
    elif kind == ResourceType.GROUP:
        check_group_name(name)
        await call.cluster.groups.configs.alter(name, lambda _: configs, validate_only=call.request.validate_only)
    else:
        raise unknown_type(kind)
