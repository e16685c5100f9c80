"""DescribeCluster (key 60), v0-v2. v1 endpoint type (KIP-919); v2 fenced brokers, of which there are none."""

from __future__ import annotations

from kafka.protocol.admin import DescribeClusterResponse

from gateway.handlers.call import Call, Response
from protocol.kafka.errors import ErrorCode

BROKERS = 1
_ALL_CLUSTER_OPERATIONS = 0b1111110010000
"""Create, alter, describe, cluster action, describe/alter configs, idempotent write: as Kafka without an authorizer."""


def handle(call: Call) -> Response:
    services, request = call.services, call.request
    if call.version >= 1 and request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of the wrong type.",
            endpoint_type=BROKERS, cluster_id=services.config.kafka.cluster_id, brokers=[],
        )  # fmt: skip
    node = services.node
    broker = DescribeClusterResponse.DescribeClusterBroker(
        broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack, is_fenced=False
    )
    operations = _ALL_CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else -(2**31)
    return DescribeClusterResponse(
        cluster_id=services.config.kafka.cluster_id, controller_id=node.node_id, brokers=[broker],
        cluster_authorized_operations=operations,
    )  # fmt: skip
