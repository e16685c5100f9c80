"""Finding the broker of a topic: redirects, proxies, and service addresses that do not answer."""

import asyncio

import pytest

from gateway.pulsar import client as client_module
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ServiceNotReadyError
from protocol.pulsar.pulsar_commands_pb2 import BaseCommand, ServerError
from tests.unit.gateway.pulsar.client_scene import TOPIC, Log, run
from tests.unit.gateway.pulsar.fake_broker import FakeBroker, error_answer, fake_broker, lookup_answer, settings_for


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


def test_a_lost_broker_is_tried_last() -> None:
    """Even if connecting is possible, as to a suspended process: that would take connect_timeout_ms."""

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


def test_one_lookup_serves_all_that_is_opened_on_a_topic() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        await client.open_reader(TOPIC, "earliest", Log())
        await client.open_reader(TOPIC, "latest", Log())
        await client.open_producer(TOPIC, Log())
        await client.open_subscription(TOPIC, "group", lambda error: None)
        assert len(broker.received_of(BaseCommand.LOOKUP)) == 1
        await client.open_producer(TOPIC + "1", Log())
        assert [c.lookup_topic.topic for c in broker.received_of(BaseCommand.LOOKUP)] == [TOPIC, TOPIC + "1"]

    run(test)


def test_what_has_moved_is_looked_up_again() -> None:
    """A broker refuses topics that it does not serve any more."""

    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        async with fake_broker() as second:
            await client.open_reader(TOPIC, "earliest", Log())
            broker.answers[BaseCommand.LOOKUP] = lambda c: lookup_answer(c, second.url)
            broker.answers[BaseCommand.PRODUCER] = lambda c: error_answer(
                c.producer.request_id, ServerError.ServiceNotReady
            )
            producer = await client.open_producer(TOPIC, Log())
            assert producer.connection.address.url == second.url
            reader = await client.open_reader(TOPIC, "earliest", Log())
            assert reader.connection is producer.connection
            await client.close()

    run(test)


def test_a_subscription_that_cannot_be_opened_is_looked_up_again_the_next_time() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        await client.open_producer(TOPIC, Log())
        broker.answers[BaseCommand.SUBSCRIBE] = lambda c: error_answer(
            c.subscribe.request_id, ServerError.ServiceNotReady
        )
        with pytest.raises(ServiceNotReadyError):
            await client.open_subscription(TOPIC, "group", lambda error: None)
        del broker.answers[BaseCommand.SUBSCRIBE]
        await client.open_subscription(TOPIC, "group", lambda error: None)
        assert len(broker.received_of(BaseCommand.LOOKUP)) == 2

    run(test)


def test_a_broker_that_is_gone_is_not_remembered() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        log = Log()
        await client.open_producer(TOPIC, log)
        broker.drop()
        await log.heard.get()
        await client.open_producer(TOPIC, Log())
        assert len(broker.received_of(BaseCommand.LOOKUP)) == 2

    run(test)


def test_what_fences_others_is_looked_up_anew_and_so_is_all_behind_it() -> None:
    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        await client.open_reader(TOPIC, "earliest", Log())
        await client.open_producer(TOPIC, Log(), fencing=True)
        await client.open_reader(TOPIC, "earliest", Log())
        assert len(broker.received_of(BaseCommand.LOOKUP)) == 3

    run(test)


def test_lookups_grow_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "LOOKUP_AGE_S", 0.0)

    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        await client.open_producer(TOPIC, Log())
        await client.open_producer(TOPIC, Log())
        assert len(broker.received_of(BaseCommand.LOOKUP)) == 2

    run(test)


def test_expired_lookups_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else those of deleted topics stay, and closed connections with them."""
    monkeypatch.setattr(client_module, "LOOKUP_AGE_S", 0.0)

    async def test(broker: FakeBroker, client: PulsarClient) -> None:
        for number in range(5):
            await client.open_producer(f"{TOPIC}{number}", Log())
        assert [*client._looked_up] == [f"{TOPIC}4"]

    run(test)
