"""A partition that Pulsar does not serve: other partitions are served, on the same connection of a client."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from deploy.local.standalone import PulsarStandalone
from tests.conformance.records import batch, records
from tests.integration.broker_proxy import BrokerProxy
from tests.integration.confluent import create_topic
from tests.integration.servers import gateway_on, running
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import RawClient, connected

NOT_LEADER_OR_FOLLOWER = 6
ROUNDS = 5
ENOUGH_S = 25.0
"""Less than two requests that wait for the clients' timeout."""


@pytest.fixture(scope="module")
def proxy(pulsar: PulsarStandalone) -> Iterator[BrokerProxy]:
    with BrokerProxy(pulsar.service_url).running() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def gateway(
    pulsar: PulsarStandalone, proxy: BrokerProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    sections = {"namespace": unique_topic("unserved"), "service_url": proxy.service_url}
    with running(gateway_on(pulsar, tmp_path_factory.mktemp("unserved"), pulsar=sections)) as gateway:
        yield gateway


def produce(client: RawClient, topic: str, partitions: list[int]) -> dict[int, int]:
    """Error codes by partition."""
    data = [{"index": number, "records": batch(records(1))} for number in partitions]
    topics = [{"name": topic, "partition_data": data}]
    answer = client.call("Produce", 7, acks=-1, timeout_ms=30_000, topic_data=topics)
    return {row["index"]: row["error_code"] for row in answer["responses"][0]["partition_responses"]}


def fetch(client: RawClient, topic: str, offsets: dict[int, int]) -> dict[int, tuple[int, bool]]:
    """For each partition, the error code and whether there are records."""
    partitions: list[dict[str, Any]] = [
        {"partition": number, "fetch_offset": offset, "partition_max_bytes": 10_000}
        for number, offset in offsets.items()
    ]
    answer = client.call(
        "Fetch", 11, replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=100_000, isolation_level=0, session_id=0,
        session_epoch=-1, forgotten_topics_data=[], rack_id="", topics=[{"topic": topic, "partitions": partitions}],
    )  # fmt: skip
    rows = answer["responses"][0]["partitions"]
    return {row["partition_index"]: (row["error_code"], bool(row["records"])) for row in rows}


def test_others_of_the_connection_go_on(gateway: GatewayProcess, proxy: BrokerProxy) -> None:
    """Writes to it get a retriable error, and succeed when Pulsar serves the partition."""
    topic = unique_topic("unserved")
    create_topic(gateway.bootstrap, topic, 2)
    proxy.unserved = {f"{topic}-partition-1"}
    begun = time.monotonic()
    with connected(gateway.bootstrap, timeout_s=ENOUGH_S) as client:
        for written in range(ROUNDS):
            assert produce(client, topic, [1, 0]) == {0: 0, 1: NOT_LEADER_OR_FOLLOWER}
            assert fetch(client, topic, {1: 0, 0: written})[0] == (0, True)
        assert time.monotonic() - begun < ENOUGH_S, "it stopped the others"
        assert proxy.dropped
        proxy.unserved = set()
        while produce(client, topic, [1]) != {1: 0}:
            assert time.monotonic() - begun < 2 * ENOUGH_S
            time.sleep(0.1)
        assert fetch(client, topic, {1: 0}) == {1: (0, True)}
