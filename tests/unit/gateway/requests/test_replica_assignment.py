"""Replica assignments written by hand."""

import pytest

from gateway.errors import KafkaError
from gateway.requests.replica_assignment import check_replicas
from protocol.kafka.errors import ErrorCode

NODES = {1, 2, 3}


@pytest.mark.parametrize("assignments", [[[1]], [[3], [2], [1], [3]], [[1, 2, 3], [3, 1, 2]]], ids=str)
def test_brokers_of_the_cluster_may_be_named(assignments: list[list[int]]) -> None:
    check_replicas(NODES, assignments)


@pytest.mark.parametrize(
    ("assignments", "text"),
    [
        ([[]], "Each partition needs a broker"),
        ([[1], []], "Each partition needs a broker"),
        ([[1], [4]], "There is no broker 4"),
        ([[2, -1]], "There is no broker -1"),
        ([[1, 2, 1]], "named twice"),
        ([[1, 2], [3]], r"1 replica\(s\), another one 2"),
    ],
)
def test_what_no_cluster_could_do_is_refused(assignments: list[list[int]], text: str) -> None:
    with pytest.raises(KafkaError, match=text) as refused:
        check_replicas(NODES, assignments)
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
