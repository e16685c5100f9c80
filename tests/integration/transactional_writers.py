"""Clients that write transactions all the time, and what may be read afterwards."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import KafkaException, Producer

from tests.integration.confluent import TIMEOUT_S
from tests.integration.native import wait_for
from tests.integration.transactional import Transactions, read

COMMITTED = 30
"""Values that each writer commits in `await_commits`."""


class Writer:
    """Transactions of some values over all partitions, one after the other, each committed or aborted at random."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, number: int) -> None:
        self.committed: list[bytes] = []
        self.unknown: set[bytes] = set()
        self.aborted: set[bytes] = set()
        self.name = f"{topic}-{number}"
        self.stop = threading.Event()
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self._chance = random.Random(number)
        self._count = 0
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self.stop.is_set():
            producer = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": self.name, "linger.ms": 1})
            try:
                producer.init_transactions(TIMEOUT_S)
                while not self.stop.is_set():
                    self._transaction(producer)
            except KafkaException:
                continue  # with a new producer, which ends the last transaction of its predecessor

    def _transaction(self, producer: Producer) -> None:
        producer.begin_transaction()
        values = []
        for _ in range(self._chance.randint(1, 5)):
            values.append(b"%s %06d" % (self.name.encode(), self._count))
            partition = self._count % self._partitions
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


@contextmanager
def writing(bootstrap: str, topic: str, partitions: int, count: int) -> Iterator[list[Writer]]:
    """Writers in threads, until the block has ended and one has aborted. Their last transactions have ended then."""
    writers = [Writer(bootstrap, topic, partitions, number) for number in range(count)]
    for writer in writers:
        writer.thread.start()
    try:
        yield writers
        wait_for(lambda: any(writer.aborted for writer in writers), "a writer aborts", 2 * TIMEOUT_S)
    finally:
        for writer in writers:
            writer.stop.set()
        for writer in writers:
            writer.thread.join(2 * TIMEOUT_S)
    for writer in writers:
        Transactions(bootstrap, writer.name).abort()


def await_commits(writers: Sequence[Writer]) -> None:
    for writer, before in [(each, len(each.committed)) for each in writers]:
        wait_for(lambda: len(writer.committed) >= before + COMMITTED, "the writers commit")  # noqa: B023


def check_transactions(bootstrap: str, topic: str, partitions: int, writers: Sequence[Writer]) -> None:
    """What was committed is in the partitions, once and in order."""
    committed = {value for writer in writers for value in writer.committed}
    maybe = {value for writer in writers for value in writer.unknown}
    found = [read(bootstrap, topic, partition=partition) for partition in range(partitions)]
    everything = [value for values in found for value in values if value is not None]
    assert len(everything) == len(set(everything)), "read twice"
    assert committed <= set(everything) <= committed | maybe
    for values in found:
        for writer in writers:
            own = [value for value in values if value and value.startswith(f"{writer.name} ".encode())]
            assert own == sorted(own)
