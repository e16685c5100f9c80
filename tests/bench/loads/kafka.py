"""Loads over the Kafka protocol: many bytes and little Python, the same for the gateway and for Kafka."""

import asyncio
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

from tests.bench.loads.frames import LENGTH_BYTES, FetchFrames, LoadError, ProduceFrames, record_batch
from tests.bench.loads.meter import Meter, Result, latencies

REQUESTS_PER_CONNECTION = 5
"""Kafka's default (max.in.flight.requests.per.connection)."""
FETCH_MAX_BYTES = 1 << 20
"""Kafka's default (max.partition.fetch.bytes)."""
LONG_POLL_MS = 500
READ_BUFFER_BYTES = 4 << 20
CONNECT_TIMEOUT_S = 10.0
SETTLE_S = 0.2


class FrameConnection(asyncio.BufferedProtocol):
    """Passes every whole response, with its length, to `on_frame`, which must not keep it."""

    def __init__(self, on_frame: Callable[[memoryview], None], on_read: Callable[[], None] | None = None) -> None:
        self._on_frame = on_frame
        self._on_read = on_read
        self._buffer = bytearray(READ_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._transport: asyncio.Transport | None = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self.lost.done():
            self.lost.set_exception(LoadError(f"connection lost: {exc or 'closed by the server'}"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        view, position = self._view, 0
        try:
            while self._filled - position >= LENGTH_BYTES:
                end = position + LENGTH_BYTES + int.from_bytes(view[position : position + LENGTH_BYTES], "big")
                if end > self._filled:
                    break
                self._on_frame(view[position:end])
                position = end
        except LoadError as error:
            self.fail(error)
            return
        if position:
            self._view[: self._filled - position] = bytes(view[position : self._filled])
            self._filled -= position
            if self._on_read is not None:
                self._on_read()

    def write(self, buffers: list[bytes]) -> None:
        if self._transport is not None:
            self._transport.writelines(buffers)

    def fail(self, error: LoadError) -> None:
        if not self.lost.done():
            self.lost.set_exception(error)

    def close(self) -> None:
        self.lost.cancel()
        if self._transport is not None:
            self._transport.abort()


async def connect(
    bootstrap: str,
    on_frame: Callable[[memoryview], None],
    on_read: Callable[[], None] | None = None,
    authority: str | None = None,
) -> FrameConnection:
    """With `authority`, a PEM file, the connection uses TLS."""
    host, _, port = bootstrap.rpartition(":")
    context = None if authority is None else ssl.create_default_context(cafile=authority)
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: FrameConnection(on_frame, on_read), host, int(port), ssl=context
        )
    return connection


class _Producer:
    """One connection with a fixed number of requests in flight; each response sends the next request."""

    def __init__(self, frames: ProduceFrames, meter: Meter) -> None:
        self._frames = frames
        self._meter = meter
        self._sent = 0
        self._answered = 0
        self._outgoing: list[bytes] = []
        self.stopping = False
        self.connection: FrameConnection | None = None
        self.drained = asyncio.Event()

    def start(self, in_flight: int) -> None:
        for _ in range(in_flight):
            self._next()
        self._flush()

    def on_frame(self, response: memoryview) -> None:
        if int.from_bytes(response[4:8], "big") != self._answered:
            raise LoadError("answers out of order")
        self._frames.base_offset(response)
        self._answered += 1
        self._meter.count()
        if not self.stopping:
            self._next()
        elif self._answered == self._sent:
            self.drained.set()

    def _next(self) -> None:
        self._outgoing += self._frames.request(self._sent)
        self._sent += 1

    def _flush(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        if outgoing and self.connection is not None:
            self.connection.write(outgoing)

    on_read = _flush


async def produce(
    bootstrap: str, topic: str, batch_records: int, in_flight: int, seconds: float, warm_up_s: float, batches: int = 0,
    authority: str | None = None,
) -> Result:  # fmt: skip
    """Keep `in_flight` requests of one batch each in flight, for `seconds` or until `batches` were acknowledged."""
    target = bootstrap, topic, 0
    return await produce_to_each([target], batch_records, in_flight, seconds, warm_up_s, batches, authority)


async def produce_to_each(
    targets: Sequence[tuple[str, str, int]], batch_records: int, in_flight: int, seconds: float, warm_up_s: float,
    batches: int = 0, authority: str | None = None,
) -> Result:  # fmt: skip
    """As `produce`, to each of the partitions: (bootstrap address of its leader, topic, number)."""
    batch = record_batch(batch_records)
    meter = Meter(batch_records, stop_after=batches)
    producers = []
    share = min(in_flight, REQUESTS_PER_CONNECTION)
    for bootstrap, topic, partition in targets:
        frames = ProduceFrames(topic, batch, partition)
        for _ in range(in_flight // share):
            producer = _Producer(frames, meter)
            producer.connection = await connect(bootstrap, producer.on_frame, producer.on_read, authority)
            producers.append(producer)
    for producer in producers:
        producer.start(share)
    connections = [producer.connection for producer in producers if producer.connection is not None]
    await watched(connections, meter.run(warm_up_s, seconds))
    for producer in producers:
        producer.stopping = True
    await watched(connections, asyncio.gather(*(producer.drained.wait() for producer in producers)))
    for connection in connections:
        connection.close()
    return meter.result()


async def consume(
    bootstrap: str, topic: str, batch_records: int, start: int, end: int, seconds: float = 0, warm_up_s: float = 0,
    authority: str | None = None, max_bytes: int = FETCH_MAX_BYTES,
) -> Result:  # fmt: skip
    """Fetch from `start` to `end`, one request at a time; repeatedly for `seconds` if given, else once.

    Each response has one batch if `max_bytes` is 1.
    """
    frames = FetchFrames(topic, max_bytes=max_bytes, max_wait_ms=LONG_POLL_MS)
    batch_bytes = len(record_batch(batch_records))
    meter = Meter(batch_records, stop_after=0 if seconds else (end - start) // batch_records)
    offset, requests = start, 0

    def send() -> None:
        connection.write([frames.request(requests, offset)])

    def on_frame(response: memoryview) -> None:
        nonlocal offset, requests
        fetched = frames.parse(response)
        batches = fetched.records_bytes // batch_bytes  # Kafka may cut the last batch off
        if batches and fetched.first_offset != offset:
            raise LoadError(f"asked for offset {offset}, got {fetched.first_offset}")
        meter.count(batches)
        offset += batches * batch_records
        if offset >= end and seconds:
            offset = start
        requests += 1
        if offset < end:
            send()

    connection = await connect(bootstrap, on_frame, authority=authority)
    send()
    await watched([connection], meter.run(warm_up_s, seconds))
    connection.close()
    result = meter.result()
    result["batches_per_fetch"] = meter.total / max(1, requests)
    return result


class _LatencyProbe:
    """One connection that produces records one by one, and one whose fetch waits for them."""

    def __init__(self, topic: str) -> None:
        self._produce = ProduceFrames(topic, record_batch(1))
        self._fetch = FetchFrames(topic, max_bytes=FETCH_MAX_BYTES, max_wait_ms=LONG_POLL_MS)
        self._batch_bytes = len(record_batch(1))
        self._offset = 0
        self._first: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._producer: FrameConnection | None = None
        self._consumer: FrameConnection | None = None
        self.sent: list[float] = []
        self.produced: list[float] = []
        self.arrived: list[float] = []

    async def open(self, bootstrap: str) -> list[FrameConnection]:
        """Write one record, which is not measured, and wait for the records after it."""
        self._producer = await connect(bootstrap, self._on_produced)
        self._producer.write(self._produce.request(0))
        self._offset = await asyncio.wait_for(self._first, CONNECT_TIMEOUT_S) + 1
        self._consumer = await connect(bootstrap, self._on_fetched)
        self._ask()
        return [self._producer, self._consumer]

    async def send_all(self, rate: int, seconds: float) -> None:
        assert self._producer is not None
        await asyncio.sleep(SETTLE_S)
        begin = time.perf_counter()
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, begin + number / rate - time.perf_counter()))
            self.sent.append(time.perf_counter())
            self._producer.write(self._produce.request(0))
        deadline = time.perf_counter() + CONNECT_TIMEOUT_S
        while min(len(self.produced), len(self.arrived)) < len(self.sent) and time.perf_counter() < deadline:
            await asyncio.sleep(SETTLE_S)

    def _on_produced(self, response: memoryview) -> None:
        base_offset = self._produce.base_offset(response)
        if not self._first.done():
            self._first.set_result(base_offset)
        else:
            self.produced.append(time.perf_counter() - self.sent[len(self.produced)])

    def _on_fetched(self, response: memoryview) -> None:
        now = time.perf_counter()
        for _ in range(self._fetch.parse(response).records_bytes // self._batch_bytes):
            self.arrived.append(now - self.sent[len(self.arrived)])
            self._offset += 1
        self._ask()

    def _ask(self) -> None:
        if self._consumer is not None:
            self._consumer.write([self._fetch.request(0, self._offset)])


async def latency(bootstrap: str, topic: str, rate: int, seconds: float) -> Result:
    """Batches of one record at a fixed low rate: time until the response, and until a waiting consumer has the record.
    """
    probe = _LatencyProbe(topic)
    connections = await probe.open(bootstrap)
    await watched(connections, probe.send_all(rate, seconds))
    for connection in connections:
        connection.close()
    if not len(probe.produced) == len(probe.arrived) == len(probe.sent):
        raise LoadError(
            f"of {len(probe.sent)} batches {len(probe.produced)} were answered, {len(probe.arrived)} arrived"
        )
    return {"produce_ms": latencies(probe.produced), "end_to_end_ms": latencies(probe.arrived)}


async def watched(connections: list[FrameConnection], work: Any) -> None:
    """Wait for the work. If a connection fails first, its LoadError is raised."""
    task = asyncio.ensure_future(work)
    lost = [connection.lost for connection in connections]
    await asyncio.wait([task, *lost], return_when=asyncio.FIRST_COMPLETED)
    for future in lost:
        if future.done():
            task.cancel()
            future.result()
    task.result()
