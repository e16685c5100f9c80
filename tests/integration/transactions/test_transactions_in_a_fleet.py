"""Transactions whose coordinator and whose partitions' leaders are on different gateways; a coordinator that dies."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from deploy.local.process import free_port
from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import TIMEOUT_S, Record, consume, create_topic, produce
from tests.integration.native import wait_for
from tests.integration.servers import await_fleet, gateway_on, running
from tests.integration.transactions.test_transactions import COMMITTED, TRANSACTION_MS, transactional, write
from tests.support.gateway_process import HOST, GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import ConnectionClosedError, RawClient, connected

PARTITIONS = 6
TRANSACTION = 1
RETRIABLE = {14, 15, 16, 51}
FORMS = ("listeners of clients", "listeners for gateways", "single address")


@contextmanager
def fleet_of_two(pulsar: PulsarStandalone, folder: Path, form: str) -> Iterator[list[GatewayProcess]]:
    namespace, shared_port = {"namespace": unique_topic("fleet")}, free_port()
    with ExitStack() as stack:
        gateways = []
        for number in range(2):
            sections: dict[str, dict[str, Any]] = {"pulsar": namespace}
            if form != FORMS[0]:
                sections["fleet"] = {"forwarding": {"host": HOST, "port": free_port()}}
            if form == "single address":
                port = shared_port if number == 0 else free_port()
                sections["kafka"] = {"port": port, "advertised_port": shared_port, "single_address": True}
            gateways.append(stack.enter_context(running(gateway_on(pulsar, folder / str(number), **sections))))
        await_fleet(gateways)
        yield gateways


@pytest.fixture(params=FORMS, scope="module")
def fleet(
    request: pytest.FixtureRequest, pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[GatewayProcess]]:
    with fleet_of_two(pulsar, tmp_path_factory.mktemp("fleet"), request.param) as gateways:
        yield gateways


def coordinator_port(gateway: GatewayProcess, transactional_id: str) -> int:
    with connected(gateway.bootstrap) as client:
        found = client.call("FindCoordinator", 4, key_type=TRANSACTION, coordinator_keys=[transactional_id])
    [row] = found["coordinators"]
    assert row["error_code"] == 0
    return int(row["port"])


def leaders(gateway: GatewayProcess, topic: str) -> dict[int, int]:
    """Partition to port."""
    with connected(gateway.bootstrap) as client:
        answer = client.call("Metadata", 9, topics=[{"name": topic}])
    ports = {node["node_id"]: node["port"] for node in answer["brokers"]}
    return {part["partition_index"]: ports[part["leader_id"]] for part in answer["topics"][0]["partitions"]}


def port(gateway: GatewayProcess) -> int:
    return int(gateway.config["kafka"]["port"])


def test_a_transaction_over_all_gateways(fleet: list[GatewayProcess]) -> None:
    bootstrap, topic = fleet[0].bootstrap, unique_topic("transactions")
    create_topic(bootstrap, topic, partitions=PARTITIONS)
    for number in range(8):
        producer = transactional(bootstrap, unique_topic("id"))
        for round_number in range(2):
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                write(producer, topic, b"%d %d" % (number, round_number), partition=partition)
            (producer.commit_transaction if round_number else producer.abort_transaction)(TIMEOUT_S)
    for partition in range(PARTITIONS):
        produce(bootstrap, topic, [Record(b"plain")], partition=partition)
        read = [message.value() for message in consume(bootstrap, topic, 9, partition=partition, **COMMITTED)]
        assert read == [*(b"%d 1" % number for number in range(8)), b"plain"]


def ask(client: RawClient, api: str, version: int, **fields: Any) -> dict[str, Any]:
    """Retry while the previous transaction is being ended, or leaders change."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        answer = client.call(api, version, **fields)
        rows = answer.get("results_by_topic_v3_and_below", [{"results_by_partition": [{}]}])
        code = answer.get("error_code") or rows[0]["results_by_partition"][0].get("partition_error_code")
        if code not in RETRIABLE or time.monotonic() > deadline:
            assert not code
            return answer
        time.sleep(0.02)


class Transaction:
    """Requests of one transactional producer, over any connection."""

    def __init__(self, client: RawClient, name: str, topic: str) -> None:
        given = ask(
            client, "InitProducerId", 4, transactional_id=name, transaction_timeout_ms=TRANSACTION_MS, producer_id=-1,
            producer_epoch=-1,
        )  # fmt: skip
        producer = {field: given[field] for field in ("producer_id", "producer_epoch")}
        self._name = name
        self.ending = {"transactional_id": name, "committed": True, **producer}
        self._adding = {f"v3_and_below_{field}": value for field, value in producer.items()} | {
            "v3_and_below_transactional_id": name,
            "v3_and_below_topics": [{"name": topic, "partitions": [0]}],
        }

    def begin(self, client: RawClient) -> None:
        ask(client, "AddPartitionsToTxn", 3, **self._adding)

    def end(self, client: RawClient) -> None:
        ask(client, "EndTxn", 3, **self.ending)

    def await_state(self, client: RawClient) -> str:
        """Its state, when the coordinator answers."""
        rows: list[dict[str, Any]] = []

        def is_answered() -> bool:
            rows[:] = client.call("DescribeTransactions", 0, transactional_ids=[self._name])["transaction_states"]
            return not rows[0]["error_code"]

        wait_for(is_answered, "the coordinator answers")
        return str(rows[0]["transaction_state"])


@pytest.mark.parametrize("number", [0, 1])
def test_an_end_that_comes_late_ends_nothing(pulsar: PulsarStandalone, tmp_path: Path, number: int) -> None:
    """A gateway is suspended while it forwards an EndTxn. Its client retries at another gateway, and continues
    (KAFKA-17754)."""
    with fleet_of_two(pulsar, tmp_path, "single address") as gateways, ExitStack() as stack:
        stopped, other = gateways[number], gateways[1 - number]
        first = stack.enter_context(connected(f"{HOST}:{port(stopped)}"))
        topic = unique_topic("transactions")
        create_topic(gateways[0].bootstrap, topic)
        transaction = Transaction(first, unique_topic("id"), topic)
        transaction.begin(first)
        os.kill(stopped.pid, signal.SIGSTOP)
        try:
            first.send("EndTxn", 3, **transaction.ending)
            second = stack.enter_context(connected(f"{HOST}:{port(other)}", timeout_s=TIMEOUT_S))
            transaction.end(second)
            transaction.begin(second)
        finally:
            os.kill(stopped.pid, signal.SIGCONT)
        with suppress(ConnectionClosedError, OSError):
            first.read_frame()
        # The suspended gateway was evicted, and joins again: the coordinator may change once more.
        assert transaction.await_state(second) == "Ongoing"


def test_an_end_that_comes_when_its_gateway_coordinates_again_ends_nothing(
    pulsar: PulsarStandalone, tmp_path: Path
) -> None:
    """The coordinator was suspended and evicted. It is the coordinator again, and knows no newer connections."""
    with fleet_of_two(pulsar, tmp_path, FORMS[0]) as gateways, ExitStack() as stack:
        name, topic = unique_topic("id"), unique_topic("transactions")
        create_topic(gateways[0].bootstrap, topic)
        coordinator_at = coordinator_port(gateways[0], name)
        stopped, other = sorted(gateways, key=lambda gateway: port(gateway) != coordinator_at)
        first = stack.enter_context(connected(stopped.bootstrap))
        transaction = Transaction(first, name, topic)
        transaction.begin(first)
        os.kill(stopped.pid, signal.SIGSTOP)
        try:
            second = stack.enter_context(connected(other.bootstrap))
            wait_for(lambda: coordinator_port(other, name) == port(other), "the other gateway coordinates")
            transaction.end(second)
            transaction.begin(second)
        finally:
            os.kill(stopped.pid, signal.SIGCONT)
        wait_for(lambda: coordinator_port(other, name) == port(stopped), "the first gateway coordinates again")
        third = stack.enter_context(connected(stopped.bootstrap))
        assert transaction.await_state(third) == "Ongoing"
        first.send("EndTxn", 3, **transaction.ending)
        with pytest.raises(ConnectionClosedError):
            first.read_frame()
        assert transaction.await_state(third) == "Ongoing"


def test_a_coordinator_dies_before_the_markers_are_written(pulsar: PulsarStandalone, tmp_path: Path) -> None:
    """The transaction is committed: the next coordinator reads that, and lets the markers be written."""
    with fleet_of_two(pulsar, tmp_path, FORMS[0]) as gateways:
        topic, name = unique_topic("transactions"), unique_topic("id")
        create_topic(gateways[0].bootstrap, topic, partitions=16)
        coordinator_at = coordinator_port(gateways[0], name)
        coordinator, other = sorted(gateways, key=lambda gateway: port(gateway) != coordinator_at)
        elsewhere = next(number for number, leader in leaders(other, topic).items() if leader == port(other))
        producer = transactional(coordinator.bootstrap, name)
        producer.begin_transaction()
        write(producer, topic, b"committed", partition=elsewhere)
        os.kill(other.pid, signal.SIGSTOP)  # it writes no marker
        try:
            producer.commit_transaction(TIMEOUT_S)
            coordinator.kill()
        finally:
            os.kill(other.pid, signal.SIGCONT)
        [message] = consume(other.bootstrap, topic, 1, partition=elsewhere, **COMMITTED)
        assert message.value() == b"committed"
        producer = transactional(other.bootstrap, name)
        producer.begin_transaction()
        write(producer, topic, b"next", partition=elsewhere)
        producer.commit_transaction(TIMEOUT_S)
        read = consume(other.bootstrap, topic, 2, partition=elsewhere, **COMMITTED)
        assert [message.value() for message in read] == [b"committed", b"next"]
