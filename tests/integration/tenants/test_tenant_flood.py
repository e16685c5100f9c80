"""Two clusters in one gateway, and Pulsar that takes the writes of one of them only slowly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from deploy.local.process import free_port
from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import TIMEOUT_S, Record, Sender, create_topic, produce, read_all_values
from tests.integration.native import Admin
from tests.integration.servers import gateway_on, metric, running
from tests.support.gateway_process import HOST, GatewayProcess
from tests.support.names import unique_topic

RATE_BYTES_PER_S = 20_000
WAITING, VALUE_BYTES, WRITES = 60, 100_000, 3
"""Pulsar takes 300 s for the values that wait. librdkafka sends each as a batch of its own; several may share an entry.
"""
SILENCE_S, MAX_WAITS = 4.0, 15
OWN = "own"


@pytest.fixture(scope="module")
def names() -> dict[str, str]:
    """The namespace of each cluster."""
    tenant = unique_topic("tenant")
    return {"one": f"{tenant}/one", "two": f"{tenant}/two", OWN: f"kafka/{unique_topic('own')}"}


@pytest.fixture(scope="module")
def gateway(
    pulsar: PulsarStandalone, names: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    clusters = [names["one"], names["two"]]
    kafka: dict[str, Any] = {
        "clusters": [{"namespace": name, "create_namespace": True} for name in clusters],
        "listeners": [{"name": name[-3:], "host": HOST, "port": free_port(), "cluster": name} for name in clusters],
    }
    flooded = gateway_on(
        pulsar, tmp_path_factory.mktemp("flood"), kafka=kafka, pulsar={"namespace": names[OWN].partition("/")[2]},
        fleet={"forwarding": {"host": HOST, "port": free_port()}},
    )  # fmt: skip
    with running(flooded) as gateway:
        yield gateway


def address(gateway: GatewayProcess, cluster: str) -> str:
    if cluster == OWN:
        return gateway.bootstrap
    found = next(each for each in gateway.config["kafka"]["listeners"] if each["name"] == cluster)
    return f"{HOST}:{found['port']}"


@pytest.mark.parametrize(("flooding", "quiet"), [("one", "two"), ("one", OWN), (OWN, "two")])
def test_a_cluster_whose_writes_wait_for_pulsar_delays_no_other(
    pulsar: PulsarStandalone, gateway: GatewayProcess, names: dict[str, str], flooding: str, quiet: str
) -> None:
    """A broker that limits the rate of a topic stops reading the connection, and all that comes over it."""
    flooded, topic = unique_topic("flooded"), unique_topic("quiet")
    create_topic(address(gateway, flooding), flooded)
    create_topic(address(gateway, quiet), topic)
    limit = partial(Admin(pulsar).call, "POST", f"namespaces/{names[flooding]}/publishRate")
    limit({"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": RATE_BYTES_PER_S})
    try:
        sender = held_back(address(gateway, flooding), flooded)
        for number in range(WRITES):
            produce(address(gateway, quiet), topic, [Record(b"%d" % number)])
        assert len(read_all_values(address(gateway, quiet), topic)) == WRITES
        assert len(sender.sent) - sender.acknowledged > WAITING // 2, "the quiet cluster waited for the flood"
        assert metric(gateway, "kafka_gateway_fleet_lease") == 1
    finally:
        limit({"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": -1})
    sender.flush(2 * TIMEOUT_S)  # the broker may stop reading for a while longer, until the gateway connects again
    assert not sender.errors


def held_back(bootstrap: str, topic: str) -> Sender:
    """A producer whose values Pulsar holds back. Until Pulsar applies the limit, it takes them all."""
    sender = Sender(bootstrap, topic, batch_num_messages=1)
    for _ in range(MAX_WAITS):
        acknowledged = sender.acknowledged
        first = len(sender.sent)
        sender.send(b"%04d" % number * (VALUE_BYTES // 4) for number in range(first, acknowledged + WAITING))
        time.sleep(SILENCE_S)
        if 0 < sender.acknowledged == acknowledged:
            return sender
    raise AssertionError("Pulsar does not hold the flood back")
