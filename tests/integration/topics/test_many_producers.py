"""Thousands of idempotent producers that write one batch each, as short-lived processes do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.standalone import PulsarStandalone
from protocol.kafka.errors import ErrorCode
from tests.conformance.records import batch, records
from tests.conformance.requests import produce_fields
from tests.integration.admin_proxy import AdminProxy
from tests.integration.confluent import create_topic, read_all
from tests.integration.servers import gateway_on, running
from tests.support.async_client import AsyncClient, connected
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic

PRODUCERS, CONNECTIONS = 5_000, 250
MAX_ADMIN_REQUESTS = 100
"""Some are made at intervals, as long as it takes."""
RETRIABLE = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS}


class AdminRequests:
    def __init__(self) -> None:
        self.made: list[str] = []

    def passes(self, method: str, path: str) -> bool:
        self.made.append(f"{method} {path}")
        return True


@pytest.fixture
def admin_requests() -> AdminRequests:
    return AdminRequests()


@pytest.fixture
def gateway(pulsar: PulsarStandalone, tmp_path: Path, admin_requests: AdminRequests) -> Iterator[GatewayProcess]:
    with AdminProxy(pulsar.admin_url).running() as proxy:
        proxy.passes = admin_requests.passes
        section = {"namespace": unique_topic("producers"), "admin_url": proxy.url}
        with running(gateway_on(pulsar, tmp_path, pulsar=section)) as server:
            yield server


class Crowd:
    """The producers, by number."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self._ids: dict[int, tuple[int, int]] = {}

    def write(self) -> list[int]:
        """Each producer writes its batch, the same one each time. The offsets, by producer."""
        return asyncio.run(self._write())

    async def _write(self) -> list[int]:
        offsets: dict[int, int] = {}
        waiting = iter(range(PRODUCERS))

        async def one_after_the_other() -> None:
            async with connected(self._bootstrap) as client:
                for number in waiting:
                    offsets[number] = await self._produce(client, number)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(CONNECTIONS):
                tasks.create_task(one_after_the_other())
        return [offsets[number] for number in range(PRODUCERS)]

    async def _produce(self, client: AsyncClient, number: int) -> int:
        if number not in self._ids:
            made = await client.call(
                "InitProducerId", 4, transactional_id=None, transaction_timeout_ms=0, producer_id=-1, producer_epoch=-1
            )
            assert made["error_code"] == ErrorCode.NONE
            self._ids[number] = made["producer_id"], made["producer_epoch"]
        data = batch(records(1, prefix=f"{number}-"), producer=(*self._ids[number], 0))
        fields = produce_fields(9, {self._topic: {0: data}}, timeout_ms=30_000)
        while True:
            answer = await client.call("Produce", 9, **fields)
            [row] = answer["responses"][0]["partition_responses"]
            if row["error_code"] not in RETRIABLE:
                assert row["error_code"] == ErrorCode.NONE, ErrorCode(row["error_code"])
                return int(row["base_offset"])
            await asyncio.sleep(0.1)


def test_thousands_of_producers(gateway: GatewayProcess, admin_requests: AdminRequests) -> None:
    """Each batch is written once, also if it is sent again, and to another process."""
    topic = unique_topic("producers")
    create_topic(gateway.bootstrap, topic)
    crowd = Crowd(gateway.bootstrap, topic)
    admin_requests.made.clear()
    offsets = crowd.write()
    assert len(admin_requests.made) < MAX_ADMIN_REQUESTS
    assert sorted(offsets) == [*range(PRODUCERS)]
    log = read_all(gateway.bootstrap, topic)
    assert [log[offset].decode().partition("-")[0] for offset in offsets] == [str(n) for n in range(PRODUCERS)]
    assert crowd.write() == offsets
    gateway.stop()
    gateway.start()
    gateway.wait_ready()
    admin_requests.made.clear()
    assert crowd.write() == offsets
    assert len(admin_requests.made) < MAX_ADMIN_REQUESTS
    assert len(read_all(gateway.bootstrap, topic)) == PRODUCERS
