"""Entries at the end of a log that brokers do not dispatch: no client waits for them, and offsets continue after them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import cast

import pytest
from confluent_kafka import KafkaException, TopicPartition

from deploy.local.standalone import PulsarStandalone
from gateway.log.entries.entry_stream import EntryQueue
from gateway.log.entries.undispatched import undispatched_end
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.topics import TopicPolicy
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.settings import PulsarSettings
from protocol.pulsar.entry import encode_message
from tests.integration.confluent import TIMEOUT_S, Record, assigned, create_topic, produce, read_all_values, watermarks
from tests.integration.odd_entries import Odd, write
from tests.integration.servers import lone_gateway_on, running
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic

PAYLOAD = encode_message(b"never seen")
SNAPSHOT = 10
MARKER = Odd(PAYLOAD, metadata={"marker_type": SNAPSHOT})
COUNTED_AS_NOTHING = Odd(PAYLOAD, metadata={"num_messages_in_batch": 0})
NATIVE = Odd(encode_message(b"native"))
LARGE_PROPERTIES = {"name": 20_000 * "v"}
"""The admin API cannot return an entry with these: they do not fit the headers of its answer."""
LARGE_MARKER = Odd(PAYLOAD, 3, {"marker_type": SNAPSHOT}, LARGE_PROPERTIES)
LARGE_RECORD = Odd(encode_message(b"native"), properties=LARGE_PROPERTIES)
ENDS = {
    "a marker": [MARKER],
    "a count of nothing": [COUNTED_AS_NOTHING],
    "many of both": [MARKER, COUNTED_AS_NOTHING, Odd(PAYLOAD, 3, {"marker_type": 99})] * 20,
    "behind a record": [NATIVE, MARKER],
    "without an offset": [Odd(PAYLOAD, 0, {"marker_type": SNAPSHOT})],
    "without an offset, though dispatched": [Odd(PAYLOAD, 0, {"num_messages_in_batch": 1})],
    "with large properties": [LARGE_MARKER, COUNTED_AS_NOTHING, LARGE_MARKER],
    "behind a record, all with large properties": [LARGE_MARKER, LARGE_RECORD, LARGE_MARKER],
}

DISPATCH_RATE = cast(TopicPolicy, "dispatchRate")
ONE_AN_HOUR = {
    "dispatchThrottlingRateInMsg": 1, "dispatchThrottlingRateInByte": -1, "relativeToPublishRate": False,
    "ratePeriodInSecond": 3600,
}  # fmt: skip


@pytest.fixture(scope="module")
def lone(pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with running(lone_gateway_on(pulsar, tmp_path_factory.mktemp("undispatched"))) as gateway:
        yield gateway


@pytest.fixture
def topic(lone: GatewayProcess) -> str:
    name = unique_topic("undispatched")
    create_topic(lone.bootstrap, name)
    return name


def bounds(lone: GatewayProcess, topic: str, end: int) -> tuple[int, int]:
    """Log start and end, when the end is as expected: it may not include the newest entries of other writers yet."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        with suppress(KafkaException):  # on a busy machine the log may not be open in time
            found = watermarks(lone.bootstrap, topic)
            if found[1] == end:
                return found
    raise AssertionError(f"the end was not {end} in {TIMEOUT_S:.0f} s")


def append(pulsar: PulsarStandalone, lone: GatewayProcess, topic: str, entries: Sequence[Odd]) -> int:
    """The number of offsets of these entries."""
    asyncio.run(write(pulsar, f"{topic}-partition-0", entries, f"kafka/{lone.config['pulsar']['namespace']}"))
    return sum(odd.count for odd in entries)


@pytest.mark.parametrize("end", ENDS)
def test_an_open_log_continues_after_them(
    pulsar: PulsarStandalone, lone: GatewayProcess, topic: str, end: str
) -> None:
    assert produce(lone.bootstrap, topic, [Record(b"before")], enable_idempotence=True) == [0]
    count = append(pulsar, lone, topic, ENDS[end])
    assert bounds(lone, topic, 1 + count) == (0, 1 + count)
    assert [value for _, value in read_all_values(lone.bootstrap, topic)] == seen(b"before", end)
    assert produce(lone.bootstrap, topic, [Record(b"behind")], enable_idempotence=True) == [1 + count]


@pytest.mark.parametrize("end", ENDS)
def test_a_log_is_opened_that_ends_with_them(
    pulsar: PulsarStandalone, lone: GatewayProcess, topic: str, end: str
) -> None:
    count = append(pulsar, lone, topic, [NATIVE, *ENDS[end]])
    assert bounds(lone, topic, count) == (0, count)
    assert [value for _, value in read_all_values(lone.bootstrap, topic)] == seen(b"native", end)
    with assigned(lone.bootstrap, topic) as reader:
        [found] = reader.offsets_for_times([TopicPartition(topic, 0, 1)], TIMEOUT_S)
        assert (found.error, found.offset) == (None, 0)
        [found] = reader.offsets_for_times([TopicPartition(topic, 0, 2**60)], TIMEOUT_S)
        assert (found.error, found.offset) == (None, -1)
    assert produce(lone.bootstrap, topic, [Record(b"behind")], enable_idempotence=True) == [count]


@pytest.mark.parametrize("end", ENDS)
def test_a_log_may_hold_nothing_else(
    pulsar: PulsarStandalone, lone: GatewayProcess, topic: str, end: str
) -> None:
    count = append(pulsar, lone, topic, ENDS[end])
    bounds(lone, topic, count)
    assert [value for _, value in read_all_values(lone.bootstrap, topic)] == seen(b"", end)[1:]
    assert produce(lone.bootstrap, topic, [Record(b"behind")], enable_idempotence=True) == [count]


def seen(first: bytes, end: str) -> list[bytes]:
    return [first, *(b"native" for odd in ENDS[end] if odd in (NATIVE, LARGE_RECORD))]


def test_a_record_with_large_properties_may_be_late(
    pulsar: PulsarStandalone, lone: GatewayProcess, topic: str
) -> None:
    """Pulsar holds back the last entry. It must not be skipped like one that is never dispatched."""
    append(pulsar, lone, topic, [NATIVE, LARGE_RECORD])
    name = f"persistent://kafka/{lone.config['pulsar']['namespace']}/{topic}"
    asyncio.run(held_back(pulsar, name))
    bounds(lone, topic, 2)
    assert [value for _, value in read_all_values(lone.bootstrap, topic)] == [b"native", b"native"]


async def held_back(pulsar: PulsarStandalone, name: str) -> None:
    """While Pulsar dispatches at most one message an hour: the gateway does not find an end before the record."""
    settings = PulsarSettings(service_url=pulsar.service_url, admin_url=pulsar.admin_url)
    client, admin = PulsarClient(settings), AdminClient(settings)
    partition = f"{name}-partition-0"
    try:
        await admin.topics.set_policy(name, DISPATCH_RATE, ONE_AN_HOUR)
        while await arrives(client, partition):  # the policy takes effect later
            pass
        last = await client.last_position(partition)
        behind = last._replace(entry_id=last.entry_id - 1)
        assert await undispatched_end(client, admin, partition, behind, last) is None
        await admin.topics.remove_policy(name, DISPATCH_RATE)
        async with asyncio.timeout(TIMEOUT_S):
            while not await arrives(client, partition):
                pass
    finally:
        await admin.close()
        await client.close()


async def arrives(client: PulsarClient, partition: str) -> bool:
    """Whether Pulsar dispatches the first entry within a second."""
    queue = EntryQueue()
    reader = await client.open_reader(partition, "earliest", queue)
    try:
        reader.flow(1)
        return await queue.wait(1)
    finally:
        await reader.close()
