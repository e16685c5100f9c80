"""Producers that commit and abort, consumers with read_committed, and the history that they record.

librdkafka in threads of this process: a trial kills servers, not clients.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.support.traffic.history import Read, Row
from tests.support.traffic.transaction_history import Outcome, Transaction, TransactionHistory

RECORDS = 12
"""The timeout of a transaction."""
ABORTS = 0.25
CALL_TIMEOUT_S = 20.0
TRANSACTION_TIMEOUT_MS = 15_000
READ_TIMEOUT_S = 60.0
POLL_S = 0.2
PAUSE_S = 0.02

IMPATIENT: dict[str, Any] = {
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 500,
    "socket.timeout.ms": 10_000,
    "topic.metadata.refresh.interval.ms": 2_000,
    "metadata.recovery.strategy": "none",
    "log_level": 3,
}
"""In a trial, a client of librdkafka 2.16.0 that had lost its last connection began its re-bootstrap sequence, and did
nothing after that: no request, no line of its debug log. Without re-bootstrap, clients keep the brokers that they
know."""


class Client(threading.Thread):
    """A thread whose exception is raised in the thread that joins it."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.stopping = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.go_on()
        except BaseException as failure:
            self.failure = failure
            raise

    def join(self, timeout: float | None = None) -> None:
        super().join(timeout)
        if self.failure is not None:
            raise self.failure

    def go_on(self) -> None:
        raise NotImplementedError


def stop_all(clients: Iterable[Client]) -> None:
    with ExitStack() as stack:
        for each in clients:
            each.stopping.set()
            stack.callback(each.join, READ_TIMEOUT_S)


class Writer(Client):
    """Runs one transaction after the other, each with records for some of the partitions. A quarter of them is aborted.
    """

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, name: str, seed: int, pause_s: float = PAUSE_S
    ) -> None:
        super().__init__(name)
        self._pause_s = pause_s
        self.transactions: list[Transaction] = []
        self._random = random.Random(seed)
        self._servers, self._topic, self._partitions = bootstrap, topic, partitions

    @property
    def committed(self) -> int:
        return sum(each.outcome is Outcome.COMMITTED for each in self.transactions)

    def go_on(self) -> None:
        producer: Producer | None = None
        for number in itertools.count():
            if self.stopping.is_set():
                break
            producer = producer or self._new_producer()
            producer = self._transaction(producer, number)
            time.sleep(self._pause_s)

    def _new_producer(self) -> Producer | None:
        """A new producer, which fences the previous one: its transaction is aborted. None if no gateway answers yet."""
        config = {
            **IMPATIENT,
            "bootstrap.servers": self._servers,
            "transactional.id": self.name,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "message.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "linger.ms": 5,
            "batch.num.messages": 3,
        }
        producer = Producer(config)
        while not self.stopping.is_set():
            try:
                producer.init_transactions(CALL_TIMEOUT_S)
            except KafkaException as error:
                if not error.args[0].retriable():
                    return None
            else:
                return producer
        return None

    def _transaction(self, producer: Producer | None, number: int) -> Producer | None:
        """Run one transaction, and add its outcome to the history. Returns the producer for the next transaction, None
        if a new one is needed."""
        if producer is None:
            return None
        values: list[tuple[int, bytes]] = []
        outcome = Outcome.ABORTED
        try:
            producer.begin_transaction()
            for place in range(RECORDS):
                row = (self._random.randrange(self._partitions), b"%s-%d-%d" % (self.name.encode(), number, place))
                values.append(row)
                producer.produce(self._topic, row[1], partition=row[0])
            commits = self._random.random() >= ABORTS
            if commits:
                outcome = Outcome.UNKNOWN
                until_answered(producer.commit_transaction, self.stopping)
                outcome = Outcome.COMMITTED
            else:
                producer.flush(CALL_TIMEOUT_S)  # an abort would drop what is not sent yet
                until_answered(producer.abort_transaction, self.stopping)
        except KafkaException as error:
            return self._after(producer, error)
        finally:
            self.transactions.append(Transaction(self.name, number, outcome, tuple(values)))
        return producer

    def _after(self, producer: Producer, error: KafkaException) -> Producer | None:
        """Abort after an abortable error. A producer with a fatal error is closed, and fenced by the next one."""
        if not error.args[0].txn_requires_abort():
            return None
        try:
            until_answered(producer.abort_transaction, self.stopping)
        except KafkaException:
            return None
        return producer


class Reader(Client):
    """Reads all partitions with read_committed, from the beginning, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, name: str) -> None:
        super().__init__(name)
        self.reads: list[Read] = []
        self._config = _reading(bootstrap)
        self._assigned = [TopicPartition(topic, partition, 0) for partition in range(partitions)]

    def go_on(self) -> None:
        consumer = Consumer(self._config)
        try:
            consumer.assign(self._assigned)
            while not self.stopping.is_set():
                for message in consumer.consume(500, POLL_S):
                    if is_record(message):
                        row = (message.partition() or 0, message.offset() or 0, message.value() or b"")
                        self.reads.append(Read(self.name, 1, *row))
        finally:
            consumer.close()


class Traffic:
    """Writers and readers that run from `__enter__` to `stop`."""

    def __init__(self, bootstraps: Sequence[str], topic: str, partitions: int, writers: int, seed: int = 0) -> None:
        """`bootstraps` are addresses of the same cluster; the clients use them in turn."""
        ways = itertools.cycle(bootstraps)
        names = [f"{topic}-writer-{number}" for number in range(writers)]
        self.writers = [Writer(next(ways), topic, partitions, name, seed + at) for at, name in enumerate(names)]
        self.readers = [Reader(each, topic, partitions, f"reader {number}") for number, each in enumerate(bootstraps)]
        self._clients: list[Client] = [*self.writers, *self.readers]
        self._bootstrap, self._topic, self._partitions = bootstraps[0], topic, partitions

    def __enter__(self) -> Traffic:
        for each in self._clients:
            each.start()
        return self

    def __exit__(self, *reason: object) -> None:
        stop_all(self._clients)

    def await_commits(self, count: int, within_s: float) -> None:
        """Wait until each writer has committed this number of further transactions."""
        before = [each.committed for each in self.writers]
        deadline = time.monotonic() + within_s
        while any(each.committed < had + count for each, had in zip(self.writers, before, strict=True)):
            failures = [each.failure for each in self._clients if each.failure]
            assert not failures, failures
            assert time.monotonic() < deadline, f"{self.counts()}, before {before}"
            time.sleep(POLL_S)

    def counts(self) -> dict[str, list[int]]:
        """The number of each writer's transactions, by outcome."""
        return {
            outcome.value: [sum(each.outcome is outcome for each in writer.transactions) for writer in self.writers]
            for outcome in Outcome
        }

    def stop(self) -> TransactionHistory:
        """The complete history at the end of a trial; open transactions are fenced first."""
        for writer in self.writers:
            writer.stopping.set()
        for writer in self.writers:
            writer.join(READ_TIMEOUT_S)
            assert not writer.is_alive()
            _fence(self._bootstrap, writer.name)
        history = TransactionHistory([each for writer in self.writers for each in writer.transactions])
        for partition in range(self._partitions):
            history.everything[partition] = read_rows(self._bootstrap, self._topic, partition, "read_uncommitted")
            history.committed[partition] = read_rows(self._bootstrap, self._topic, partition, "read_committed")
        self._await_readers(history)
        history.reads = [each for reader in self.readers for each in reader.reads]
        return history

    def _await_readers(self, history: TransactionHistory) -> None:
        """Wait until the readers have read all."""
        wanted = sum(map(len, history.committed.values()))
        deadline = time.monotonic() + READ_TIMEOUT_S
        while any(len(reader.reads) < wanted for reader in self.readers):
            assert time.monotonic() < deadline, f"{[len(each.reads) for each in self.readers]} of {wanted} are read"
            time.sleep(POLL_S)


def read_rows(bootstrap: str, topic: str, partition: int, isolation: str) -> list[Row]:
    """All records to the end, or to the last stable offset."""
    consumer = Consumer({**_reading(bootstrap), "enable.partition.eof": True, "isolation.level": isolation})
    found: list[Row] = []
    deadline = time.monotonic() + READ_TIMEOUT_S
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while time.monotonic() < deadline:
            for message in consumer.consume(1_000, POLL_S):
                if is_record(message):
                    found.append((message.offset() or 0, message.value() or b""))
                elif (error := message.error()) and error.code() == KafkaError._PARTITION_EOF:
                    return found
    finally:
        consumer.close()
    raise AssertionError(f"the end of partition {partition} was not reached: {len(found)} records")


def until_answered(end: Any, stopping: threading.Event, timeout_s: float = CALL_TIMEOUT_S) -> None:
    """Commits or aborts. What has no answer in time is asked again, until the client stops."""
    while True:
        try:
            end(timeout_s)
            return
        except KafkaException as error:
            if not error.args[0].retriable() or stopping.is_set():
                raise


def _fence(bootstrap: str, transactional_id: str) -> None:
    producer = Producer({**IMPATIENT, "bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    deadline = time.monotonic() + READ_TIMEOUT_S
    while True:
        try:
            producer.init_transactions(CALL_TIMEOUT_S)
            return
        except KafkaException as error:
            assert error.args[0].retriable() and time.monotonic() < deadline, error


def _reading(bootstrap: str) -> dict[str, Any]:
    return {
        **IMPATIENT,
        "bootstrap.servers": bootstrap,
        "group.id": "none",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
    }


def is_record(message: Message) -> bool:
    """Accepts transient errors. Raises AssertionError for others."""
    error = message.error()
    if error is None:
        return True
    passes = error.retriable() or error.code() < 0
    assert passes and error.code() != KafkaError._AUTO_OFFSET_RESET, error
    return False
