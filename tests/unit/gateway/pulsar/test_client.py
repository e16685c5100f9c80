"""The client against a scripted broker: login, retries, and everything that ends a producer or a reader."""

import asyncio
import math

import pytest
import uvloop

from gateway.pulsar.client import PulsarClient
from gateway.pulsar.connection import TURN_BYTES, ConnectionState
from gateway.pulsar.errors import (
    ClientClosedError,
    ClosedByBrokerError,
    ConnectionLostError,
    MessageTooLargeError,
    NotAllowedError,
    NotAuthorizedError,
    ProtocolError,
    PulsarError,
    TopicClosedError,
    TopicNotFoundError,
)
from gateway.pulsar.position import Position
from gateway.pulsar.settings import PulsarSettings
from protocol.pulsar.frames import encode_command
from protocol.pulsar.pulsar_commands_pb2 import (
    AuthData,
    BaseCommand,
    CommandAuthChallenge,
    CommandCloseProducer,
    CommandPing,
    CommandSendError,
    CommandSendReceipt,
    MessageIdData,
    ServerError,
)
from tests.unit.gateway.pulsar.client_scene import TOPIC, Log, run
from tests.unit.gateway.pulsar.fake_broker import FakeBroker, error_answer, fake_broker, settings_for


def test_login_names_the_features_that_offsets_need() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        producer = await client.open_producer(TOPIC, Log())
        connect = broker.received[0].connect
        assert connect.feature_flags.supports_broker_entry_metadata
        assert (connect.auth_method_name, connect.auth_data) == ("token", b"t0")
        assert producer.max_message_bytes == 1000

    run(test, token="t0")


def test_an_auth_challenge_is_answered_with_the_token() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        await client.open_producer(TOPIC, Log())
        challenge = CommandAuthChallenge(challenge=AuthData(auth_method_name="token", auth_data=b"PulsarAuthRefresh"))
        broker.send(BaseCommand(type=BaseCommand.AUTH_CHALLENGE, auth_challenge=challenge))
        answer = await broker.wait_for(BaseCommand.AUTH_RESPONSE)
        assert answer.auth_response.response.auth_data == b"t0"

    run(test, token="t0")


def test_a_refused_login_is_final() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        broker.answers[BaseCommand.CONNECT] = lambda _: error_answer(0, ServerError.AuthenticationError)
        with pytest.raises(NotAuthorizedError):
            await client.open_producer(TOPIC, Log())
        assert broker.connections == 1

    run(test)


def test_pings_are_answered() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        await client.open_producer(TOPIC, Log())
        broker.send(BaseCommand(type=BaseCommand.PING, ping=CommandPing()))
        await broker.wait_for(BaseCommand.PONG)

    run(test)


def test_a_silent_broker_is_probed_and_then_given_up() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        log = Log()
        await client.open_producer(TOPIC, log)
        assert await log.heard.get() == (ConnectionLostError,)
        assert any(command.type == BaseCommand.PING for command in broker.received)

    run(test, keepalive_interval_ms=20)


def test_opening_is_tried_again_while_the_topic_moves() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        refusals = iter([ServerError.ServiceNotReady, ServerError.TooManyRequests])

        def answer(command: BaseCommand) -> BaseCommand | None:
            code = next(refusals, None)
            return broker.answer(command) if code is None else error_answer(command.producer.request_id, code)

        broker.answers[BaseCommand.PRODUCER] = answer
        await client.open_producer(TOPIC, Log())
        assert broker.connections == 1

    run(test)


@pytest.mark.parametrize("kind", [BaseCommand.PRODUCER, BaseCommand.SUBSCRIBE])
def test_the_backoff_may_have_a_bound_of_its_own(kind: int) -> None:
    """With the bound of the settings, twenty attempts would take hours."""

    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        refusals = iter([ServerError.ServiceNotReady] * 20)

        def answer(command: BaseCommand) -> BaseCommand | list[BaseCommand] | None:
            code = next(refusals, None)
            request_id = (command.producer if kind == BaseCommand.PRODUCER else command.subscribe).request_id
            return broker.answer(command) if code is None else error_answer(request_id, code)

        broker.answers[kind] = answer
        if kind == BaseCommand.PRODUCER:
            await client.open_producer(TOPIC, Log(), backoff_max_ms=1)
        else:
            await client.open_reader(TOPIC, "latest", Log(), backoff_max_ms=1)
        assert next(refusals, None) is None

    run(test, backoff_max_ms=10**9)


def test_what_the_broker_closes_at_once_is_opened_again() -> None:
    """The topic moves just then: otherwise its owner would not notice, and wait for ever."""

    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        def closed_at_once(command: BaseCommand) -> list[BaseCommand]:
            broker.answers.clear()
            answer = broker.answer(command)
            assert isinstance(answer, BaseCommand)
            close = BaseCommand(type=BaseCommand.CLOSE_PRODUCER)
            if command.type == BaseCommand.PRODUCER:
                close.close_producer.producer_id = command.producer.producer_id
                close.close_producer.request_id = 0
            else:
                close.type = BaseCommand.CLOSE_CONSUMER
                close.close_consumer.consumer_id = command.subscribe.consumer_id
                close.close_consumer.request_id = 0
            return [answer, close]

        log = Log()
        broker.answers[BaseCommand.PRODUCER] = closed_at_once
        producer = await client.open_producer(TOPIC, log)
        broker.answers[BaseCommand.SUBSCRIBE] = closed_at_once
        reader = await client.open_reader(TOPIC, "latest", log)
        assert (producer.closed, reader.closed) == (False, False)
        assert log.heard.empty()

    run(test)


def test_a_successor_goes_on_with_the_sequence_ids() -> None:
    """They share a name: otherwise their entries could not be distinguished."""

    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        log = Log()
        first = await client.open_producer(TOPIC, log)
        assert [first.send((b"x",), num_messages=1, publish_time_ms=1) for _ in range(2)] == [0, 1]
        await first.close()
        successor = await client.open_producer(TOPIC, log, predecessor=first)
        assert successor.send((b"x",), num_messages=1, publish_time_ms=1) == 2

    run(test)


def test_what_cannot_succeed_is_not_tried_again() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        broker.answers[BaseCommand.SUBSCRIBE] = lambda c: error_answer(
            c.subscribe.request_id, ServerError.TopicNotFound
        )
        with pytest.raises(TopicNotFoundError):
            await client.open_reader(TOPIC, "earliest", Log())
        assert sum(c.type == BaseCommand.SUBSCRIBE for c in broker.received) == 1

    run(test)


def test_a_producer_that_the_broker_never_confirms_is_closed_there() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        broker.answers[BaseCommand.PRODUCER] = lambda _: None
        with pytest.raises(PulsarError):
            await client.open_producer(TOPIC, Log())
        closed = await broker.wait_for(BaseCommand.CLOSE_PRODUCER)
        opened = await broker.wait_for(BaseCommand.PRODUCER)
        assert closed.close_producer.producer_id == opened.producer.producer_id

    run(test, operation_timeout_ms=100, request_timeout_ms=50)


def test_receipts_and_refusals_reach_the_listener() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        log, loop = Log(), asyncio.get_running_loop()
        began_s = loop.time()
        producer = await client.open_producer(TOPIC, log)
        assert [producer.send([b"a"], num_messages=1, publish_time_ms=1) for _ in range(2)] == [0, 1]
        sent = await broker.wait_for(BaseCommand.SEND)
        assert client.last_receipt_s == -math.inf
        position = MessageIdData(ledger_id=3, entry_id=4)
        receipt = CommandSendReceipt(producer_id=sent.send.producer_id, sequence_id=0, message_id=position)
        broker.send(BaseCommand(type=BaseCommand.SEND_RECEIPT, send_receipt=receipt))
        broker.send(send_error(sent, 1, ServerError.NotAllowedError))
        assert await log.heard.get() == (0, Position(3, 4))
        assert await log.heard.get() == (1, NotAllowedError)
        assert not producer.closed
        confirmed_s = client.last_receipt_s
        assert began_s <= confirmed_s <= loop.time()
        producer.connection.close(ConnectionLostError("lost"))
        assert client.last_receipt_s == confirmed_s

    run(test)


def test_a_broker_that_sends_much_leaves_others_their_turn() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        log = Log()
        await client.open_producer(TOPIC, log)
        sent = broker.received[-1]
        receipt = CommandSendReceipt(
            producer_id=sent.producer.producer_id, sequence_id=1, message_id=MessageIdData(ledger_id=1, entry_id=1)
        )
        command = BaseCommand(type=BaseCommand.SEND_RECEIPT, send_receipt=receipt)
        size_bytes = len(encode_command(command))
        count = 16 * TURN_BYTES // size_bytes
        broker.send(*[command] * count)
        before, most = 0, 0
        while before < count:
            await asyncio.sleep(0)
            heard = log.heard.qsize()
            before, most = heard, max(most, heard - before)
        assert most * size_bytes < 3 * TURN_BYTES

    run(test, uvloop.run)


def test_a_failed_write_leaves_the_fate_open_and_ends_the_producer() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        log = Log()
        producer = await client.open_producer(TOPIC, log)
        producer.send([b"a"], num_messages=1, publish_time_ms=1)
        sent = await broker.wait_for(BaseCommand.SEND)
        broker.send(send_error(sent, 0, ServerError.PersistenceError))
        (error,) = await log.heard.get()
        assert isinstance(error, type)
        assert issubclass(error, PulsarError)
        with pytest.raises(ClientClosedError):
            producer.send([b"a"], num_messages=1, publish_time_ms=1)
        await broker.wait_for(BaseCommand.CLOSE_PRODUCER)

    run(test)


def test_the_broker_closes_a_producer() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        log = Log()
        producer = await client.open_producer(TOPIC, log)
        opened = await broker.wait_for(BaseCommand.PRODUCER)
        close = CommandCloseProducer(producer_id=opened.producer.producer_id, request_id=0)
        broker.send(BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer=close))
        assert await log.heard.get() == (TopicClosedError,)
        assert producer.closed

    run(test)


def test_a_broken_connection_ends_everything_on_it_and_the_next_is_new() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        log = Log()
        producer = await client.open_producer(TOPIC, log)
        await client.open_reader(TOPIC, "earliest", log)
        broker.drop()
        assert await log.heard.get() == (ClosedByBrokerError,)
        assert await log.heard.get() == (ClosedByBrokerError,)
        with pytest.raises(ConnectionLostError):
            producer.send([b"a"], num_messages=1, publish_time_ms=1)
        await client.open_producer(TOPIC, log)
        assert broker.connections == 2
        assert [connection.state for connection in client.connections.live] == [ConnectionState.READY]

    run(test)


def test_garbage_ends_the_connection() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        log = Log()
        await client.open_producer(TOPIC, log)
        broker.send_bytes(b"\xff" * 8)
        assert await log.heard.get() == (ProtocolError,)

    run(test)


def test_an_entry_too_large_is_not_sent() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        producer = await client.open_producer(TOPIC, Log())
        with pytest.raises(MessageTooLargeError):
            producer.send([bytes(1001)], num_messages=1, publish_time_ms=1)
        assert producer.send([b"a"], num_messages=1, publish_time_ms=1) == 0

    run(test)


def test_exclusive_producers_share_no_connection() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        plain = await client.open_producer(TOPIC, Log())
        first = await client.open_producer(TOPIC, Log(), fencing=True)
        second = await client.open_producer(TOPIC, Log(), fencing=True)
        assert len({plain.connection, first.connection, second.connection}) == 3
        await first.close()
        assert first.connection.state is ConnectionState.CLOSED
        assert second.connection.state is ConnectionState.READY

    run(test)


def test_closing_the_client_while_it_connects() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        broker.answers[BaseCommand.CONNECT] = lambda _: None
        opening = asyncio.create_task(client.open_producer(TOPIC, Log()))
        await broker.wait_for(BaseCommand.CONNECT)
        await client.close()
        with pytest.raises(ClientClosedError):
            await opening

    run(test)


def test_an_unreachable_broker_is_a_lost_connection() -> None:
    async def main() -> None:
        async with fake_broker() as gone:
            pass
        client = PulsarClient(settings_for(gone, operation_timeout_ms=100, request_timeout_ms=100))
        with pytest.raises(ConnectionLostError):
            await client.partitions(TOPIC)
        await client.close()

    asyncio.run(main())


def test_settings_have_defaults() -> None:
    assert PulsarSettings().service_urls() == ["pulsar://127.0.0.1:6650"]


def send_error(sent: BaseCommand, sequence_id: int, code: ServerError) -> BaseCommand:
    error = CommandSendError(
        producer_id=sent.send.producer_id,
        sequence_id=sequence_id,
        error=code,
        message="scripted",
    )
    return BaseCommand(type=BaseCommand.SEND_ERROR, send_error=error)
