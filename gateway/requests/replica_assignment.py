"""Replica assignments that clients specify by hand.

They are checked as Kafka checks them and then ignored, like replication factors: the fleet places partitions, and
BookKeeper places replicas.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gateway.errors import KafkaError
from gateway.requests.brokers import Brokers
from gateway.requests.call import Call
from protocol.kafka.errors import ErrorCode


def check_assignments(call: Call, assignments: Sequence[Sequence[int]]) -> None:
    """Raises KafkaError when no cluster of these brokers could place partitions in this way."""
    check_replicas({node.node_id for node in Brokers(call).nodes}, assignments)


def check_replicas(node_ids: Collection[int], assignments: Sequence[Sequence[int]]) -> None:
    for replicas in assignments:
        if fault := _fault(node_ids, replicas, len(assignments[0])):
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, fault)


def _fault(node_ids: Collection[int], replicas: Sequence[int], factor: int) -> str | None:
    if not replicas:
        return "Each partition needs a broker."
    most = replicas[: len(node_ids) + 1]  # of more than there are brokers, one is unknown or named twice
    if unknown := sorted(set(most).difference(node_ids)):
        return f"There is no broker {unknown[0]}."
    if len(set(most)) < len(most):
        return "A broker is named twice for one partition."
    if len(replicas) != factor:
        return f"One partition has {len(replicas)} replica(s), another one {factor}."
    return None
