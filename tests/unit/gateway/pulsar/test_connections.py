"""Which producers and readers share a connection, and what is said of all connections."""

import asyncio

import pytest

from gateway.pulsar.client import PulsarClient
from gateway.pulsar.connection import ConnectionState
from gateway.pulsar.errors import ClientClosedError, ConnectionLostError, PulsarError
from gateway.pulsar.position import Position
from gateway.pulsar.send_window import MAX_BYTES, START_BYTES
from protocol.pulsar.pulsar_commands_pb2 import BaseCommand, CommandSendReceipt, MessageIdData
from tests.unit.gateway.pulsar.client_scene import TOPIC, Log, run
from tests.unit.gateway.pulsar.fake_broker import FakeBroker, fake_broker, settings_for

ONE, TWO = "persistent://t/one/x-partition-0", "persistent://t/two/x-partition-0"


def test_a_namespace_shares_connections_with_no_other() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        records, log = client.by_namespace(), Log()
        one, again, two = [await records.open_producer(topic, log) for topic in (ONE, ONE + "0", TWO)]
        assert one.connection is again.connection
        assert one.connection is not two.connection
        assert broker.connections == 3  # with that of the look-ups
        of_all = [await client.open_producer(topic, log) for topic in (ONE, TWO)]
        await records.open_reader(TWO, "earliest", log)
        assert of_all[0].connection is of_all[1].connection
        assert broker.connections == 3
        exclusive = await records.open_producer(TWO, log, fencing=True)
        assert exclusive.connection not in {one.connection, two.connection, of_all[0].connection}

    run(test)


def test_a_broker_that_stops_reading_a_connection_stops_its_namespace_alone() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        broker.answers[BaseCommand.SEND] = receipt
        records, first, second = client.by_namespace(), Log(), Log()
        stopped = await records.open_producer(ONE, first)
        broker.pause()
        going = await records.open_producer(TWO, second)
        for producer in (stopped, going):
            producer.send([b"a"], num_messages=1, publish_time_ms=1)
        assert await second.heard.get() == (0, Position(1, 0))
        assert client.last_receipt_s == records.last_receipt_s <= asyncio.get_running_loop().time()
        assert first.heard.empty()

    run(test)


def test_a_namespace_that_nobody_uses_any_more_has_no_connections() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        records, log = client.by_namespace(), Log()
        one, two = [await records.open_producer(topic, log) for topic in (ONE, TWO)]
        client.connections.close_namespace("t/one")
        client.connections.close_namespace("t/three")
        assert await log.heard.get() == (ClientClosedError,)
        assert one.connection.state is ConnectionState.CLOSED
        assert two.connection.state is ConnectionState.READY
        assert len(client.connections.live) == 2
        opened = await records.open_producer(ONE, log)  # it is used again
        assert opened.connection.state is ConnectionState.READY

    run(test)


def test_a_connection_that_is_being_opened_is_closed_as_well() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        await client.open_producer(TOPIC, Log())
        broker.answers[BaseCommand.CONNECT] = lambda _: None
        opening = asyncio.create_task(client.by_namespace().open_producer(ONE, Log()))
        while len(broker.received_of(BaseCommand.CONNECT)) < 2:
            await asyncio.sleep(0.001)
        client.connections.close_namespace("t/one")
        with pytest.raises(ClientClosedError):
            await opening
        await broker.ended()
        assert len(client.connections.live) == 1

    run(test)


def test_connections_to_brokers_that_have_gone_are_forgotten() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        records, log = client.by_namespace(), Log()
        for number in range(5):
            producer = await records.open_producer(f"persistent://t/{number}/x", log)
            producer.connection.close(ConnectionLostError("gone"))
        assert len(client.connections._shared) == 2  # with that of the look-ups

    run(test)


def test_namespaces_share_a_broker_when_both_write() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        records, log = client.by_namespace(), Log()
        windows = [(await records.open_producer(topic, log)).connection.send_window for topic in (ONE, TWO)]
        of_all = await client.open_producer(ONE, log)
        assert of_all.connection.send_window is None
        for window in windows:
            assert window is not None
            window.sent(object(), 1)
            assert window.max_entry_bytes == (MAX_BYTES if window is windows[0] else START_BYTES // 2)

    run(test)


def test_the_end_of_the_client_ends_the_connections_of_all_namespaces() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        records, log = client.by_namespace(), Log()
        producers = [await records.open_producer(topic, log) for topic in (ONE, TWO)]
        await client.close()
        assert {each.connection.state for each in producers} == {ConnectionState.CLOSED}
        with pytest.raises(ClientClosedError):
            await records.open_producer(ONE, log)

    run(test)


def test_others_are_the_ready_connections_to_the_same_broker() -> None:
    async def main() -> None:
        events = Events()
        async with fake_broker() as broker:
            client = PulsarClient(settings_for(broker), events)
            records = client.by_namespace()
            one, two = [await records.open_producer(topic, Log()) for topic in (ONE, TWO)]
            for each in (one, two):
                each.connection.close(ConnectionLostError("lost"))
            await client.close()
        assert events.heard == [
            ("ready", False), ("ready", True), ("ready", True), ("closed", True), ("closed", True), ("closed", False)
        ]  # fmt: skip

    asyncio.run(main())


class Events:
    def __init__(self) -> None:
        self.heard: list[tuple[str, bool]] = []

    def on_connection_state(
        self, broker_url: str, state: ConnectionState, error: PulsarError | None, *, others: bool
    ) -> None:
        self.heard.append((state.value, others))


def receipt(command: BaseCommand) -> BaseCommand:
    answer = CommandSendReceipt(
        producer_id=command.send.producer_id, sequence_id=command.send.sequence_id,
        message_id=MessageIdData(ledger_id=1, entry_id=command.send.sequence_id),
    )  # fmt: skip
    return BaseCommand(type=BaseCommand.SEND_RECEIPT, send_receipt=answer)
