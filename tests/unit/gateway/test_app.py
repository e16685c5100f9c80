"""What the composition root counts itself."""

from __future__ import annotations

from gateway.app import CLOSED_SHOWN_S, PulsarEvents
from gateway.observability.metrics import Metrics
from gateway.pulsar.connection import ConnectionState
from gateway.pulsar.errors import ClientClosedError, ConnectionLostError

Shown = tuple[float | None, ...]
URL = "pulsar://one:6650"


def shown_by(metrics: Metrics) -> Shown:
    """The number of brokers by state."""
    return tuple(
        metrics.registry.get_sample_value("kafka_gateway_pulsar_connections", {"state": state})
        for state in ("handshake", "ready", "closed")
    )


def test_brokers_that_are_gone_for_good_are_forgotten() -> None:
    """Otherwise, the alarm that a broker is not connected would never end where brokers get new names."""
    now_s, metrics = 0.0, Metrics()
    events = PulsarEvents(metrics, lambda: now_s)

    def shown() -> Shown:
        return shown_by(metrics)

    assert shown() == (0, 0, 0)
    events.on_connection_state("pulsar://old:6650", ConnectionState.HANDSHAKE, None, others=False)
    assert shown() == (1, 0, 0)
    events.on_connection_state("pulsar://old:6650", ConnectionState.READY, None, others=False)
    events.on_connection_state("pulsar://other:6650", ConnectionState.READY, None, others=False)
    assert shown() == (0, 2, 0)
    events.on_connection_state("pulsar://old:6650", ConnectionState.CLOSED, ConnectionLostError("lost"), others=False)
    now_s = CLOSED_SHOWN_S
    assert shown() == (0, 1, 1)
    now_s += 1
    assert shown() == (0, 1, 0)


def test_a_broker_is_connected_while_one_of_its_connections_is() -> None:
    metrics = Metrics()
    events = PulsarEvents(metrics)
    for others in (False, True):
        events.on_connection_state(URL, ConnectionState.READY, None, others=others)
    lost = ConnectionLostError("lost")
    events.on_connection_state(URL, ConnectionState.CLOSED, lost, others=True)
    assert shown_by(metrics) == (0, 1, 0)
    events.on_connection_state(URL, ConnectionState.CLOSED, lost, others=False)
    assert shown_by(metrics) == (0, 0, 1)


def test_a_connection_that_is_not_needed_any_more_is_no_failure() -> None:
    """That of a cluster that was closed, for instance."""
    metrics = Metrics()
    events = PulsarEvents(metrics)
    events.on_connection_state(URL, ConnectionState.READY, None, others=False)
    events.on_connection_state(URL, ConnectionState.CLOSED, ClientClosedError("closed"), others=False)
    assert shown_by(metrics) == (0, 0, 0)
