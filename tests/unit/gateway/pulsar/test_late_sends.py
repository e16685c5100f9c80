"""Data that a connection has not delivered when it ends, or when the lease expires, is not delivered later."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ClientClosedError, ConnectionLostError, PulsarError
from protocol.pulsar.pulsar_commands_pb2 import BaseCommand, CommandConnected
from tests.unit.gateway.pulsar.client_scene import TOPIC, Log, run
from tests.unit.gateway.pulsar.fake_broker import FakeBroker

LARGE_BYTES = 4 * 1024 * 1024
ENTRIES = 16
"""More than the kernel buffers on both sides."""
RUNNERS = pytest.mark.parametrize("runner", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
Runner = Callable[[Coroutine[Any, Any, None]], None]


def takes_large_entries(_command: BaseCommand) -> BaseCommand:
    connected = CommandConnected(server_version="fake", max_message_size=2 * LARGE_BYTES)
    return BaseCommand(type=BaseCommand.CONNECTED, connected=connected)


@RUNNERS
@pytest.mark.parametrize("error", [ConnectionLostError("silent"), ClientClosedError("closed")])
def test_a_connection_given_up_is_reset(runner: Runner, error: PulsarError) -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        broker.answers[BaseCommand.CONNECT] = takes_large_entries
        producer = await client.open_producer(TOPIC, Log())
        broker.pause()
        for _ in range(ENTRIES):
            producer.send([bytes(LARGE_BYTES)], num_messages=1, publish_time_ms=1)
        await asyncio.sleep(0.1)  # the kernel has buffered what it can
        producer.connection.close(error)
        broker.resume()
        assert isinstance(await broker.ended(), ConnectionResetError)

    run(test, runner)


@RUNNERS
def test_the_client_is_closed_in_order(runner: Runner) -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        producer = await client.open_producer(TOPIC, Log())
        await producer.close()
        await client.close()
        assert isinstance(await broker.ended(), asyncio.IncompleteReadError)

    run(test, runner)


def test_what_may_be_sent_under_a_condition_does_not_leave_without_it() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        log, leased = Log(), True
        producer = await client.open_producer(TOPIC, log)
        producer.send([b"with the lease"], num_messages=1, publish_time_ms=1, only_if=lambda: leased)
        await broker.wait_for(BaseCommand.SEND)
        leased = False
        producer.send([b"anybody may"], num_messages=1, publish_time_ms=1)
        while len(broker.received_of(BaseCommand.SEND)) < 2:
            await asyncio.sleep(0.01)
        producer.send([b"too late"], num_messages=1, publish_time_ms=1, only_if=lambda: leased)
        assert await log.heard.get() == (ConnectionLostError,)
        await broker.ended()
        assert len(broker.received_of(BaseCommand.SEND)) == 2

    run(test)


@RUNNERS
def test_what_is_written_to_a_closed_connection_is_dropped(runner: Runner) -> None:
    """A subscription may lose its connection between two commands."""

    async def test(_: FakeBroker, client: PulsarClient) -> None:
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        subscription = await client.open_subscription(TOPIC, "group", lambda _: None)
        subscription.connection.close(ConnectionLostError("lost"))
        await subscription.dispatch(0.01)
        assert failures == []

    run(test, runner)
