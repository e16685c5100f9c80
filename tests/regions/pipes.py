"""Transactional clients that read one topic and write another: consume, transform, produce, and commit offsets."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.support.traffic.transaction_history import Outcome, Transaction
from tests.support.traffic.transactional_traffic import IMPATIENT, until_answered

INPUTS = 20
"""The number of records that a transaction reads at most."""
ABORTS = 0.25
CALL_TIMEOUT_S = 10.0
SENDS = 2
START_TIMEOUT_S = 60.0
JOIN_TIMEOUT_S = 90.0
TRANSACTION_TIMEOUT_MS = 15_000
POLL_S = 0.1


class Pipe(threading.Thread):
    """Reads one partition of the source, and writes to all partitions of the target. A quarter of the transactions is
    aborted; their records are read again."""

    def __init__(
        self, bootstrap: str, source: str, target: str, group: str, partition: int, partitions: int, name: str
    ) -> None:
        """Transactional ids are named after the partition: in another cluster the same ones go on. `name` is only for
        the values."""
        super().__init__(name=name, daemon=True)
        self.transactions: list[Transaction] = []
        self.inputs: dict[int, list[bytes]] = {}
        """What each transaction has read, by its number."""
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self._servers, self._group = bootstrap, group
        self._source, self._target = TopicPartition(source, partition), target
        self._partitions = partitions
        self._random = random.Random(name)

    @property
    def committed(self) -> int:
        return sum(each.outcome is Outcome.COMMITTED for each in self.transactions)

    def run(self) -> None:
        try:
            self._go_on()
        except KafkaException as error:
            if not self.stopping.is_set():  # otherwise its cluster was killed
                self.failure = error
        except BaseException as error:
            self.failure = error

    def _go_on(self) -> None:
        producer = transactional_producer(self._servers, transactional_id(self._target, self._source.partition))
        consumer = Consumer({
            **IMPATIENT, "bootstrap.servers": self._servers, "group.id": self._group, "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "isolation.level": "read_committed",
        })  # fmt: skip
        try:
            consumer.assign([self._source])
            for number in itertools.count():
                messages = [each for each in self._read(consumer) if each.error() is None]
                if self.stopping.is_set():
                    break
                if not self._transaction(producer, consumer, number, messages):
                    consumer.seek(TopicPartition(self._source.topic, self._source.partition, messages[0].offset()))
        finally:
            if not self.stopping.is_set() or self.failure is None:
                consumer.close()

    def _read(self, consumer: Consumer) -> list[Any]:
        while not self.stopping.is_set():
            if messages := consumer.consume(INPUTS, POLL_S):
                return messages
        return []

    def _transaction(self, producer: Producer, consumer: Consumer, number: int, messages: list[Any]) -> bool:
        """Whether it was committed. Raises KafkaException."""
        if not messages:
            return True
        values = tuple(
            (self._random.randrange(self._partitions), b"%s-%d-%d" % (self.name.encode(), number, place))
            for place in range(len(messages))
        )
        self.inputs[number] = [each.value() for each in messages]
        end = messages[-1].offset() + 1
        outcome, commits = Outcome.ABORTED, self._random.random() >= ABORTS
        try:
            producer.begin_transaction()
            for partition, value in values:
                producer.produce(self._target, value, partition=partition)
            offsets = [TopicPartition(self._source.topic, self._source.partition, end)]
            self._send(producer, offsets, consumer)
            if commits:
                outcome = Outcome.UNKNOWN
                until_answered(producer.commit_transaction, self.stopping, CALL_TIMEOUT_S)
                outcome = Outcome.COMMITTED
            else:
                producer.flush(CALL_TIMEOUT_S)
                until_answered(producer.abort_transaction, self.stopping, CALL_TIMEOUT_S)
        finally:
            self.transactions.append(
                Transaction(self.name, number, outcome, values, ((self._source.partition, end),))
            )
        return commits

    def _send(self, producer: Producer, offsets: list[TopicPartition], consumer: Consumer) -> None:
        """The markers of the last transaction may be on their way. Raises KafkaException."""
        for attempt in range(1, SENDS + 1):
            try:
                producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), CALL_TIMEOUT_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or attempt == SENDS or self.stopping.is_set():
                    raise


class Pipes:
    """One for each partition of the source. A context manager: they stop at its end."""

    def __init__(self, bootstrap: str, source: str, target: str, group: str, partitions: int, name: str) -> None:
        self._all = [
            Pipe(bootstrap, source, target, group, number, partitions, f"{name}-{number}")
            for number in range(partitions)
        ]

    def __enter__(self) -> Pipes:
        for each in self._all:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()
        with ExitStack() as stack:
            for each in self._all:
                stack.callback(each.join, JOIN_TIMEOUT_S)

    def abandon(self) -> None:
        """Begin no further transaction: the cluster is dead, or the trial ends."""
        for each in self._all:
            each.stopping.set()

    def check_alive(self) -> None:
        failures = [each.failure for each in self._all if each.failure is not None]
        assert not failures, failures

    def have_committed(self, count: int, since: Sequence[int] | None = None) -> bool:
        """Whether each pipe has committed so many transactions, since ``commits`` was that."""
        before = since or [0] * len(self._all)
        return all(each.committed >= had + count for each, had in zip(self._all, before, strict=True))

    @property
    def commits(self) -> list[int]:
        """Of each pipe."""
        return [each.committed for each in self._all]

    @property
    def transactions(self) -> list[Transaction]:
        return [each for pipe in self._all for each in pipe.transactions]

    @property
    def consumed(self) -> set[bytes]:
        """What was read by transactions that may be committed."""
        return {
            value
            for pipe in self._all
            for each in pipe.transactions
            if each.outcome is not Outcome.ABORTED
            for value in pipe.inputs[each.number]
        }


def transactional_id(target: str, partition: int) -> str:
    return f"{target}-pipe-{partition}"


def transactional_producer(bootstrap: str, name: str) -> Producer:
    """A producer that has fenced the one before it in the same cluster. Raises KafkaException."""
    producer = Producer({
        **IMPATIENT, "bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 5,
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS, "message.timeout.ms": TRANSACTION_TIMEOUT_MS,
    })  # fmt: skip
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            producer.init_transactions(CALL_TIMEOUT_S)
            return producer
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise


def leave_open(bootstrap: str, target: str, partitions: int, name: str) -> tuple[Producer, Transaction]:
    """A transaction with a record in each partition, which its producer never ends. It must be kept until then."""
    producer = transactional_producer(bootstrap, name)
    producer.begin_transaction()
    values = tuple((number, f"{name}-{number}".encode()) for number in range(partitions))
    failures: list[KafkaError] = []
    for partition, value in values:
        producer.produce(
            target, value, partition=partition, on_delivery=lambda error, _: failures.append(error) if error else None
        )
    assert producer.flush(CALL_TIMEOUT_S) == 0 and not failures, failures
    return producer, Transaction(name, 0, Outcome.ABORTED, values)
