"""Consumers of message sets (Fetch v0 to v3) and batches that no message set can hold: any number of control batches.

Kafka returns an empty set to such a consumer as long as the control batches exceed the size of the fetch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import Record, create_topic, produce
from tests.integration.entries.test_random_entries import fetch
from tests.integration.odd_entries import Odd, write
from tests.integration.servers import lone_gateway_on, running
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import RawClient, connected
from tests.support.records import parse_message_set

UNREADABLE, FETCHED_BYTES, MAX_FETCHES = 200, 1_000, 100
"""A control batch takes 78 bytes."""


@pytest.fixture(scope="module")
def lone(pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with running(lone_gateway_on(pulsar, tmp_path_factory.mktemp("old"))) as gateway:
        yield gateway


@pytest.mark.parametrize("opened_anew", [False, True])
def test_they_come_past_a_long_run(pulsar: PulsarStandalone, lone: GatewayProcess, opened_anew: bool) -> None:
    topic = unique_topic("old")
    create_topic(lone.bootstrap, topic)
    produce(lone.bootstrap, topic, [Record(b"first")])
    unreadable = [Odd(b"\xff" * 40, 2)] * UNREADABLE
    asyncio.run(write(pulsar, f"{topic}-partition-0", unreadable, f"kafka/{lone.config['pulsar']['namespace']}"))
    produce(lone.bootstrap, topic, [Record(b"last")])
    if opened_anew:
        lone.stop()
        lone.start()
        lone.wait_ready()
    with connected(lone.bootstrap) as client:
        for version in range(4):
            assert values(client, version, topic) == [b"first", b"last"]


def values(client: RawClient, version: int, topic: str) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = 0
    for _ in range(MAX_FETCHES):
        for message in parse_message_set(fetch(client, version, topic, None, offset, FETCHED_BYTES), 1 << 20):
            found.append(message.value)
            offset = message.offset + 1
        if found[-1:] == [b"last"]:
            break
    return found
