"""What the composition root counts itself."""

from __future__ import annotations

from gateway.app import CLOSED_SHOWN_S, PulsarEvents
from gateway.observability.metrics import Metrics
from gateway.pulsar.connection import ConnectionState
from gateway.pulsar.errors import ConnectionLostError


def test_brokers_that_are_gone_for_good_are_forgotten() -> None:
    """Otherwise, the alarm that a broker is not connected would never end where brokers get new names."""
    now_s, metrics = 0.0, Metrics()
    events = PulsarEvents(metrics, lambda: now_s)

    def shown() -> tuple[float | None, ...]:
        return tuple(
            metrics.registry.get_sample_value("kafka_gateway_pulsar_connections", {"state": state})
            for state in ("handshake", "ready", "closed")
        )

    assert shown() == (0, 0, 0)
    events.on_connection_state("pulsar://old:6650", ConnectionState.HANDSHAKE, None)
    assert shown() == (1, 0, 0)
    events.on_connection_state("pulsar://old:6650", ConnectionState.READY, None)
    events.on_connection_state("pulsar://other:6650", ConnectionState.READY, None)
    assert shown() == (0, 2, 0)
    events.on_connection_state("pulsar://old:6650", ConnectionState.CLOSED, ConnectionLostError("lost"))
    now_s = CLOSED_SHOWN_S
    assert shown() == (0, 1, 1)
    now_s += 1
    assert shown() == (0, 1, 0)
