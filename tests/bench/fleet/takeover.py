"""How long writes wait for partitions that a gateway has just taken over, and what Pulsar alone needs for them.

Each burst goes to a gateway whose predecessor was killed: it leads all partitions, and none of them is open.
"""

import asyncio
import random
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer
from kafka import KafkaProducer

from deploy.local.standalone import PulsarStandalone
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.position import Position
from gateway.pulsar.settings import PulsarSettings
from tests.bench.figures import Figures
from tests.bench.fleet.costs import create
from tests.bench.fleet.successors import LIMIT_S, Gateways
from tests.bench.process import cpu_seconds
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic

TAKEN_OVER = 1_000
TITLE = f"Writes to {TAKEN_OVER:,} partitions at once, directly after a takeover"
HEADINGS = (
    "by", "p50 s", "p99 s", "partitions a second", "CPU ms of the gateway, each", "CPU ms of Pulsar, each",
)  # fmt: skip
LED = 10_000
"""Of these partitions, which one gateway leads, few are written to."""
SINGLE = 500
WRITERS = 5
SINGLE_TITLE = f"Single writes to {SINGLE} of {LED:,} partitions, by {WRITERS} clients, directly after a takeover"
SINGLE_HEADINGS = ("by", "p50 s", "p99 s", "longest s")
AT_ONCE = 32
"""The number of producers that Pulsar opens at the same time when there is no gateway: as many as a gateway opens."""
RECORD = b"x" * 100
Burst = Callable[[str, str], list[float]]
"""(bootstrap address, topic) to the seconds from the first write to each acknowledgement."""


class _Costs(NamedTuple):
    gateway_s: float
    pulsar_s: float


def takeover(work_dir: Path, pulsar: PulsarStandalone, figures: Figures) -> None:
    """One row for each kind of client, and one for Pulsar without a gateway."""
    topic = unique_topic("led")
    with closing(Gateways(work_dir, pulsar)) as gateways:
        create(gateways.leader.bootstrap, topic, TAKEN_OVER)
        _by_librdkafka(idempotent=False)(gateways.leader.bootstrap, topic)  # Pulsar has loaded the partitions then
        for client, burst in BURSTS.items():
            leader = gateways.take_over([topic])
            before = _costs(pulsar, leader)
            waits_s = burst(leader.bootstrap, topic)
            after = _costs(pulsar, leader)
            _note(figures, client, waits_s, after.pulsar_s - before.pulsar_s, after.gateway_s - before.gateway_s)
    before_s = cpu_seconds(pulsar.pid)
    waits_s = asyncio.run(_without_gateway(pulsar, f"persistent://kafka/{gateways.namespace}/{topic}"))
    _note(figures, "Pulsar alone: lookup, producer, write", waits_s, cpu_seconds(pulsar.pid) - before_s)


def single_writes(work_dir: Path, pulsar: PulsarStandalone, figures: Figures) -> None:
    """Writes to a few of very many partitions that were taken over, as by clients that write now and then."""
    topics = [unique_topic("led") for _ in range(LED // TAKEN_OVER)]
    with closing(Gateways(work_dir, pulsar)) as gateways:
        for topic in topics:
            create(gateways.leader.bootstrap, topic, TAKEN_OVER)
            _by_librdkafka(idempotent=False)(gateways.leader.bootstrap, topic)
        for idempotent in (False, True):
            leader = gateways.take_over(topics)
            partitions = random.sample([(topic, number) for topic in topics for number in range(TAKEN_OVER)], SINGLE)
            write = partial(_write_singly, leader.bootstrap, idempotent=idempotent)
            with ThreadPoolExecutor(WRITERS) as pool:
                shares = [partitions[number::WRITERS] for number in range(WRITERS)]
                waits_s = [wait_s for waits_s in pool.map(write, shares) for wait_s in waits_s]
            client = "librdkafka, idempotent" if idempotent else "librdkafka"
            p99_s = statistics.quantiles(waits_s, n=100)[-1]
            figures.add(SINGLE_TITLE, SINGLE_HEADINGS, [client, statistics.median(waits_s), p99_s, max(waits_s)])


def _write_singly(bootstrap: str, partitions: Sequence[tuple[str, int]], *, idempotent: bool) -> list[float]:
    """Write one record after the other, each to a partition of its own. Returns the seconds that each waits."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": idempotent, "linger.ms": 0})
    for topic in {topic for topic, _ in partitions}:
        producer.list_topics(topic)
    waits_s: list[float] = []
    for topic, partition in partitions:
        began_s = time.monotonic()
        producer.produce(topic, RECORD, partition=partition)
        if producer.flush(LIMIT_S):
            raise RuntimeError(f"no answer for partition {partition} of {topic}")
        waits_s.append(time.monotonic() - began_s)
    return waits_s


def _note(
    figures: Figures, what: str, waits_s: Sequence[float], pulsar_s: float, gateway_s: float | None = None
) -> None:
    p50_s, p99_s = statistics.median(waits_s), statistics.quantiles(waits_s, n=100)[-1]
    gateway_ms = "" if gateway_s is None else gateway_s / TAKEN_OVER * 1_000
    figures.add(
        TITLE, HEADINGS, [what, p50_s, p99_s, TAKEN_OVER / max(waits_s), gateway_ms, pulsar_s / TAKEN_OVER * 1_000]
    )


def _costs(pulsar: PulsarStandalone, gateway: GatewayProcess) -> _Costs:
    return _Costs(cpu_seconds(gateway.pid), cpu_seconds(pulsar.pid))


def _by_librdkafka(*, idempotent: bool) -> Burst:
    """Each partition in a request of its own; an idempotent producer has five requests in flight."""

    def burst(bootstrap: str, topic: str) -> list[float]:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": idempotent, "linger.ms": 0,
             "message.timeout.ms": int(LIMIT_S * 1_000)}
        )  # fmt: skip
        producer.list_topics(topic)
        waits_s: list[float] = []
        errors: list[object] = []
        began_s = time.monotonic()

        def delivered(error: object, _: object) -> None:
            waits_s.append(time.monotonic() - began_s)
            if error is not None:
                errors.append(error)

        for partition in range(TAKEN_OVER):
            producer.produce(topic, RECORD, partition=partition, on_delivery=delivered)
        left = producer.flush(LIMIT_S)
        if left or errors:
            raise RuntimeError(f"{left} records not written, {len(errors)} errors: {errors[:1]}")
        return waits_s

    return burst


def _by_kafka_python(*, idempotent: bool) -> Burst:
    """Like the Java client: requests with many partitions."""

    def burst(bootstrap: str, topic: str) -> list[float]:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=idempotent, acks="all", linger_ms=50,
            delivery_timeout_ms=int(LIMIT_S * 1_000),
        )  # fmt: skip
        try:
            producer.partitions_for(topic)
            waits_s: list[float] = []
            began_s = time.monotonic()
            sent = [producer.send(topic, RECORD, partition=partition) for partition in range(TAKEN_OVER)]
            for future in sent:
                future.add_callback(lambda _: waits_s.append(time.monotonic() - began_s))
            for future in sent:
                future.get(LIMIT_S)
            return waits_s
        finally:
            producer.close()

    return burst


async def _without_gateway(pulsar: PulsarStandalone, topic: str) -> list[float]:
    client = PulsarClient(PulsarSettings(service_url=pulsar.service_url, admin_url=pulsar.admin_url))
    turns, waits_s, began_s = asyncio.Semaphore(AT_ONCE), [], time.monotonic()

    async def write(partition: int) -> None:
        async with turns:
            receipt = _Receipt()
            producer = await client.open_producer(f"{topic}-partition-{partition}", receipt)
            producer.send([RECORD], num_messages=1, publish_time_ms=1)
            await receipt.arrived
        waits_s.append(time.monotonic() - began_s)

    await asyncio.gather(*map(write, range(TAKEN_OVER)))
    await client.close()
    return waits_s


class _Receipt:
    """A SendListener."""

    def __init__(self) -> None:
        self.arrived: asyncio.Future[Position] = asyncio.get_running_loop().create_future()

    def on_receipt(self, sequence_id: int, position: Position) -> None:
        self.arrived.set_result(position)

    def on_send_error(self, sequence_id: int, error: PulsarError) -> None:
        self.arrived.set_exception(error)

    def on_producer_closed(self, error: PulsarError) -> None:
        if not self.arrived.done():
            self.arrived.set_exception(error)


BURSTS: dict[str, Burst] = {
    "librdkafka": _by_librdkafka(idempotent=False),
    "librdkafka, idempotent": _by_librdkafka(idempotent=True),
    "kafka-python, many partitions in a request": _by_kafka_python(idempotent=False),
    "the same, idempotent": _by_kafka_python(idempotent=True),
}
