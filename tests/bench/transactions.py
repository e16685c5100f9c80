"""Transactions with librdkafka: transactions a second, the cost of regular commits for writers, and read_committed
readers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, Producer, TopicPartition

from tests.bench.loads.frames import RECORD_BYTES
from tests.bench.loads.meter import Result, latencies
from tests.bench.plan import Plan
from tests.bench.run import Run
from tests.bench.servers import Servers
from tests.support.names import unique_topic

PART = "transactions"
PARTITIONS = 10
TARGETS = ("gateway", "kafka")
SHAPES = ((1, 1), (10, 1), (1, 20))
"""Partitions of a transaction, and number of producers."""
TIMEOUT_S = 30.0
WARM_UP = 5
WARM_UP_S = 1.0
QUEUED = 50_000
"""Records in librdkafka's queue: a longer queue only makes the end wait for it."""
COMMIT_EVERY_S = 0.1
READ_RECORDS_PER_TRANSACTION = 1_000
RECORD = b"v" * RECORD_BYTES
PLAIN, COMMITTING = "writing, no transactions", "writing, a commit every 100 ms"
READING = {level: f"reading, {level}" for level in ("read_uncommitted", "read_committed")}
END_TO_END = "end to end, read_committed"


def shape_case(partitions: int, producers: int) -> str:
    return f"{partitions} partition{'s' * (partitions > 1)} and offsets, {producers} producer{'s' * (producers > 1)}"


def transactions(servers: Servers, run: Run, plan: Plan) -> None:
    """Each case, with one target directly after the other."""
    for _ in range(plan.rounds):
        for partitions, producers in SHAPES:
            for target in TARGETS:
                result = _with_offsets(_bench(servers, target), partitions, producers, plan.transactions_s)
                run.add(PART, shape_case(partitions, producers), target, result)
        for target in TARGETS:
            run.add(PART, END_TO_END, target, _end_to_end(_bench(servers, target), plan.transactions_s))
    for number in range(plan.transactional_rounds):
        for target in TARGETS:
            _in_turns(servers, run, plan, target, 1 if number % 2 else -1)


def _in_turns(servers: Servers, run: Run, plan: Plan, target: str, order: int) -> None:
    """Cases that are compared with each other, in one order or the other: the first one may find things colder."""
    for case, every_s in ((PLAIN, None), (COMMITTING, COMMIT_EVERY_S))[::order]:
        run.add(PART, case, target, _writing(_bench(servers, target), every_s, plan.transactions_s))
    topic = _bench(servers, target)
    topic.fill(plan.transactional_records)
    for level, case in list(READING.items())[::order]:
        run.add(PART, case, target, topic.read(level, plan.transactional_records))


class _Topic:
    """One topic of a target."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.name = name

    def producer(self, **config: Any) -> Producer:
        """A producer; a transactional one, which is initialised, if `transactional_id` is given."""
        settings = {name.replace("_", "."): value for name, value in config.items()}
        made = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 0, **settings})
        if "transactional_id" in config:
            made.init_transactions(TIMEOUT_S)
        return made

    def consumer(self, level: str = "read_committed") -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": unique_topic("bench"),
                "enable.auto.commit": False,
                "isolation.level": level,
            }
        )

    def fill(self, records: int) -> None:
        """Small transactions into partition 0, all committed."""
        producer = self.producer(transactional_id=unique_topic("fill"), linger_ms=5)
        for _ in range(records // READ_RECORDS_PER_TRANSACTION):
            producer.begin_transaction()
            for _ in range(READ_RECORDS_PER_TRANSACTION):
                producer.produce(self.name, RECORD, partition=0)
            producer.commit_transaction(TIMEOUT_S)

    def read(self, level: str, records: int) -> Result:
        consumer = self.consumer(level)
        consumer.assign([TopicPartition(self.name, 0, OFFSET_BEGINNING)])
        left, began, deadline = records, 0.0, time.monotonic() + TIMEOUT_S
        while left > 0:
            got = consumer.consume(min(left, 10_000), 0.5)
            if got and not began:  # measured from the first records: the time to connect does not count
                began, records = time.perf_counter(), records - len(got)
            left -= len(got)
            if time.monotonic() > deadline:
                raise RuntimeError(f"{left} records of {self.name} were not read")
        took_s = time.perf_counter() - began
        consumer.close()
        return {"records_per_s": records / took_s}


def _bench(servers: Servers, target: str) -> _Topic:
    name = unique_topic("bench")
    servers.create_topic(target, name, PARTITIONS)
    return _Topic(servers.bootstrap(target), name)


def _with_offsets(topic: _Topic, partitions: int, producers: int, seconds: float) -> Result:
    """Each producer by itself: a record in each partition, an offset of a group, and the commit."""
    taken: list[float] = []

    def work() -> None:
        producer, consumer = topic.producer(transactional_id=unique_topic("bench")), topic.consumer()
        group = consumer.consumer_group_metadata()
        for number in range(WARM_UP):
            _transaction(topic, producer, group, partitions, number)
        started.wait(TIMEOUT_S)
        number = WARM_UP
        while time.perf_counter() < end[0]:
            began = time.perf_counter()
            _transaction(topic, producer, group, partitions, number)
            taken.append(time.perf_counter() - began)
            number += 1
        consumer.close()

    end = [0.0]

    def begin() -> None:
        end[0] = time.perf_counter() + seconds

    started = threading.Barrier(producers, action=begin)
    _together([work] * producers)
    return {"transactions_per_s": len(taken) / seconds, "transaction_ms": latencies(taken)}


def _transaction(topic: _Topic, producer: Producer, group: Any, partitions: int, number: int) -> None:
    producer.begin_transaction()
    for partition in range(partitions):
        producer.produce(topic.name, RECORD, partition=partition)
    producer.send_offsets_to_transaction([TopicPartition(topic.name, 0, number)], group, TIMEOUT_S)
    producer.commit_transaction(TIMEOUT_S)


def _end_to_end(topic: _Topic, seconds: float) -> Result:
    """From the beginning of a transaction with one record until a waiting read_committed consumer has the record."""
    producer, consumer = topic.producer(transactional_id=unique_topic("bench")), topic.consumer()
    consumer.assign([TopicPartition(topic.name, 0, OFFSET_END)])
    consumer.poll(1.0)
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        producer.begin_transaction()
        producer.produce(topic.name, RECORD, partition=0)
        producer.commit_transaction(TIMEOUT_S)
        message = consumer.poll(TIMEOUT_S)
        if message is None or message.error():
            raise RuntimeError("a committed record was not read")
        taken.append(time.perf_counter() - began)
    consumer.close()
    return {"end_to_end_ms": latencies(taken[WARM_UP:])}


def _writing(topic: _Topic, commit_every_s: float | None, seconds: float) -> Result:
    """As fast as librdkafka can, into all partitions; with `commit_every_s` None, by an idempotent producer."""
    commits = commit_every_s is not None
    ids = {"transactional_id": unique_topic("bench")} if commits else {}
    producer = topic.producer(linger_ms=5, queue_buffering_max_messages=1_000_000, **ids)
    _write_for(topic, producer, WARM_UP_S, commit_every_s)
    began = time.perf_counter()
    sent = _write_for(topic, producer, seconds, commit_every_s)
    return {"records_per_s": sent / (time.perf_counter() - began)}


def _write_for(topic: _Topic, producer: Producer, seconds: float, commit_every_s: float | None) -> int:
    """Returns the number of records when all are acknowledged, and committed."""
    sent, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        if commit_every_s is not None:
            producer.begin_transaction()
        next_commit = time.perf_counter() + (commit_every_s or seconds)
        while time.perf_counter() < min(end, next_commit):
            for partition in range(PARTITIONS):
                producer.produce(topic.name, RECORD, partition=partition)
                sent += 1
            producer.poll(0.01 if len(producer) > QUEUED else 0)
        if commit_every_s is not None:
            producer.commit_transaction(TIMEOUT_S)
    producer.flush(TIMEOUT_S)
    return sent


def _together(works: Sequence[Callable[[], None]]) -> None:
    """Run them in threads. Raises the exception of the first one that failed."""
    failures: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if failures:
        raise failures[0]
