"""A producer or reader whose owner raises: the connection is shared with all others on the broker, heartbeats included.
"""

import struct

import pytest

from gateway.pulsar.client import PulsarClient
from gateway.pulsar.connection import ConnectionState
from gateway.pulsar.errors import ClosedByBrokerError, ListenerError, PulsarError
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry
from protocol.pulsar.pulsar_commands_pb2 import (
    BaseCommand,
    BrokerEntryMetadata,
    CommandMessage,
    CommandSendReceipt,
    MessageIdData,
    MessageMetadata,
)
from tests.unit.gateway.pulsar.client_scene import TOPIC, Log, run
from tests.unit.gateway.pulsar.fake_broker import FakeBroker

METADATA = MessageMetadata(producer_name="p", sequence_id=1, publish_time=2).SerializeToString()
AT = Position(7, 3)


class FailingLog(Log):
    """Raises when it gets something, and perhaps also at the end."""

    def __init__(self, *, at_the_end: bool = False) -> None:
        super().__init__()
        self.at_the_end = at_the_end

    def on_entry(self, entry: Entry) -> None:
        raise RuntimeError("odd entry")

    def on_receipt(self, sequence_id: int, position: Position) -> None:
        raise RuntimeError("odd receipt")

    def on_reader_closed(self, error: PulsarError) -> None:
        super().on_reader_closed(error)
        if self.at_the_end:
            raise RuntimeError("odd end")

    def on_producer_closed(self, error: PulsarError) -> None:
        super().on_producer_closed(error)
        if self.at_the_end:
            raise RuntimeError("odd end")


def message_frame(consumer_id: int, metadata: bytes = METADATA) -> bytes:
    message_id = MessageIdData(ledger_id=AT.ledger_id, entry_id=AT.entry_id)
    message = CommandMessage(consumer_id=consumer_id, message_id=message_id)
    command = BaseCommand(type=BaseCommand.MESSAGE, message=message).SerializeToString()
    broker_metadata = BrokerEntryMetadata(index=5).SerializeToString()
    frame = struct.pack(">I", len(command)) + command
    frame += struct.pack(">HI", 0x0E02, len(broker_metadata)) + broker_metadata
    frame += struct.pack(">I", len(metadata)) + metadata
    return struct.pack(">I", len(frame)) + frame


def consumer_ids(broker: FakeBroker) -> list[int]:
    return [command.subscribe.consumer_id for command in broker.received_of(BaseCommand.SUBSCRIBE)]


@pytest.mark.parametrize("at_the_end", [False, True])
def test_a_reader_whose_owner_fails_ends_alone(at_the_end: bool) -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        odd, sound = FailingLog(at_the_end=at_the_end), Log()
        await client.open_reader(TOPIC, "earliest", odd)
        await client.open_reader(TOPIC, "earliest", sound)
        first, second = consumer_ids(broker)
        broker.send_bytes(message_frame(first) + message_frame(second))
        assert await odd.heard.get() == (ListenerError,)
        assert await sound.heard.get() == (AT,)
        assert (await broker.wait_for(BaseCommand.CLOSE_CONSUMER)).close_consumer.consumer_id == first
        assert broker.connections == 1

    run(test)


@pytest.mark.parametrize("at_the_end", [False, True])
def test_a_producer_whose_owner_fails_ends_alone(at_the_end: bool) -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        odd, sound = FailingLog(at_the_end=at_the_end), Log()
        await client.open_producer(TOPIC, odd)
        await client.open_producer(TOPIC, sound)
        ids = [command.producer.producer_id for command in broker.received_of(BaseCommand.PRODUCER)]
        for producer_id in ids:
            message_id = MessageIdData(ledger_id=AT.ledger_id, entry_id=AT.entry_id)
            receipt = CommandSendReceipt(producer_id=producer_id, sequence_id=4, message_id=message_id)
            broker.send(BaseCommand(type=BaseCommand.SEND_RECEIPT, send_receipt=receipt))
        assert await odd.heard.get() == (ListenerError,)
        assert await sound.heard.get() == (4, AT)
        assert (await broker.wait_for(BaseCommand.CLOSE_PRODUCER)).close_producer.producer_id == ids[0]
        assert broker.connections == 1

    run(test)


def test_when_the_connection_ends_all_hear_of_it() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        odd, sound = FailingLog(at_the_end=True), Log()
        for listener in (odd, sound):
            await client.open_producer(TOPIC, listener)
            await client.open_reader(TOPIC, "earliest", listener)
        broker.drop()
        assert [await sound.heard.get() for _ in range(2)] == [(ClosedByBrokerError,)] * 2
        assert [await odd.heard.get() for _ in range(2)] == [(ClosedByBrokerError,)] * 2

    run(test)


def test_metadata_that_cannot_be_decoded_are_one_entrys_affair() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        log = Log()
        await client.open_reader(TOPIC, "earliest", log)
        broker.send_bytes(message_frame(consumer_ids(broker)[0], b"\xff\xff\xff"))
        assert await log.heard.get() == (AT,)
        assert [connection.state for connection in client.connections.live] == [ConnectionState.READY]

    run(test)
