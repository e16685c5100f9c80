"""Transactions while leaders and coordinators are killed: what was committed is read, once and in order."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import TIMEOUT_S, create_topic
from tests.integration.native import wait_for
from tests.integration.servers import gateway_on, running
from tests.integration.transactional import Transactions, read
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic

PARTITIONS, PRODUCERS, KILLS = 3, 3, 2
COMMITTED = 30
"""Values that each writer commits before, between and after the kills."""
DEAD_S = 2.0


@pytest.fixture
def gateways(pulsar: PulsarStandalone, tmp_path: Path) -> Iterator[list[GatewayProcess]]:
    namespace = {"namespace": unique_topic("takeover")}
    with ExitStack() as stack:
        yield [
            stack.enter_context(running(gateway_on(pulsar, tmp_path / name, pulsar=namespace)))
            for name in ("one", "two")
        ]


class Writer:
    """Transactions of some values over all partitions, one after the other, each committed or aborted at random."""

    def __init__(self, bootstrap: str, topic: str, number: int, stop: threading.Event) -> None:
        self.committed: list[bytes] = []
        self.unknown: set[bytes] = set()
        self.aborted: set[bytes] = set()
        self._bootstrap, self._topic, self._name, self._stop = bootstrap, topic, f"{topic}-{number}", stop
        self._chance = random.Random(number)
        self._count = 0
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.is_set():
            producer = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": self._name, "linger.ms": 1})
            try:
                producer.init_transactions(TIMEOUT_S)
                while not self._stop.is_set():
                    self._transaction(producer)
            except KafkaException:
                continue  # with a new producer, which ends the last transaction of its predecessor

    def _transaction(self, producer: Producer) -> None:
        producer.begin_transaction()
        values = []
        for _ in range(self._chance.randint(1, 5)):
            values.append(b"%s %06d" % (self._name.encode(), self._count))
            partition = self._count % PARTITIONS
            producer.produce(self._topic, values[-1], key=b"%d" % self._count, partition=partition)
            self._count += 1
        ends = self._chance.random()
        if ends < 0.3:
            self.aborted.update(values)
            producer.abort_transaction(TIMEOUT_S)
            return
        self.unknown.update(values)
        producer.commit_transaction(TIMEOUT_S)
        self.unknown.difference_update(values)
        self.committed += values


def await_commits(writers: list[Writer]) -> None:
    for writer, before in [(each, len(each.committed)) for each in writers]:
        wait_for(lambda: len(writer.committed) >= before + COMMITTED, "the writers commit")  # noqa: B023


@pytest.mark.parametrize("config", [{}, {"cleanup.policy": "compact"}], ids=["batches", "messages"])
def test_under_kills(gateways: list[GatewayProcess], config: dict[str, str]) -> None:
    topic, stop = unique_topic("killed"), threading.Event()
    bootstrap = ",".join(gateway.bootstrap for gateway in gateways)
    create_topic(bootstrap, topic, PARTITIONS, config)
    writers = [Writer(bootstrap, topic, number, stop) for number in range(PRODUCERS)]
    for writer in writers:
        writer.thread.start()
    try:
        for kill in range(KILLS):
            await_commits(writers)
            gateway = gateways[kill % 2]
            gateway.kill()
            time.sleep(DEAD_S)
            gateway.start()
            gateway.wait_ready()
        await_commits(writers)
    finally:
        stop.set()
        for writer in writers:
            writer.thread.join(2 * TIMEOUT_S)
    for number in range(PRODUCERS):
        Transactions(bootstrap, f"{topic}-{number}").abort()  # ends the last transaction

    committed = {value for writer in writers for value in writer.committed}
    maybe = {value for writer in writers for value in writer.unknown}
    found = [read(bootstrap, topic, partition=partition) for partition in range(PARTITIONS)]
    everything = [value for values in found for value in values if value is not None]
    assert len(everything) == len(set(everything)), "read twice"
    assert committed <= set(everything) <= committed | maybe
    assert any(writer.aborted for writer in writers)
    for values in found:
        for number in range(PRODUCERS):
            own = [value for value in values if value and value.startswith(f"{topic}-{number} ".encode())]
            assert own == sorted(own)
