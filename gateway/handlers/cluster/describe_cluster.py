"""DescribeCluster (key 60), v0-v2. v1 endpoint type (KIP-919); v2 fenced brokers, of which there are none."""

from __future__ import annotations

from kafka.protocol.admin import DescribeClusterResponse

from gateway.requests.call import Call, Response
from gateway.requests.cluster import Cluster
from protocol.kafka.errors import ErrorCode

BROKERS, CONTROLLERS = 1, 2
_CLUSTER_OPERATIONS = {5, 7, 8, 9, 10, 11, 12}
"""Without an authorizer a client may do everything (AclOperation codes)."""


def handle(call: Call) -> Response:
    services, request = call.services, call.request
    if call.version >= 1 and request.endpoint_type != BROKERS:
        return _wrong_endpoint(request.endpoint_type)
    cluster = Cluster(call)
    brokers = [
        DescribeClusterResponse.DescribeClusterBroker(
            broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack, is_fenced=False
        )
        for node in cluster.nodes
    ]
    return DescribeClusterResponse(
        cluster_id=services.cluster_id, controller_id=cluster.controller_id, brokers=brokers,
        authorized_operations=_CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else None,
    )  # fmt: skip


def _wrong_endpoint(endpoint_type: int) -> Response:
    if endpoint_type == CONTROLLERS:
        code, text = ErrorCode.MISMATCHED_ENDPOINT_TYPE, "The request was sent to an endpoint of the wrong type."
    else:
        code, text = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}"
    return DescribeClusterResponse(
        error_code=code, error_message=text, endpoint_type=BROKERS, cluster_id="", controller_id=-1, brokers=[]
    )
