"""Transactions while gateways, Pulsar and their connections fail: no transaction is torn, lost, doubled or reordered.

`make transactions` runs longer trials: more faults of each kind (TRANSACTION_ROUNDS), and 100,000 records
(COPIER_RECORDS), as in Kafka's own system test.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.local.kafka import SHORT_SESSIONS, KafkaBroker
from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import Record, committed, create_topic, produce
from tests.integration.native import Admin, wait_for
from tests.integration.servers import await_fleet, metric, running
from tests.integration.transactional import await_markers
from tests.support.gateway_process import GatewayProcess
from tests.support.haproxy_fleet import HaproxyFleet, haproxy_fleet
from tests.support.java_programs.streams_application import WordCount, await_counts, counts
from tests.support.java_programs.transactional_copier import (
    Copier,
    await_copied,
    committed_values,
    copying,
    keep_copying,
)
from tests.support.names import unique_topic
from tests.support.raw_client import connected
from tests.support.traffic.transaction_history import check
from tests.support.traffic.transactional_traffic import Traffic

PARTITIONS = 4
WRITERS = 3
ROUNDS = int(os.environ.get("TRANSACTION_ROUNDS", "1"))
PAUSED_S = 8.0
COMMITS = 5
"""Commits of each writer before and after a fault."""
RECOVERY_S = 120.0
COPIED = int(os.environ.get("COPIER_RECORDS", "2000"))
TRANSACTION_SIZE = 100 if COPIED < 10_000 else 500
COPIED_WITHIN_S = 180.0 + COPIED / 50
WORDS = 1_000
"""Counted before each fault."""
pytestmark = pytest.mark.timeout(300 + 60 * (ROUNDS - 1) + COPIED // 50)


@pytest.fixture(scope="module")
def own_pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarStandalone]:
    with running(PulsarStandalone(tmp_path_factory.mktemp("own-pulsar"))) as server:
        yield server


@pytest.fixture(scope="module")
def fleet(own_pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HaproxyFleet]:
    """Two gateways, so that the partitions of one move to the other, and one that may join."""
    work_dir = tmp_path_factory.mktemp("fleet")
    with haproxy_fleet(work_dir, own_pulsar.service_url, own_pulsar.admin_url, 2, 1) as found:
        yield found


def new_topic(bootstrap: str) -> str:
    topic = unique_topic("transactions")
    create_topic(bootstrap, topic, PARTITIONS)
    return topic


def traffic(topic: str, *bootstraps: str) -> Traffic:
    return Traffic(bootstraps, topic, PARTITIONS, WRITERS)


def killed(gateway: GatewayProcess) -> None:
    gateway.kill()
    time.sleep(2.0)
    gateway.start()
    gateway.wait_ready()


def stopped(gateway: GatewayProcess) -> None:
    """The gateway hands over its partitions."""
    gateway.stop()
    gateway.start()
    gateway.wait_ready()


def paused(gateway: GatewayProcess) -> None:
    """Suspended for longer than its lease, so that another gateway leads when it continues."""
    os.kill(gateway.pid, signal.SIGSTOP)
    try:
        time.sleep(PAUSED_S)
    finally:
        os.kill(gateway.pid, signal.SIGCONT)


def trial(trouble: Callable[[Traffic], None], *bootstraps: str, topic: str | None = None) -> None:
    with traffic(topic or new_topic(bootstraps[0]), *bootstraps) as going:
        going.await_commits(COMMITS, RECOVERY_S)
        trouble(going)
        going.await_commits(COMMITS, RECOVERY_S)
        history = going.stop()
    check(history)


def test_nothing_happens_on_kafka(kafka: KafkaBroker) -> None:
    """The history of these clients on Apache Kafka has no violations."""
    trial(lambda _: time.sleep(1.0), kafka.bootstrap)


def test_a_broker_of_kafka_is_killed(tmp_path: Path) -> None:
    with running(KafkaBroker(tmp_path / "kafka", settings=SHORT_SESSIONS)) as broker:

        def bounce(_: Traffic) -> None:
            broker.kill()
            broker.start()
            broker.wait_ready()

        trial(bounce, broker.bootstrap)


@pytest.mark.parametrize("fault", [killed, stopped, paused])
def test_gateways_fail(fleet: HaproxyFleet, fault: Callable[[GatewayProcess], None]) -> None:
    """Every gateway fails, so that leaders and coordinators are among them."""

    def trouble(_going: Traffic) -> None:
        for _ in range(ROUNDS):
            for gateway in fleet.gateways:
                fault(gateway)

    trial(trouble, fleet.bootstrap, fleet.single)


def test_a_gateway_leaves_and_joins(fleet: HaproxyFleet) -> None:
    (joining,) = fleet.spares

    def trouble(going: Traffic) -> None:
        for _ in range(ROUNDS):
            joining.stop()
            going.await_commits(COMMITS, RECOVERY_S)
            joining.start()
            joining.wait_ready()
            wait_for(lambda: metric(joining, "kafka_gateway_batches_written_total"), "it leads partitions again")

    with running(joining):
        await_fleet([*fleet.gateways, joining])
        topic = new_topic(fleet.bootstrap)
        while int(joining.config["kafka"]["advertised_port"]) not in leaders(fleet.bootstrap, topic):
            topic = new_topic(fleet.bootstrap)
        trial(trouble, fleet.bootstrap, fleet.single, topic=topic)


def leaders(bootstrap: str, topic: str) -> set[int]:
    """The ports of the leaders of the topic's partitions."""
    with connected(bootstrap) as client:
        found = client.call("Metadata", 9, topics=[{"name": topic}])
    ports = {each["node_id"]: int(each["port"]) for each in found["brokers"]}
    return {ports.get(row["leader_id"], 0) for row in found["topics"][0]["partitions"]}


def test_pulsar_unloads_everything(fleet: HaproxyFleet, own_pulsar: PulsarStandalone) -> None:
    """The partitions, and the topics of coordinators and membership: brokers close all producers and readers."""
    namespace = f"kafka/{fleet.gateways[0].config['pulsar']['namespace']}"

    def trouble(going: Traffic) -> None:
        for _ in range(3 * ROUNDS):
            for each in (namespace, f"{namespace}-gateway"):
                Admin(own_pulsar).call("PUT", f"namespaces/{each}/unload")
                going.await_commits(1, RECOVERY_S)

    trial(trouble, fleet.bootstrap, fleet.single)


def test_pulsar_is_killed(fleet: HaproxyFleet, own_pulsar: PulsarStandalone) -> None:
    def trouble(_going: Traffic) -> None:
        for _ in range(ROUNDS):
            own_pulsar.kill()
            own_pulsar.start()
            own_pulsar.wait_ready()

    trial(trouble, fleet.bootstrap, fleet.single)


def test_haproxy_resets_every_connection(fleet: HaproxyFleet) -> None:
    def trouble(_going: Traffic) -> None:
        for _ in range(5 * ROUNDS):
            fleet.reset_connections()
            time.sleep(0.5)

    trial(trouble, fleet.bootstrap, fleet.single)


def test_copiers_while_gateways_bounce(fleet: HaproxyFleet, tmp_path: Path) -> None:
    """Kafka's own copy job: gateways are killed and stopped in turn until a third, then two thirds are copied."""
    source, target = unique_topic("copied-from"), unique_topic("copied-to")
    for topic in (source, target):
        create_topic(fleet.bootstrap, topic)
    values = [b"%d" % number for number in range(COPIED)]
    produce(fleet.bootstrap, source, [Record(value) for value in values], enable_idempotence=True)
    copier = Copier(tmp_path, fleet.single, source, target, 0, TRANSACTION_SIZE)
    with copying([copier]):
        for number, fault in enumerate((killed, stopped) * ROUNDS):
            await_copied(copier, COPIED * (number + 1) // (2 * ROUNDS + 1), COPIED_WITHIN_S)
            for gateway in fleet.gateways:
                fault(gateway)
        keep_copying([copier], COPIED_WITHIN_S)
    await_markers(fleet.bootstrap)
    assert committed_values(fleet.bootstrap, target, 0) == values
    assert committed(fleet.bootstrap, f"{target}-copiers", source) == [COPIED]


def test_streams_while_gateways_bounce(fleet: HaproxyFleet, tmp_path: Path) -> None:
    """Two processes of one application. After each fault of a gateway, one of them starts anew on another machine."""
    source, target, application_id = (unique_topic(name) for name in ("words", "counts", "bouncing"))
    for topic in (source, target):
        create_topic(fleet.bootstrap, topic, PARTITIONS)
    expected: Counter[str] = Counter()
    with ExitStack() as stack:
        processes = []
        for name, bootstrap in (("one", fleet.bootstrap), ("other", fleet.single)):
            (tmp_path / name).mkdir()
            process = WordCount(tmp_path / name, bootstrap, application_id, source, target)
            processes.append(stack.enter_context(process))
            process.start()
        for number, fault in enumerate((killed, paused) * ROUNDS):
            words = [f"word{(number + each) % 17}" for each in range(WORDS)]
            for partition in range(PARTITIONS):
                records = [Record(word.encode()) for word in words[partition::PARTITIONS]]
                produce(fleet.bootstrap, source, records, partition=partition, enable_idempotence=True)
            expected.update(words)
            fault(fleet.gateways[number % len(fleet.gateways)])
            processes[number % 2].kill()
            processes[number % 2].start()
            await_counts(fleet.bootstrap, target, PARTITIONS, expected.total(), processes[0], COPIED_WITHIN_S)
    assert counts(fleet.bootstrap, target, PARTITIONS) == {word: [*range(1, n + 1)] for word, n in expected.items()}
