"""A broker has received entries, and the thread that writes them is suspended while their connection is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.standalone import PulsarStandalone
from gateway.config.limits import Limits
from gateway.log.partition_log import PartitionLog, open_log
from gateway.log.shared import Shared
from gateway.observability.metrics import Metrics
from gateway.pulsar.errors import ConnectionLostError
from protocol.kafka.batch import iter_headers, parse_header
from protocol.kafka.records import Record, encode_batch
from tests.integration.pulsar_cluster import Cluster, run
from tests.integration.servers import running
from tests.support.jvm_threads import JvmThreads, debugging

WRITING_THREADS = "BookKeeperClientWorker-OrderedExecutor"
"""One of them, chosen by the topic's name, gets each entry from the thread that has read it from the socket."""
PRODUCER_ID, BATCHES, SOURCE = 7, 3, 1
RECEIVED_S = 0.3
READ_S = 1.5
"""A gateway has looked at the log within this time, if it does not wait for the thread."""


@pytest.fixture
def stopping(tmp_path: Path) -> Iterator[tuple[PulsarStandalone, JvmThreads]]:
    """A Pulsar, and its threads."""
    with debugging() as port, running(PulsarStandalone(tmp_path / "pulsar")) as pulsar, JvmThreads(port) as threads:
        yield pulsar, threads


async def append(log: PartitionLog, sequence: int) -> asyncio.Future[int]:
    """A batch of one record. Its offset, when it is written."""
    record = Record(0, 1_000, None, b"%d" % sequence, ())
    data = memoryview(encode_batch([record], producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=sequence))
    header = parse_header(data)
    await log.prepare(header, SOURCE, time.monotonic())
    written: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def done(offset: int, error: Exception | None) -> None:
        written.set_result(offset) if error is None else written.set_exception(error)

    log.append(data, header, SOURCE, done)
    return written


def test_what_waits_in_the_broker_is_not_sent_again(stopping: tuple[PulsarStandalone, JvmThreads]) -> None:
    """The broker counts neither as pending nor as written what waits for the thread."""
    pulsar, threads = stopping

    async def main(cluster: Cluster) -> None:
        topic = await cluster.new_topic()
        shared = Shared(cluster.client, cluster.admin, Limits(), Metrics(), lambda: True)
        log = await open_log(topic, shared)
        assert await (await append(log, 0)) == 0
        with threads.suspended(WRITING_THREADS):
            waiting = [await append(log, sequence) for sequence in range(1, BATCHES)]
            await asyncio.sleep(RECEIVED_S)
            for connection in [*cluster.client.connections.live]:
                connection.close(ConnectionLostError("lost"))
            await asyncio.sleep(READ_S)
            assert not any(each.done() for each in waiting)
        assert [await each for each in waiting] == [1, 2]
        assert await (await append(log, BATCHES)) == BATCHES
        await log.close()
        shared.close()
        entries = await cluster.read(topic, 3)
        sequences = [header.base_sequence for each in entries for _, header in iter_headers(each.payload)]
        assert sequences == [*range(BATCHES + 1)]

    run(pulsar, main)
