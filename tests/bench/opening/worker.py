"""One commit's side of a comparison: reads names of cases, and answers each with the CPU of a slice, in µs a partition.

Run with the commit's own sources first in PYTHONPATH, and the ports of a fake Pulsar.
"""

from __future__ import annotations

import asyncio
import cProfile
import logging
import pstats
import sys
import time
from collections.abc import Awaitable, Callable
from itertools import count
from uuid import uuid4

import structlog
import uvloop

from gateway.config.limits import Limits
from gateway.log import patience
from gateway.log.partition_log import PartitionLog
from gateway.log.registry import LogRegistry
from gateway.log.shared import Shared
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.settings import PulsarSettings
from gateway.topics.topic import Topic
from protocol.kafka.batch import parse_header
from protocol.kafka.records import Record, encode_batch

PARTITIONS = 32
"""Partitions of a slice. All are opened together, as many at the same time as the limits allow."""
WARM_UP_SLICES = 3
PROFILED_SLICES = 5
READY = "ready"
NO_PRODUCER_ID = -1
READ_BYTES = 1 << 20
_producer_ids = count(1_000)

Use = Callable[[PartitionLog], Awaitable[None]]


async def opened(log: PartitionLog) -> None:
    """Only open the log."""


async def written(log: PartitionLog) -> None:
    await _write(log, NO_PRODUCER_ID)


async def written_idempotently(log: PartitionLog) -> None:
    await _write(log, next(_producer_ids))


async def read(log: PartitionLog) -> None:
    """Read the log from its start, like a fetch that has to wait."""
    waiter = _Waiter()
    log.waiters.add(waiter, log.start.offset, at_end=False)
    while log.reader.read(log.start.offset, READ_BYTES) is None:
        log.reader.prefetch(log.start.offset)
        waiter.moved.clear()
        await waiter.moved.wait()
    log.waiters.discard(waiter)


class _Waiter:
    def __init__(self) -> None:
        self.moved = asyncio.Event()

    def log_moved(self) -> None:
        self.moved.set()


async def _write(log: PartitionLog, producer_id: int) -> None:
    data = memoryview(
        encode_batch(
            [Record(0, 1_000, None, b"value", ())], producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1, base_sequence=0 if producer_id >= 0 else -1,
        )
    )  # fmt: skip
    header = parse_header(data)
    if not log.ready_for(header, 1, time.monotonic()):
        await log.prepare(header, 1, time.monotonic())
    done = asyncio.get_running_loop().create_future()
    log.append(data, header, 1, lambda offset, error: done.set_exception(error) if error else done.set_result(offset))
    await done


CASES: dict[str, Use] = {
    "open": opened,
    "open, write": written,
    "open, write idempotently": written_idempotently,
    "open, read": read,
}


class Worker:
    def __init__(self, broker_port: int, admin_port: int) -> None:
        settings = PulsarSettings(
            service_url=f"pulsar://127.0.0.1:{broker_port}", admin_url=f"http://127.0.0.1:{admin_port}"
        )
        self._client, self._admin = PulsarClient(settings), AdminClient(settings)
        self._shared = Shared(self._client, self._admin, Limits(), Metrics(), lambda: True)
        self._logs = LogRegistry(self._shared, lambda name: False)
        self._topics = count()

    async def slice(self, case: str) -> float:
        """µs of CPU a partition."""
        name, use = f"topic-{next(self._topics)}", CASES[case]
        topic = Topic(name, f"persistent://public/default/{name}", uuid4(), PARTITIONS, True, {}, 0.0)

        async def one(partition: int) -> None:
            await use(await self._logs.open(topic, partition, urgent=True))

        began_s = time.process_time()
        await asyncio.gather(*map(one, range(PARTITIONS)))
        cost_s = time.process_time() - began_s
        await self._logs.forget_topic(topic.name)
        return cost_s / PARTITIONS * 1e6

    async def profile(self, case: str) -> None:
        profiler = cProfile.Profile(time.process_time)
        profiler.enable()
        for _ in range(PROFILED_SLICES):
            await self.slice(case)
        profiler.disable()
        stats = pstats.Stats(profiler)
        calls = stats.total_calls / PARTITIONS / PROFILED_SLICES  # type: ignore[attr-defined]
        print(f"{case}: {calls:.0f} calls a partition")
        stats.sort_stats("cumtime").print_stats(90)

    async def close(self) -> None:
        await self._logs.close()
        await self._client.close()
        await self._admin.close()


async def main(ports: list[int], profiled: list[str]) -> None:
    worker = Worker(*ports)
    for _ in range(WARM_UP_SLICES):
        for case in CASES:
            await worker.slice(case)
    for case in profiled:
        await worker.profile(case)
    if not profiled:
        print(READY, flush=True)
        loop = asyncio.get_running_loop()
        while case := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            print(await worker.slice(case), flush=True)
    await worker.close()


if __name__ == "__main__":
    patience.PATIENCE_S = 60.0  # the machine may have other work
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    uvloop.run(main([int(port) for port in sys.argv[1:3]], sys.argv[3:]))
