"""ListConfigResources (key 74), v0. In Kafka 3.9 it is ListClientMetricsResources (KIP-1000), and here there are none.

v1 (KIP-1142) lists resources of every type; Kafka 3.9 does not know it.
"""

from __future__ import annotations

from kafka.protocol.admin import ListConfigResourcesResponse

from gateway.handlers.call import Call, Response


async def handle(call: Call) -> Response:
    return ListConfigResourcesResponse(error_code=0, config_resources=[])
