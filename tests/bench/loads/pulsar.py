"""The upper limit: the same batches written directly to Pulsar and read from it, with the gateway's own client."""

import asyncio
import time

from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.position import Position
from gateway.pulsar.producer import Producer
from gateway.pulsar.reader import Entry, Reader
from gateway.pulsar.settings import PulsarSettings
from tests.bench.loads.frames import LoadError, record_batch
from tests.bench.loads.meter import Meter, Result, latencies

PERMITS = 400_000
PROPERTIES = (("entry.format", "kafka"),)


class _Sender:
    """Keeps a number of entries in flight; a SendListener."""

    def __init__(self, batch_records: int, meter: Meter) -> None:
        self._batch_records = batch_records
        self._batch = (bytearray(record_batch(batch_records)),)
        self._meter = meter
        self._in_flight = 0
        self.producer: Producer | None = None
        self.stopping = False
        self.drained = asyncio.Event()

    def send(self) -> None:
        assert self.producer is not None
        self._in_flight += 1
        self.producer.send(
            self._batch, num_messages=self._batch_records, publish_time_ms=int(time.time() * 1000),
            properties=PROPERTIES,
        )  # fmt: skip

    def on_receipt(self, sequence_id: int, position: Position) -> None:
        self._in_flight -= 1
        self._meter.count()
        if not self.stopping:
            self.send()
        elif self._in_flight == 0:
            self.drained.set()

    def on_send_error(self, sequence_id: int, error: PulsarError) -> None:
        raise LoadError(str(error))

    def on_producer_closed(self, error: PulsarError) -> None:
        self.drained.set()


async def produce(
    service_url: str, topic: str, batch_records: int, in_flight: int, seconds: float, warm_up_s: float
) -> Result:
    """One entry for each batch, with `in_flight` entries in flight."""
    meter = Meter(batch_records)
    sender = _Sender(batch_records, meter)
    client = PulsarClient(PulsarSettings(service_url=service_url))
    sender.producer = await client.open_producer(topic, sender)
    for _ in range(in_flight):
        sender.send()
    await meter.run(warm_up_s, seconds)
    sender.stopping = True
    await asyncio.wait_for(sender.drained.wait(), 30)
    await client.close()
    return meter.result()


class _Taker:
    """Counts the entries of a reader; an EntryListener."""

    def __init__(self, batch_records: int, meter: Meter) -> None:
        self._batch_records = batch_records
        self._meter = meter
        self._permits = 0
        self.entries = 0
        self.reader: Reader | None = None

    def top_up(self) -> None:
        if self.reader is not None and self._permits < PERMITS // 2:
            self.reader.flow(PERMITS - self._permits)
            self._permits = PERMITS

    def on_entry(self, entry: Entry) -> None:
        self._permits -= entry.num_messages
        self.entries += 1
        self._meter.count(entry.num_messages // self._batch_records)
        self.top_up()

    def on_reader_closed(self, error: PulsarError) -> None:
        self.reader = None


async def consume(service_url: str, topic: str, batch_records: int, end: int) -> Result:
    """Every entry of the topic from the first to offset `end`, as fast as the broker sends them."""
    meter = Meter(batch_records, stop_after=end // batch_records)
    taker = _Taker(batch_records, meter)
    client = PulsarClient(PulsarSettings(service_url=service_url))
    taker.reader = await client.open_reader(topic, "earliest", taker)
    taker.top_up()
    await meter.run(0, 0)
    await client.close()
    return {**meter.result(), "batches_per_entry": meter.total / taker.entries}


class _Timed:
    """One entry at a time; a SendListener."""

    def __init__(self) -> None:
        self.sent: dict[int, float] = {}
        self.seconds: list[float] = []

    def on_receipt(self, sequence_id: int, position: Position) -> None:
        self.seconds.append(time.perf_counter() - self.sent.pop(sequence_id))

    def on_send_error(self, sequence_id: int, error: PulsarError) -> None:
        raise LoadError(str(error))

    def on_producer_closed(self, error: PulsarError) -> None:
        pass


async def latency(service_url: str, topic: str, rate: int, seconds: float) -> Result:
    """Entries of one record at a fixed low rate: time from sending to the receipt."""
    timed = _Timed()
    batch = (bytearray(record_batch(1)),)
    client = PulsarClient(PulsarSettings(service_url=service_url))
    producer = await client.open_producer(topic, timed)
    begin = time.perf_counter()
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, begin + number / rate - time.perf_counter()))
        now = time.perf_counter()
        sequence_id = producer.send(batch, num_messages=1, publish_time_ms=int(time.time() * 1000))
        timed.sent[sequence_id] = now
    await asyncio.sleep(0.3)
    await client.close()
    return {"produce_ms": latencies(timed.seconds)}
