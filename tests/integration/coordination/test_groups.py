"""Consumer groups of real clients: members join, leave and die while records arrive, and gateways do, too."""

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import TIMEOUT_S, commit, committed, create_topic
from tests.integration.group import Group
from tests.integration.servers import gateway_on, lone_gateway_on, running
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic


@pytest.mark.parametrize(("size", "strategy"), [(1, "range"), (2, "range"), (5, "range"), (5, "cooperative-sticky")])
def test_members_come_leave_and_die(bootstrap: str, tmp_path: Path, size: int, strategy: str) -> None:
    with Group(tmp_path, bootstrap, f"partition.assignment.strategy={strategy}") as group:
        group.add(size)
        group.send()
        group.await_all_read()
        group.await_everybody_reads()
        group.check_order()
        group.members[0].process.kill()
        group.add()
        group.send()
        group.await_all_read()
        if size > 1:
            group.members[1].leave()
        group.send()
        group.await_everybody_reads()
        group.await_all_read()
        group.await_all_committed()
        for member in group.members[2 if size > 1 else 1 :]:
            member.leave()
        assert group.committed() == group.end_offsets


def test_twenty_members_one_dies_and_one_is_suspended(gateway: GatewayProcess, tmp_path: Path) -> None:
    with Group(tmp_path, gateway.bootstrap, partitions=24) as group:
        group.add(20)
        group.await_everybody_reads()
        dead, asleep = group.members[:2]
        dead.process.kill()
        asleep.process.send_signal(signal.SIGSTOP)
        group.add()
        group.send()
        group.await_all_read()
        asleep.process.send_signal(signal.SIGCONT)
        group.await_everybody_reads()
        group.await_all_read()
        group.check_order()


def test_kcat_continues_at_its_offset(bootstrap: str) -> None:
    topic = unique_topic("kcat-group")
    create_topic(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap})
    for start in (0, 5):
        for number in range(start, start + 5):
            producer.produce(topic, str(number))
        assert producer.flush(TIMEOUT_S) == 0
        command = ["kcat", "-b", bootstrap, "-G", topic, "-c", "5", "-X", "auto.offset.reset=earliest", topic]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
        assert done.stdout.split() == [str(number) for number in range(start, start + 5)]


def test_kafka_python_group(bootstrap: str) -> None:
    topic = unique_topic("kafka-python-group")
    create_topic(bootstrap, topic, 2)
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    for number in range(10):
        producer.send(topic, str(number).encode(), partition=number % 2)
    producer.close()
    for expected in (10, 0):
        consumer = kafka.KafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest",
            consumer_timeout_ms=TIMEOUT_S * 1000 if expected else 5_000,
        )  # fmt: skip
        values = {record.value for _, record in zip(range(expected or 1), consumer, strict=False)}
        assert len(values) == expected
        consumer.close()
    assert committed(bootstrap, topic, topic, 2) == [5, 5]


def test_admin_sees_and_deletes_groups(bootstrap: str) -> None:
    topic = unique_topic("group-admin")
    create_topic(bootstrap, topic)
    commit(bootstrap, topic, topic, 7)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = admin.list_consumer_groups().result(TIMEOUT_S)
    assert not listed.errors
    assert topic in {group.group_id for group in listed.valid}
    described = admin.describe_consumer_groups([topic])[topic].result(TIMEOUT_S)
    assert described.state.name == "EMPTY"
    assert described.coordinator.port == int(bootstrap.rpartition(":")[2])
    admin.delete_consumer_groups([topic])[topic].result(TIMEOUT_S)
    assert committed(bootstrap, topic, topic) == [-1001]
    with pytest.raises(KafkaException):
        admin.delete_consumer_groups([topic])[topic].result(TIMEOUT_S)


def test_offsets_of_a_deleted_topic_go(bootstrap: str) -> None:
    topic = unique_topic("group-deleted-topic")
    create_topic(bootstrap, topic)
    commit(bootstrap, topic, topic, 7)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    while committed(bootstrap, topic, topic) != [-1001]:
        assert time.monotonic() < deadline, "the offset is still there"
        time.sleep(0.2)


def test_clients_cannot_write_to_internal_topics(bootstrap: str) -> None:
    commit_topic = unique_topic("internal")
    create_topic(bootstrap, commit_topic)
    commit(bootstrap, commit_topic, commit_topic, 1)  # now the topic exists
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("__consumer_offsets", b"v", on_delivery=lambda error, message: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert [error and error.code() for error in errors] == [KafkaError.TOPIC_EXCEPTION]


def test_clients_cannot_delete_or_extend_internal_topics(gateway: GatewayProcess) -> None:
    """Apache Kafka permits it, and loses its groups."""
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    topic = "__consumer_offsets"
    with pytest.raises(KafkaException, match="Invalid topic"):
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    with pytest.raises(KafkaException, match="is fixed"):
        admin.create_partitions([NewPartitions(topic, 100)])[topic].result(TIMEOUT_S)


# Gateways that stop, die and take over


@pytest.fixture
def own_gateway(pulsar: PulsarStandalone, tmp_path: Path) -> Iterator[GatewayProcess]:
    with running(lone_gateway_on(pulsar, tmp_path / "gateway")) as server:
        yield server


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_commits_survive_a_restart(own_gateway: GatewayProcess, how: str) -> None:
    create_topic(own_gateway.bootstrap, "t")
    for group in range(8):  # groups on all partitions of the internal topic
        commit(own_gateway.bootstrap, f"g{group}", "t", 100 + group)
    getattr(own_gateway, how)()
    own_gateway.start()
    own_gateway.wait_ready()
    for group in range(8):
        assert committed(own_gateway.bootstrap, f"g{group}", "t") == [100 + group]


def test_members_survive_a_killed_gateway(own_gateway: GatewayProcess, tmp_path: Path) -> None:
    with Group(tmp_path, own_gateway.bootstrap) as group:
        group.add(2)
        group.send()
        group.await_all_read()
        own_gateway.kill()
        own_gateway.start()
        own_gateway.wait_ready()
        group.send()
        group.await_all_read()
        group.await_everybody_reads()
        group.await_all_read()
        group.await_all_committed()
        for member in group.members:
            member.leave()
        assert group.committed() == group.end_offsets


def test_two_gateways_are_one_coordinator(
    own_gateway: GatewayProcess, pulsar: PulsarStandalone, tmp_path: Path
) -> None:
    """Clients find their group's coordinator at either gateway; commits continue when a second gateway joins and
    leaves."""
    create_topic(own_gateway.bootstrap, "t")
    commit(own_gateway.bootstrap, "g", "t", 10)
    with running(gateway_on(pulsar, tmp_path / "second", pulsar=own_gateway.config["pulsar"])) as second:
        assert committed(second.bootstrap, "g", "t") == [10]
        commit(second.bootstrap, "g", "t", 20)
        commit(own_gateway.bootstrap, "g", "t", 21)
        assert committed(second.bootstrap, "g", "t") == [21]
    assert committed(own_gateway.bootstrap, "g", "t") == [21]
    commit(own_gateway.bootstrap, "g", "t", 22)
