"""ListPartitionReassignments (key 46), v0 (KIP-455). Pulsar places the data: there are none."""

from __future__ import annotations

from gateway.requests.call import Call
from protocol.kafka.messages.topics import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse


def handle(call: Call[ListPartitionReassignmentsRequest]) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=0, error_message=None, topics=[])
