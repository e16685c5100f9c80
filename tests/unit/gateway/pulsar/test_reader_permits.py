"""Permits of a reader when entries claim impossible numbers of messages: brokers count these, too."""

from __future__ import annotations

import asyncio

import pytest

from gateway.pulsar.client import PulsarClient
from gateway.pulsar.reader import Entry
from protocol.pulsar.pulsar_commands_pb2 import BaseCommand, MessageMetadata
from tests.unit.gateway.pulsar.client_scene import TOPIC, Log, run
from tests.unit.gateway.pulsar.fake_broker import FakeBroker
from tests.unit.gateway.pulsar.test_failing_listeners import AT, consumer_ids, message_frame

MAX_INT32, MIN_INT32 = 2**31 - 1, -(2**31)
GIVEN, LAST_FLOW = 1_000, 77


class Entries(Log):
    def __init__(self) -> None:
        super().__init__()
        self.permits: list[int] = []

    def on_entry(self, entry: Entry) -> None:
        self.permits.append(entry.permits)
        super().on_entry(entry)


def as_int32(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def metadata(count: int) -> bytes:
    fields = MessageMetadata(producer_name="p", sequence_id=1, publish_time=2, num_messages_in_batch=count)
    return fields.SerializeToString()


async def flows(broker: FakeBroker) -> list[int]:
    """All except LAST_FLOW, which must arrive."""
    while True:
        found = [command.flow.message_permits for command in broker.received_of(BaseCommand.FLOW)]
        if LAST_FLOW in found:
            return [permits for permits in found if permits != LAST_FLOW]
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "counts",
    [
        [5],
        [MAX_INT32],
        [MIN_INT32],
        [-1, 0],
        [MIN_INT32 + 1] * 3,
        [-(2**29)] * 9,
        [2**30] * 5,
        [-3, MAX_INT32, 0, MIN_INT32],
    ],
)
def test_the_broker_may_go_on_sending(counts: list[int]) -> None:
    """The broker counts in 32 bits, which overflow."""

    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        log = Entries()
        reader = await client.open_reader(TOPIC, "earliest", log)
        reader.flow(GIVEN)
        [consumer_id] = consumer_ids(broker)
        for count in counts:
            broker.send_bytes(message_frame(consumer_id, metadata(count)))
            assert await log.heard.get() == (AT,)
        reader.flow(LAST_FLOW)
        given = await flows(broker)
        assert all(0 < permits <= MAX_INT32 for permits in given)
        left = as_int32(sum(given) - sum(counts))
        assert GIVEN - sum(log.permits) <= left < 2**30 + GIVEN

    run(test)


@pytest.mark.parametrize("count", [1, 7, 0, -7, MAX_INT32])
def test_an_entry_that_is_dropped_is_made_up_for(count: int) -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        log = Entries()
        reader = await client.open_reader(TOPIC, AT, log, inclusive=False)
        reader.flow(GIVEN)
        broker.send_bytes(message_frame(consumer_ids(broker)[0], metadata(count)))
        await broker.wait_for(BaseCommand.FLOW)
        while len(broker.received_of(BaseCommand.FLOW)) < 2:
            await asyncio.sleep(0.01)
        reader.flow(LAST_FLOW)
        left = as_int32(sum(await flows(broker)) - count)
        assert GIVEN <= left <= GIVEN + max(0, 1 - count)
        assert log.heard.empty()

    run(test)
