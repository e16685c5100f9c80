"""The connection to a broker is lost with entries in flight, or a topic is unloaded. Producers notice a pause only."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from deploy.local.standalone import PulsarStandalone
from tests.integration.broker_proxy import LosingBrokerProxy
from tests.integration.confluent import Sender, create_topic, read_all
from tests.integration.native import Admin, wait_for
from tests.integration.servers import gateway_on, running
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic

TIMES, PAUSE_S, STEP_S = 5, 0.5, 0.005
PRODUCERS: dict[str, dict[str, Any]] = {
    "plain": {"message_send_max_retries": 0, "max_in_flight_requests_per_connection": 5},
    "plain, one request in flight": {"message_send_max_retries": 0, "max_in_flight_requests_per_connection": 1},
    "idempotent": {"enable_idempotence": True},
}
"""Plain producers send nothing twice: an error would be a loss."""


@pytest.fixture(scope="module")
def proxy(pulsar: PulsarStandalone) -> Iterator[LosingBrokerProxy]:
    with LosingBrokerProxy(pulsar.service_url).running() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def gateway(
    pulsar: PulsarStandalone, proxy: LosingBrokerProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    sections = {"namespace": unique_topic("lost-connection"), "service_url": proxy.service_url}
    with running(gateway_on(pulsar, tmp_path_factory.mktemp("lost-connection"), pulsar=sections)) as gateway:
        yield gateway


def check_order(gateway: GatewayProcess, topic: str, kind: str, disturb: Callable[[], None]) -> None:
    sender = Sender(gateway.bootstrap, topic, linger_ms=0, batch_num_messages=2, **PRODUCERS[kind])
    numbers = iter(range(1_000_000))

    def send_for_a_while() -> None:
        end = time.monotonic() + PAUSE_S
        while time.monotonic() < end:
            sender.send(b"%s %d" % (topic.encode(), next(numbers)) for _ in range(5))
            time.sleep(STEP_S)

    send_for_a_while()
    for _ in range(TIMES):
        disturb()
        send_for_a_while()
    sender.flush()
    assert sender.errors == []
    assert read_all(gateway.bootstrap, topic) == sender.sent
    sender.check_offsets(sender.sent)


@pytest.mark.parametrize("lost_again", [0, 2])
@pytest.mark.parametrize("kind", PRODUCERS)
def test_what_was_in_flight_is_written_in_order(
    gateway: GatewayProcess, proxy: LosingBrokerProxy, kind: str, lost_again: int
) -> None:
    """The next connections may be lost, too, before their producers are used."""
    topic = unique_topic("lost")
    create_topic(gateway.bootstrap, topic)

    def lose() -> None:
        proxy.losing, proxy.losing_producers = topic.encode(), lost_again

    check_order(gateway, topic, kind, lose)
    wait_for(lambda: not proxy.losing and not proxy.losing_producers, "connections were lost")


@pytest.mark.parametrize("kind", PRODUCERS)
def test_an_unloaded_topic(gateway: GatewayProcess, pulsar: PulsarStandalone, kind: str) -> None:
    topic = unique_topic("unloaded")
    create_topic(gateway.bootstrap, topic)
    admin = Admin(pulsar, f"kafka/{gateway.config['pulsar']['namespace']}")
    check_order(gateway, topic, kind, lambda: admin.unload(f"{topic}-partition-0"))
