"""A running gateway, thousands of connections that do everything wrong, and a correct client at the same time."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

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
LONGEST_PAUSE_S = 3.0
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
    check_failures(attacked)
    assert long_stalls(attacked) == []


def test_requests_while_pulsar_is_suspended(attacked: GatewayProcess, pulsar: PulsarStandalone) -> None:
    """Their topics are then found between creation and deletion, and their connections end while they wait.

    Stalls of the event loop are not looked for: when Pulsar continues, thousands of requests go on in one turn.
    """
    [proxied] = attacked.config["kafka"]["listeners"]
    attacks = Attacks(SEED, (HOST, attacked.config["kafka"]["port"]), (HOST, proxied["port"]), only_whole=True)
    end = time.monotonic() + AT_MOST_S
    with suspended_at_times(pulsar.pid):
        asyncio.run(attacks.run(sys.maxsize, lambda: time.monotonic() > end))
    assert attacks.made["whole_requests"] > 10
    wait_for(lambda: metric(attacked, "kafka_gateway_request_bytes") == 0, "requests are answered, or forgotten")
    check_failures(attacked)


@contextmanager
def suspended_at_times(pid: int) -> Iterator[None]:
    """The process is suspended for random times."""
    over, random = threading.Event(), Random(SEED)

    def suspend_and_continue() -> None:
        while not over.wait(random.uniform(0.05, 1)):
            os.kill(pid, signal.SIGSTOP)
            over.wait(random.uniform(0.05, LONGEST_PAUSE_S))
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=suspend_and_continue)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def check_failures(gateway: GatewayProcess) -> None:
    unexpected = [event for name in UNEXPECTED for event in events(gateway, name)]
    assert not unexpected, json.dumps(unexpected, indent=1)
    assert metric(gateway, "kafka_gateway_unexpected_failures_total") == 0, gateway.log_tail()
