"""Workers of one machine differ in their ports, and in nothing that all of them share; each is kept running."""

import asyncio
from collections.abc import Sequence

import pytest

from gateway import workers
from gateway.config.gateway_config import Config
from gateway.workers import worker_config


def test_every_port_is_raised() -> None:
    config = Config.model_validate(
        {
            "kafka": {"port": 9000, "advertised_port": 9100, "node_id": 0, "listeners": [{"name": "in", "port": 0}]},
            "http": {"port": 9400},
            "fleet": {"forwarding": {"port": 9500}},
        }
    )
    third = worker_config(config, 2)
    assert (third.kafka.port, third.kafka.advertised_port, third.kafka.node_id) == (9002, 9102, 2)
    assert (third.kafka.listeners[0].port, third.http.port) == (0, 9402)
    assert third.fleet.forwarding is not None and third.fleet.forwarding.port == 9502
    assert worker_config(config, 0) == config


def test_a_single_address_is_that_of_all() -> None:
    kafka = {"port": 9000, "advertised_port": 9092, "single_address": True}
    config = Config.model_validate({"kafka": kafka, "fleet": {"forwarding": {}}})
    second = worker_config(config, 1)
    assert (second.kafka.port, second.kafka.advertised_port) == (9001, 9092)
    assert second.fleet.forwarding is not None and second.fleet.forwarding.port == 9193


async def test_a_worker_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may have no memory for a process at the moment."""
    failures, runs = [BlockingIOError("cannot fork")], asyncio.Event()

    async def run(command: Sequence[str]) -> int:
        if failures:
            raise failures.pop()
        runs.set()
        await asyncio.Event().wait()
        return 0

    monkeypatch.setattr(workers, "_run", run)
    monkeypatch.setattr(workers, "PAUSE_FIRST_S", 0)
    stop = asyncio.Event()
    supervising = asyncio.create_task(workers.supervise([["gateway"]], stop))
    async with asyncio.timeout(5):
        await runs.wait()
    stop.set()
    await supervising
