"""ListConfigResources (key 74), v0-v1. v0 is ListClientMetricsResources (KIP-1000): there are none.

v1 (KIP-1142) lists resources of the requested types, or of all types: topics, brokers, and groups with configurations.
Kafka 3.9 does not know v1.
"""

from __future__ import annotations

from gateway.errors import KafkaError, error_code
from gateway.pulsar.errors import PulsarError
from gateway.requests.brokers import Brokers
from gateway.requests.call import Call
from gateway.requests.config_resources import ResourceType
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.cluster import ListConfigResourcesRequest, ListConfigResourcesResponse


async def handle(call: Call[ListConfigResourcesRequest]) -> ListConfigResourcesResponse:
    if call.version == 0:
        return _answer([])
    wanted = set(call.request.resource_types or ResourceType)
    if wanted - set(ResourceType):
        call.count_error(ErrorCode.UNSUPPORTED_VERSION)
        return _answer([], ErrorCode.UNSUPPORTED_VERSION)
    try:
        found = [(kind, name) for kind in sorted(wanted) for name in await _names(call, kind)]
    except (KafkaError, PulsarError) as error:
        code = error_code(error)
        call.count_error(code)
        return _answer([], code)
    return _answer(found)


async def _names(call: Call, kind: int) -> list[str]:
    if kind == ResourceType.TOPIC:
        return sorted(await call.cluster.topics.list_names())
    if kind in {ResourceType.BROKER, ResourceType.BROKER_LOGGER}:
        return [str(node.node_id) for node in Brokers(call).nodes]
    return sorted(await call.cluster.group_service.configs.all()) if kind == ResourceType.GROUP else []


def _answer(found: list[tuple[int, str]], code: ErrorCode = ErrorCode.NONE) -> ListConfigResourcesResponse:
    row = ListConfigResourcesResponse.ConfigResource
    return ListConfigResourcesResponse(
        error_code=code, config_resources=[row(resource_name=name, resource_type=kind) for kind, name in found]
    )
