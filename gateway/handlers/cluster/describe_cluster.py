"""DescribeCluster (key 60), v0-v2. v1 endpoint type (KIP-919); v2 fenced brokers, of which there are none."""

from __future__ import annotations

from gateway.requests.brokers import Brokers
from gateway.requests.call import Call
from protocol.kafka.acl import NOT_ASKED, bit_field
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.cluster import DescribeClusterRequest, DescribeClusterResponse

BROKERS, CONTROLLERS = 1, 2


def handle(call: Call[DescribeClusterRequest]) -> DescribeClusterResponse:
    request = call.request
    if call.version >= 1 and request.endpoint_type != BROKERS:
        return _wrong_endpoint(request.endpoint_type)
    brokers = Brokers(call)
    asked = request.include_cluster_authorized_operations
    rows = [
        DescribeClusterResponse.DescribeClusterBroker(
            broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack, is_fenced=False
        )
        for node in brokers.nodes
    ]
    return DescribeClusterResponse(
        cluster_id=call.cluster.cluster_id, controller_id=brokers.controller_id, brokers=rows,
        cluster_authorized_operations=bit_field(call.context.policy.cluster_operations()) if asked else NOT_ASKED,
    )  # fmt: skip


def _wrong_endpoint(endpoint_type: int) -> DescribeClusterResponse:
    if endpoint_type == CONTROLLERS:
        code, text = ErrorCode.MISMATCHED_ENDPOINT_TYPE, "The request was sent to an endpoint of the wrong type."
    else:
        code, text = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}"
    return DescribeClusterResponse(
        error_code=code, error_message=text, endpoint_type=BROKERS, cluster_id="", controller_id=-1, brokers=[]
    )
