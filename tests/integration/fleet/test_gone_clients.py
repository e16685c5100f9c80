"""Clients that go while their fetches wait for records: nothing is kept for them, here or at another gateway."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from deploy.local.process import free_port
from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import create_topic
from tests.integration.native import wait_for
from tests.integration.servers import await_fleet, gateway_on, metric, running
from tests.support.gateway_process import HOST, GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import RawClient

SWEEP, SWEEP_S = "gateway.network.server.SWEEP_S", 0.5
PARTITIONS, MAX_WAIT_MS, VERSION = 8, 600_000, 11


@pytest.fixture(scope="module")
def fleet(pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[GatewayProcess]]:
    """At a single address, which is that of the first one."""
    namespace, shared_port = {"namespace": unique_topic("gone")}, free_port()
    with ExitStack() as stack:
        gateways = []
        for number in range(2):
            port = free_port() if number else shared_port
            sections: dict[str, dict[str, Any]] = {
                "pulsar": namespace, "fleet": {"forwarding": {"host": HOST, "port": free_port()}},
                "kafka": {"port": port, "advertised_port": shared_port, "single_address": True},
            }  # fmt: skip
            gateway = gateway_on(pulsar, tmp_path_factory.mktemp("gone"), **sections)
            gateway.constants[SWEEP] = SWEEP_S
            gateways.append(stack.enter_context(running(gateway)))
        await_fleet(gateways)
        yield gateways


@pytest.fixture
def topic(fleet: list[GatewayProcess]) -> str:
    name = unique_topic("gone")
    create_topic(fleet[0].bootstrap, name, partitions=PARTITIONS)
    return name


def in_flight(fleet: list[GatewayProcess]) -> list[int]:
    return [int(metric(gateway, "kafka_gateway_requests_in_flight")) for gateway in fleet]


def fetch(client: RawClient, topic: str, partition: int) -> None:
    row = {
        "partition": partition, "current_leader_epoch": -1, "fetch_offset": 0, "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }  # fmt: skip
    client.send(
        "Fetch", VERSION, replica_id=-1, max_wait_ms=MAX_WAIT_MS, min_bytes=1, max_bytes=1 << 20, isolation_level=0,
        session_id=0, session_epoch=-1, topics=[{"topic": topic, "partitions": [row]}], forgotten_topics_data=[],
        rack_id="",
    )  # fmt: skip


@pytest.mark.parametrize("pipelined", [1, 3], ids=["one", "with others behind it"])
def test_a_fetch_that_waits(fleet: list[GatewayProcess], topic: str, pipelined: int) -> None:
    """Of each partition: the gateway itself leads some, and the other one the rest."""
    wait_for(lambda: in_flight(fleet) == [0, 0], "nothing waits")
    clients = [RawClient(fleet[0].bootstrap) for _ in range(PARTITIONS)]
    for number, client in enumerate(clients):
        for _ in range(pipelined):
            fetch(client, topic, number)

    def all_wait() -> bool:
        here, there = in_flight(fleet)
        return here == PARTITIONS and there > 0

    wait_for(all_wait, "the fetches wait")
    for client in clients:
        client.close()
    wait_for(lambda: in_flight(fleet) == [0, 0], "nothing waits any more")
