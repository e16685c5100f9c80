"""A running gateway, thousands of connections that do everything wrong, and a correct client at the same time."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator

import pytest

from deploy.local.process import free_port
from deploy.local.standalone import PulsarStandalone
from tests.fuzz.connections import Attacks
from tests.fuzz.witness import Witness
from tests.integration.native import wait_for
from tests.integration.servers import events, gateway_on, long_stalls, metric, resident_bytes, running
from tests.support.gateway_process import HOST, GatewayProcess
from tests.support.names import unique_topic

SEED = int(os.environ.get("FUZZ_SEED", "1"))
CONNECTIONS = int(os.environ.get("FUZZ_CONNECTIONS", "3000"))
WARM_UP_CONNECTIONS = 500
AT_MOST_S = float(os.environ.get("FUZZ_SECONDS", "20"))
"""On a busy machine, there are fewer connections."""
MAX_GROWTH_BYTES = 64 * 1024 * 1024
UNEXPECTED = ("request failed", "background task failed", "Task exception was never retrieved")


@pytest.fixture
def attacked(pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    proxied = {"name": "proxied", "host": HOST, "port": free_port(), "proxy_protocol": True}
    work_dir = tmp_path_factory.mktemp("attacked")
    namespace = {"namespace": unique_topic("attacked")}
    kafka = {"host": HOST, "port": free_port(), "listeners": [proxied]}
    with running(gateway_on(pulsar, work_dir, kafka=kafka, pulsar=namespace)) as gateway:
        yield gateway


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
    witness.check()
    wait_for(lambda: metric(attacked, "kafka_gateway_request_bytes") == 0, "requests are answered, or forgotten")
    unexpected = [event for name in UNEXPECTED for event in events(attacked, name)]
    assert not unexpected, json.dumps(unexpected, indent=1)
    assert metric(attacked, "kafka_gateway_unexpected_failures_total") == 0, attacked.log_tail()
    assert long_stalls(attacked) == []
