"""Groups of the consumer protocol (KIP-848), whose members get their assignment from the gateway. The reference has a
preview of the protocol that lacks parts that these clients need, so they use the gateway only."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from deploy.local.standalone import PulsarStandalone
from gateway.group_table import read_groups
from tests.integration.confluent import TIMEOUT_S, create_topic
from tests.integration.group import Group, librdkafka_member
from tests.integration.servers import gateway_on, running
from tests.support.gateway_process import GatewayProcess
from tests.support.java_programs.java_clients import JavaClients
from tests.support.names import unique_topic

CONSUMER_PROTOCOL = "group.protocol=consumer"


@pytest.fixture(scope="module")
def java_clients(tmp_path_factory: pytest.TempPathFactory) -> JavaClients:
    return JavaClients(tmp_path_factory.mktemp("java"))


@pytest.fixture
def own_gateway(pulsar: PulsarStandalone, tmp_path: Path) -> Iterator[GatewayProcess]:
    namespace = unique_topic("consumer-groups")
    groups = {"consumer_session_timeout_ms": 6_000, "consumer_heartbeat_interval_ms": 500}
    with running(gateway_on(pulsar, tmp_path / "gateway", pulsar={"namespace": namespace}, groups=groups)) as server:
        yield server


def test_members_of_two_clients_come_leave_and_die(
    own_gateway: GatewayProcess, java_clients: JavaClients, tmp_path: Path
) -> None:
    with Group(tmp_path, own_gateway.bootstrap, CONSUMER_PROTOCOL) as group:
        group.add(2)
        group.add(1, java_clients.group_member)
        group.send()
        group.await_all_read()
        group.await_everybody_reads()
        group.members[0].process.kill()
        group.add(1, java_clients.group_member)
        group.add()
        group.send()
        group.await_all_read()
        for member in group.members[1:3]:
            member.leave()
        group.send()
        group.await_everybody_reads()
        group.await_all_read()
        group.await_all_committed()
        for member in group.members[3:]:
            member.leave()
        assert group.committed() == group.end_offsets


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_an_application_moves_to_the_consumer_protocol_and_back(
    own_gateway: GatewayProcess, java_clients: JavaClients, tmp_path: Path, assignor: str
) -> None:
    """Member by member, with two clients, while it reads; the gateway is killed in between."""
    classic = f"partition.assignment.strategy={assignor}"
    with Group(tmp_path, own_gateway.bootstrap) as group:
        group.add(2, librdkafka_member, classic)
        group.send()
        group.await_all_read()
        group.add(1, java_clients.group_member, CONSUMER_PROTOCOL)
        group.await_everybody_reads()
        group.members[0].leave()
        group.add(1, librdkafka_member, CONSUMER_PROTOCOL)
        group.await_everybody_reads()
        own_gateway.kill()
        own_gateway.start()
        own_gateway.wait_ready()
        group.send()
        group.await_all_read()
        group.await_everybody_reads()
        assert _type_of(own_gateway.bootstrap, group.name) == "CONSUMER"
        group.members[2].leave()
        group.add(1, librdkafka_member, classic)
        group.await_everybody_reads()
        group.members[3].leave()
        group.send()
        group.await_everybody_reads()
        group.await_all_read()
        assert _type_of(own_gateway.bootstrap, group.name) == "CLASSIC"
        group.await_all_committed()
        for number in (1, 4):
            group.members[number].leave()
        assert group.committed() == group.end_offsets


def _type_of(bootstrap: str, group: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # the client must exist until the response arrives
    listed = admin.list_consumer_groups().result(TIMEOUT_S)
    return next(str(each.type.name) for each in listed.valid if each.group_id == group)


def test_topics_grow_and_appear_and_the_gateway_dies(
    own_gateway: GatewayProcess, java_clients: JavaClients, tmp_path: Path
) -> None:
    """Members with a regular expression as subscription."""
    with Group(tmp_path, own_gateway.bootstrap, CONSUMER_PROTOCOL) as group:
        group.subscription = f"^{group.topic}.*"
        group.add()
        group.add(1, java_clients.group_member)
        group.send()
        group.await_all_read()
        group.grow(9)
        group.send()
        group.await_all_read()
        own_gateway.kill()
        own_gateway.start()
        own_gateway.wait_ready()
        group.send()
        group.await_everybody_reads()
        create_topic(own_gateway.bootstrap, group.topic + "-too")
        group.send(topic=group.topic + "-too")
        group.await_all_read()
        for member in group.members:
            member.leave()


def test_a_static_member_restarts(gateway: GatewayProcess) -> None:
    """It gets its partitions back, and no partition of another member moves."""
    topic = unique_topic("static")
    create_topic(gateway.bootstrap, topic, 4)
    first, second = (_static_member(gateway.bootstrap, topic, f"i{number}") for number in range(2))
    try:
        _await_two_each(first, second)
        before = _assignments(gateway.bootstrap, topic)
        first.close()
        first = _static_member(gateway.bootstrap, topic, "i0")
        _await_two_each(first, second)
        assert _assignments(gateway.bootstrap, topic) == before
        assert [row.members for row in read_groups(gateway.bootstrap, topic)] == [2]
    finally:
        first.close()
        second.close()


def _static_member(bootstrap: str, topic: str, instance_id: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "group.protocol": "consumer",
            "group.instance.id": instance_id,
        }
    )
    consumer.subscribe([topic])
    return consumer


def _await_two_each(*consumers: Consumer) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while {len(consumer.assignment()) for consumer in consumers} != {2}:
        assert time.monotonic() < deadline, "the members do not share the partitions"
        for consumer in consumers:
            consumer.poll(0.1)


def _assignments(bootstrap: str, group: str) -> dict[str, list[TopicPartition]]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    return {member.group_instance_id: sorted(member.assignment.topic_partitions) for member in described.members}
