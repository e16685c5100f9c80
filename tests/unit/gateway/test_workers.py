"""Workers of one machine differ in their ports, and in nothing that all of them share."""

from gateway.config import Config
from gateway.workers import worker_config


def test_every_port_is_raised() -> None:
    config = Config.model_validate(
        {
            "kafka": {"port": 9000, "advertised_port": 9100, "node_id": 0, "listeners": [{"name": "in", "port": 0}]},
            "http": {"port": 9400},
            "fleet": {"forwarding": {"port": 9500}},
        }
    )
    third = worker_config(config, 2)
    assert (third.kafka.port, third.kafka.advertised_port, third.kafka.node_id) == (9002, 9102, 2)
    assert (third.kafka.listeners[0].port, third.http.port) == (0, 9402)
    assert third.fleet.forwarding is not None and third.fleet.forwarding.port == 9502
    assert worker_config(config, 0) == config


def test_a_single_address_is_that_of_all() -> None:
    kafka = {"port": 9000, "advertised_port": 9092, "single_address": True}
    config = Config.model_validate({"kafka": kafka, "fleet": {"forwarding": {}}})
    second = worker_config(config, 1)
    assert (second.kafka.port, second.kafka.advertised_port) == (9001, 9092)
    assert second.fleet.forwarding is not None and second.fleet.forwarding.port == 9193
