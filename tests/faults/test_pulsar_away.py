"""While no gateway can reach Pulsar, all gateways advertise the same leaders."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import create_topic
from tests.integration.native import wait_for
from tests.integration.servers import gateway_on, metric, running
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import connected

PARTITIONS = 12
FLEET = {"heartbeat_ms": 100, "lease_ms": 500, "dead_after_ms": 1_000}
AWAY_S = 3.0
"""Several times the time after which a gateway has lost touch."""
RECOVERY_S = 150.0


@pytest.fixture
def own_pulsar(tmp_path: Path) -> Iterator[PulsarStandalone]:
    with running(PulsarStandalone(tmp_path / "pulsar")) as server:
        yield server


@pytest.fixture
def gateways(own_pulsar: PulsarStandalone, tmp_path: Path) -> Iterator[list[GatewayProcess]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(running(gateway_on(own_pulsar, tmp_path / f"gateway{number}", fleet=FLEET)))
            for number in range(2)
        ]


def partitions(gateway: GatewayProcess, topic: str) -> list[dict[str, Any]]:
    with connected(gateway.bootstrap) as client:
        rows: list[dict[str, Any]] = client.call("Metadata", 9, topics=[{"name": topic}])["topics"][0]["partitions"]
    return rows


def leaders(gateway: GatewayProcess, topic: str) -> dict[tuple[int, int], int]:
    """Leaders by partition and leader epoch."""
    return {(each["partition_index"], each["leader_epoch"]): each["leader_id"] for each in partitions(gateway, topic)}


def topic_at_both(gateways: list[GatewayProcess]) -> str | None:
    """A new topic; None if all its partitions have the same leader, or the gateways do not know each other yet."""
    topic = unique_topic("away")
    create_topic(gateways[0].bootstrap, topic, PARTITIONS)
    known = leaders(gateways[0], topic)
    return topic if set(known.values()) == {0, 1} and leaders(gateways[1], topic) == known else None


def suspend(pulsar: PulsarStandalone) -> None:
    """Its connections stay open, and nothing is answered."""
    os.kill(pulsar.pid, signal.SIGSTOP)


def resume(pulsar: PulsarStandalone) -> None:
    os.kill(pulsar.pid, signal.SIGCONT)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("end", "begin"),
    [
        pytest.param(PulsarStandalone.kill, PulsarStandalone.start, id="killed"),
        pytest.param(PulsarStandalone.stop, PulsarStandalone.start, id="stopped"),
        pytest.param(suspend, resume, id="suspended"),
    ],
)
def test_one_leader_in_an_epoch(
    own_pulsar: PulsarStandalone,
    gateways: list[GatewayProcess],
    end: Callable[[PulsarStandalone], None],
    begin: Callable[[PulsarStandalone], None],
) -> None:
    """As in Kafka: a librdkafka client that has seen two leaders may use the wrong one for five minutes."""
    topic = wait_for(lambda: topic_at_both(gateways), "each gateway leads some partitions of a topic")
    known = leaders(gateways[0], topic)
    end(own_pulsar)
    try:
        until = time.monotonic() + AWAY_S
        while time.monotonic() < until:
            assert leaders(gateways[0], topic) == leaders(gateways[1], topic) == known
        assert [metric(gateway, "kafka_gateway_fleet_lease") for gateway in gateways] == [0, 0]
    finally:
        begin(own_pulsar)
    seen: list[dict[tuple[int, int], int]] = [known]
    until = time.monotonic() + RECOVERY_S
    while not all(metric(gateway, "kafka_gateway_fleet_lease") for gateway in gateways):
        assert time.monotonic() < until
        seen += [leaders(gateway, topic) for gateway in gateways]
    for told in seen:
        for epoch, leader in told.items():
            assert known.setdefault(epoch, leader) == leader
