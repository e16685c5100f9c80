"""ListPartitionReassignments (key 46), v0 (KIP-455). Pulsar places the data: there are none."""

from __future__ import annotations

from gateway.requests.call import Call
from gateway.requests.reply import Response
from protocol.kafka.messages.topics import ListPartitionReassignmentsResponse


def handle(call: Call) -> Response:
    return ListPartitionReassignmentsResponse(error_code=0, error_message=None, topics=[])
