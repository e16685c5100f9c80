"""The parts of a run with partitions that nobody has used yet: read from their start, and written to first."""

import time
from collections.abc import Iterable

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.bench.loads.meter import Result, latencies
from tests.bench.plan import Plan
from tests.bench.process import cpu_seconds
from tests.bench.run import Run
from tests.bench.servers import Servers, create_topic
from tests.support.names import unique_topic

RECORDS = 20
WRITES = 50
TIMEOUT_S = 120.0


def cold_start(servers: Servers, run: Run, plan: Plan) -> None:
    """A gateway that has just started: one consumer of all partitions of a topic, and single writes at the same time.
    """
    for target in ("gateway", "kafka"):
        topic, bootstrap = unique_topic("bench"), servers.bootstrap(target)
        create_topic(bootstrap, topic, plan.cold_partitions)
        write_all(bootstrap, topic, plan.cold_partitions)
        for writes in (False, True):
            pid = servers.gateway.pid if target == "gateway" else servers.kafka.pid
            if target == "gateway":
                servers.restart_gateway()
                pid = servers.gateway.pid
            before = cpu_seconds(pid)
            result = read_all(bootstrap, topic, plan.cold_partitions, writes=writes)
            cost_ms = (cpu_seconds(pid) - before) / plan.cold_partitions * 1e3
            case = f"{plan.cold_partitions:,} partitions" + (", and writes" if writes else "")
            run.add("cold start", case, target, {**result, "cpu_ms_per_partition": cost_ms})


def write_all(bootstrap: str, topic: str, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for number in range(partitions * RECORDS):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
        if number % 1_000 == 0:
            producer.poll(0.01)
    if producer.flush(TIMEOUT_S):
        raise RuntimeError(f"{bootstrap} did not take all records in time")


def read_all(bootstrap: str, topic: str, partitions: int, *, writes: bool) -> Result:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    began, found = time.monotonic(), 0
    waits: list[float] = []
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
        if writes:
            waits = list(_write_some(bootstrap, topic, partitions))
        while found < partitions * RECORDS:
            if time.monotonic() - began > TIMEOUT_S:
                raise RuntimeError(f"{found} of {partitions * RECORDS} records came")
            found += sum(message.error() is None for message in consumer.consume(1_000, 0.1))
        seconds = time.monotonic() - began
    finally:
        consumer.close()
    timing: Result = {"produce_ms": latencies(waits)} if waits else {}
    return {"all_s": seconds, "records_per_s": found / seconds, **timing}


def _write_some(bootstrap: str, topic: str, partitions: int) -> Iterable[float]:
    """How long single writes to the last partitions of the consumer took, in seconds."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number in range(WRITES):
        began = time.monotonic()
        producer.produce(topic, b"written", partition=partitions - 1 - number)
        if producer.flush(TIMEOUT_S):
            raise RuntimeError(f"{bootstrap} did not take a record in time")
        yield time.monotonic() - began
