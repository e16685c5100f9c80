"""What is counted."""

from gateway.observability.metrics import Metrics
from protocol.kafka.errors import ErrorCode


def test_no_error_is_not_counted() -> None:
    metrics = Metrics()
    for code in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR):
        metrics.error("FindCoordinator", code)
    counted = [
        each for family in metrics.registry.collect() for each in family.samples if each.name.endswith("errors_total")
    ]
    assert [(each.labels, each.value) for each in counted] == [
        ({"api": "FindCoordinator", "error": "NOT_COORDINATOR"}, 1)
    ]
