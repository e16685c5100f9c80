"""Transactions whose coordinator has lost its state: the operator finds and aborts them, or the gateway does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import TIMEOUT_S, Record, create_topic, produce, watermarks
from tests.integration.native import Admin, wait_for
from tests.integration.servers import gateway_on, metric, running
from tests.integration.transactional import read
from tests.integration.transactions.test_transactions import UNCOMMITTED, transactional, write
from tests.integration.transactions.test_transactions_command import COMMAND, rows
from tests.support.gateway_process import REPOSITORY, GatewayProcess
from tests.support.java_programs.kafka_tools import KafkaTools
from tests.support.names import unique_topic

PACKAGES = ("gateway", "coordinator", "protocol")
RECONCILIATION = Path("gateway/coordination/transactions/reconciliation.py")
SHORTER = {"CHECK_S = 60.0": "CHECK_S = 2.0", "GRACE_S = 60.0": "GRACE_S = 0.0"}
BEHIND = b"behind what is open"
BY_OPERATOR, BY_GATEWAY = range(2)
"""The partitions, by who aborts the transaction there."""


@pytest.fixture
def impatient_sources(tmp_path: Path) -> Path:
    """The gateway's code, in which reconciliation takes seconds instead of minutes."""
    folder = tmp_path / "impatient"
    for name in PACKAGES:
        shutil.copytree(REPOSITORY / name, folder / name)
    text = (folder / RECONCILIATION).read_text()
    for given, shorter in SHORTER.items():
        assert f"\n{given}\n" in text
        text = text.replace(given, shorter)
    (folder / RECONCILIATION).write_text(text)
    return folder


def test_a_coordinator_lost_its_state(pulsar: PulsarStandalone, tmp_path: Path, impatient_sources: Path) -> None:
    namespace, topic = unique_topic("hanging"), unique_topic("transactions")
    with running(gateway_on(pulsar, tmp_path / "gateway", pulsar={"namespace": namespace})) as gateway:
        bootstrap = gateway.bootstrap
        create_topic(bootstrap, topic, partitions=2)
        producers = [transactional(bootstrap, f"{topic}-{partition}") for partition in range(2)]
        for partition, producer in enumerate(producers):
            producer.begin_transaction()
            write(producer, topic, b"open", partition=partition)
            produce(bootstrap, topic, [Record(BEHIND)] * 2, partition=partition)
        assert lag(gateway) == 3

        gateway.stop()
        lose_coordinators(Admin(pulsar, f"kafka/{namespace}-gateway"))
        gateway.start()
        gateway.wait_ready()
        assert [ends(bootstrap, topic, partition) for partition in range(2)] == [(0, 3), (0, 3)]
        with KafkaTools(bootstrap) as tools:
            assert hanging(tools, topic) == {BY_OPERATOR: "0", BY_GATEWAY: "0"}
            aborted = tools(COMMAND, "abort", "--topic", topic, "--partition", str(BY_OPERATOR), "--start-offset", "0")
            assert aborted.status == 0, aborted.text
            assert hanging(tools, topic) == {BY_GATEWAY: "0"}
        assert ends(bootstrap, topic, BY_OPERATOR) == (4, 4)

        gateway.stop()
        gateway.sources = impatient_sources
        gateway.config["transactions"] = {"max_timeout_ms": 1_000}
        gateway.start()
        gateway.wait_ready()
        ends(bootstrap, topic, BY_GATEWAY)  # opens the log
        wait_for(lambda: metric(gateway, "kafka_gateway_transactions_hanging") == 1, "the gateway counts it")
        wait_for(lambda: ends(bootstrap, topic, BY_GATEWAY) == (4, 4), "the gateway aborts it")
        wait_for(lambda: metric(gateway, "kafka_gateway_transactions_hanging") == 0, "none is left")
        assert lag(gateway) == 0
        for partition, producer in enumerate(producers):
            assert read(bootstrap, topic, partition=partition) == [BEHIND, BEHIND]
            with pytest.raises(KafkaException):
                producer.commit_transaction(TIMEOUT_S)


def lose_coordinators(admin: Admin) -> None:
    """Delete what the coordinators remember, while no gateway runs."""
    admin.topic("DELETE", "__transaction_state", "/partitions?force=true")


def ends(bootstrap: str, topic: str, partition: int) -> tuple[int, int]:
    """The last stable offset, and the end of the log."""
    return watermarks(bootstrap, topic, partition)[1], watermarks(bootstrap, topic, partition, **UNCOMMITTED)[1]


def hanging(tools: KafkaTools, topic: str) -> dict[int, str]:
    """The partitions in which kafka-transactions.sh finds a hanging transaction, and where that began."""
    found = rows(tools, "find-hanging", "--topic", topic, "--max-transaction-timeout", "0")
    return {int(row["Partition"]): row["StartOffset"] for row in found}


def lag(gateway: GatewayProcess) -> float:
    return metric(gateway, "kafka_gateway_last_stable_offset_lag")
