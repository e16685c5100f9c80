"""A running gateway, thousands of connections that do everything wrong, and a correct client at the same time."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from deploy.local.process import free_port
from deploy.local.standalone import PulsarStandalone
from tests.fuzz.connections import Attacks
from tests.fuzz.witness import Witness
from tests.integration.native import wait_for
from tests.integration.servers import gateway_on, metric, resident_bytes, running
from tests.support.gateway_process import HOST, GatewayProcess
from tests.support.names import unique_topic

SEED = int(os.environ.get("FUZZ_SEED", "1"))
CONNECTIONS = int(os.environ.get("FUZZ_CONNECTIONS", "3000"))
WARM_UP_CONNECTIONS = 500
AT_MOST_S = float(os.environ.get("FUZZ_SECONDS", "20"))
"""On a busy machine, there are fewer connections."""
MAX_GROWTH_BYTES = 64 * 1024 * 1024
MAX_STALL_CPU_MS = 100
UNEXPECTED = ("request failed", "background task failed", "Task exception was never retrieved")


@pytest.fixture
def attacked(pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    proxied = {"name": "proxied", "host": HOST, "port": free_port(), "proxy_protocol": True}
    work_dir = tmp_path_factory.mktemp("attacked")
    namespace = {"namespace": unique_topic("attacked")}
    kafka = {"host": HOST, "port": free_port(), "listeners": [proxied]}
    with running(gateway_on(pulsar, work_dir, kafka=kafka, pulsar=namespace)) as gateway:
        yield gateway


def events(gateway: GatewayProcess, name: str) -> list[dict[str, Any]]:
    """Lines of its log."""
    lines = (line for line in gateway.log_path.read_text().splitlines() if name in line and line.startswith("{"))
    return [event for event in map(json.loads, lines) if event["event"] == name]


def test_a_correct_client_is_not_disturbed(attacked: GatewayProcess) -> None:
    [proxied] = attacked.config["kafka"]["listeners"]
    attacks = Attacks(SEED, (HOST, attacked.config["kafka"]["port"]), (HOST, proxied["port"]))
    with Witness(attacked.bootstrap) as witness:
        witness.await_reading()
        end = time.monotonic() + AT_MOST_S
        asyncio.run(attacks.run(WARM_UP_CONNECTIONS, lambda: False))
        warm_bytes = resident_bytes(attacked.pid)
        asyncio.run(attacks.run(CONNECTIONS - WARM_UP_CONNECTIONS, lambda: time.monotonic() > end))
        wait_for(lambda: resident_bytes(attacked.pid) - warm_bytes < MAX_GROWTH_BYTES, "memory is given back")
    assert len(attacks.made) > 10
    assert witness.errors == []
    assert witness.reconnects == 0
    assert witness.assignments == 1
    assert witness.read == [*range(witness.written)]
    wait_for(lambda: metric(attacked, "kafka_gateway_request_bytes") == 0, "requests are answered, or forgotten")
    unexpected = [event for name in UNEXPECTED for event in events(attacked, name)]
    assert unexpected == []
    assert metric(attacked, "kafka_gateway_unexpected_failures_total") == 0, attacked.log_tail()
    stalls = events(attacked, "event loop stalled")
    assert [stall for stall in stalls if stall["cpu_ms"] > MAX_STALL_CPU_MS] == []
