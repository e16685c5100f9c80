"""Transactions while leaders and coordinators are killed: what was committed is read, once and in order."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import create_topic
from tests.integration.servers import gateway_on, running
from tests.integration.transactional_writers import await_commits, check_transactions, writing
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic

PARTITIONS, PRODUCERS, KILLS = 3, 3, 2
DEAD_S = 2.0


@pytest.fixture
def gateways(pulsar: PulsarStandalone, tmp_path: Path) -> Iterator[list[GatewayProcess]]:
    namespace = {"namespace": unique_topic("takeover")}
    with ExitStack() as stack:
        yield [
            stack.enter_context(running(gateway_on(pulsar, tmp_path / name, pulsar=namespace)))
            for name in ("one", "two")
        ]


@pytest.mark.parametrize("config", [{}, {"cleanup.policy": "compact"}], ids=["batches", "messages"])
def test_under_kills(gateways: list[GatewayProcess], config: dict[str, str]) -> None:
    topic = unique_topic("killed")
    bootstrap = ",".join(gateway.bootstrap for gateway in gateways)
    create_topic(bootstrap, topic, PARTITIONS, config)
    with writing(bootstrap, topic, PARTITIONS, PRODUCERS) as writers:
        for kill in range(KILLS):
            await_commits(writers)
            gateway = gateways[kill % 2]
            gateway.kill()
            time.sleep(DEAD_S)
            gateway.start()
            gateway.wait_ready()
        await_commits(writers)
    check_transactions(bootstrap, topic, PARTITIONS, writers)
