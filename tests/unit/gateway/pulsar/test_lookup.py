"""Finding the broker of a topic: redirects, proxies, and service addresses that do not answer."""

import asyncio

import pytest

from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ServiceNotReadyError
from protocol.pulsar.pulsar_commands_pb2 import BaseCommand
from tests.unit.gateway.pulsar.client_scene import TOPIC, Log, run
from tests.unit.gateway.pulsar.fake_broker import FakeBroker, fake_broker, lookup_answer, settings_for


def test_lookup_follows_redirects_with_their_authority() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        async with fake_broker() as second:
            broker.answers[BaseCommand.LOOKUP] = lambda c: lookup_answer(c, second.url, redirect=True)
            producer = await client.open_producer(TOPIC, Log())
            assert producer.connection.address.url == second.url
            assert [c.lookup_topic.authoritative for c in second.received if c.type == BaseCommand.LOOKUP] == [True]
            await client.close()

    run(test)


def test_endless_redirects_end() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        broker.answers[BaseCommand.LOOKUP] = lambda c: lookup_answer(c, broker.url, redirect=True)
        with pytest.raises(ServiceNotReadyError, match="redirected"):
            await client.open_producer(TOPIC, Log())

    run(test, operation_timeout_ms=200, request_timeout_ms=200)


def test_through_a_proxy_the_broker_is_named_at_login() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        broker.answers[BaseCommand.LOOKUP] = lambda c: lookup_answer(c, "pulsar://inner:7777", proxy=True)
        await client.open_producer(TOPIC, Log())
        connects = [c.connect.proxy_to_broker_url for c in broker.received if c.type == BaseCommand.CONNECT]
        assert connects == ["", "inner:7777"]

    run(test)


def test_the_next_service_address_is_tried() -> None:
    async def main() -> None:
        async with fake_broker() as gone:
            pass
        async with fake_broker() as broker:
            client = PulsarClient(settings_for(gone, broker))
            await client.open_producer(TOPIC, Log())
            await client.close()

    asyncio.run(main())


def test_a_lookup_that_is_not_answered_goes_to_the_next_service_address() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        async with fake_broker() as second:
            broker.answers[BaseCommand.LOOKUP] = lambda _: None
            both = PulsarClient(settings_for(broker, second, request_timeout_ms=50))
            producer = await both.open_producer(TOPIC, Log())
            assert producer.connection.address.url == second.url
            await both.close()

    run(test)


def test_who_was_lost_is_asked_last() -> None:
    """Even if it can still be connected to, as a process that stands still: that would take connect_timeout_ms."""

    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        async with fake_broker() as second:
            both = PulsarClient(settings_for(broker, second, operation_timeout_ms=5_000, request_timeout_ms=5_000))
            log = Log()
            await both.open_producer(TOPIC, log)
            broker.answers[BaseCommand.CONNECT] = lambda _: None
            broker.drop()
            await log.heard.get()
            producer = await both.open_producer(TOPIC, Log())
            assert producer.connection.address.url == second.url
            await both.close()

    run(test)
