"""Clients that reach the gateways through haproxy only: by an address for each gateway, or by a single address."""

from __future__ import annotations

import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import kafka
import pytest
from confluent_kafka import KafkaError, Message, Producer

from deploy.local.standalone import PulsarStandalone
from tests.conformance.records import batch, records
from tests.integration.confluent import TIMEOUT_S, Sender, commit, committed, create_topic, read_all
from tests.integration.fleet_history import FleetMember, history_of
from tests.integration.native import wait_for
from tests.support.coordinator_probe import CoordinatorProbe
from tests.support.gateway_process import HOST, GatewayProcess
from tests.support.haproxy_fleet import HaproxyFleet, haproxy_fleet
from tests.support.java_programs.kafka_tools import KafkaTools
from tests.support.names import unique_topic
from tests.support.raw_client import RawClient, connected
from tests.support.traffic.history import History, Write, check

GATEWAYS = 3
PARTITIONS = 8
SEND_PAUSE_S = 0.05
"""The time between two records of a steady producer."""
UNKNOWN_TOPIC_ID = 100
NO_CREATION = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}


@pytest.fixture(scope="module")
def fleet(pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HaproxyFleet]:
    """A test that ends a gateway starts it again."""
    with haproxy_fleet(tmp_path_factory.mktemp("haproxy"), pulsar.service_url, pulsar.admin_url, GATEWAYS) as started:
        yield started


def leaders(fleet: HaproxyFleet, topic: str) -> list[int]:
    """Node ids of leaders by partition, from the listener without haproxy."""
    with connected(fleet.inside(fleet.gateways[0])) as client:
        parts = client.call("Metadata", 9, topics=[{"name": topic}])["topics"][0]["partitions"]
    return [part["leader_id"] for part in sorted(parts, key=lambda part: int(part["partition_index"]))]


def groups_of_two(fleet: HaproxyFleet) -> list[str]:
    """Two groups with different coordinators."""
    found: dict[int, str] = {}
    with connected(fleet.inside(fleet.gateways[0])) as client:
        while len(found) < 2:
            name = unique_topic("g")
            answer = client.call("FindCoordinator", 3, key=name, key_type=0)
            if answer["error_code"] == 0:
                found[answer["node_id"]] = name
    return [*found.values()]


def brokers(bootstrap: str) -> set[int]:
    with connected(bootstrap) as client:
        return {node["port"] for node in client.call("Metadata", 9, topics=[])["brokers"]}


def topic_at_several_gateways(fleet: HaproxyFleet) -> str | None:
    """A new topic; None if all its partitions have the same leader, which is chosen by their names."""
    topic = unique_topic("haproxy")
    create_topic(fleet.single, topic, PARTITIONS)
    return topic if len(set(leaders(fleet, topic))) > 1 else None


def test_each_listener_has_its_addresses(fleet: HaproxyFleet) -> None:
    inside = [fleet.inside(each) for each in fleet.gateways]
    assert brokers(fleet.bootstrap) == fleet.advertised
    assert {f"{HOST}:{port}" for port in brokers(inside[0])} == {*inside}
    topic = wait_for(lambda: topic_at_several_gateways(fleet), "several gateways lead partitions of a topic")
    with connected(fleet.single) as client:
        metadata = client.call("Metadata", 9, topics=[{"name": topic}])
        assert [(node["node_id"], f"{HOST}:{node['port']}") for node in metadata["brokers"]] == [(0, fleet.single)]
        assert {part["leader_id"] for part in metadata["topics"][0]["partitions"]} == {0}
        assert len(client.call("DescribeCluster", 1, include_cluster_authorized_operations=False)["brokers"]) == 1
        described = client.call(
            "DescribeConfigs", 4, resources=[{"resource_type": 4, "resource_name": "0", "configuration_keys": None}],
            include_synonyms=False, include_documentation=False,
        )["results"][0]  # fmt: skip
        configs = {each["name"]: each["value"] for each in described["configs"]}
        assert (configs["node.id"], configs["advertised.listeners"]) == ("0", f"PLAINTEXT://{fleet.single}")
        for group in groups_of_two(fleet):
            assert client.call("FindCoordinator", 3, key=group, key_type=0)["node_id"] == 0


def test_requests_that_span_leaders(fleet: HaproxyFleet) -> None:
    """Frame by frame."""
    topic = unique_topic("haproxy")
    create_topic(fleet.single, topic, PARTITIONS)
    for number in range(PARTITIONS):
        sender = Sender(fleet.single, topic, partition=number)
        sender.send([b"%d" % number])
        sender.flush()
    with connected(fleet.single) as client:
        wanted = [{"partition_index": number, "timestamp": -1} for number in range(PARTITIONS)]
        listed = client.call(
            "ListOffsets", 4, replica_id=-1, isolation_level=0, topics=[{"name": topic, "partitions": wanted}]
        )
        assert len(listed["topics"]) == 1
        rows = {row["partition_index"]: (row["error_code"], row["offset"]) for row in listed["topics"][0]["partitions"]}
        assert rows == dict.fromkeys(range(PARTITIONS), (0, 1))
        check_fetches(client, topic)
        groups = groups_of_two(fleet)
        for group in groups:
            commit(fleet.single, group, topic, 1)
        described = client.call("DescribeGroups", 5, groups=groups, include_authorized_operations=False)
        assert {row["group_id"]: row["group_state"] for row in described["groups"]} == dict.fromkeys(groups, "Empty")
        assert {*groups} <= {row["group_id"] for row in client.call("ListGroups", 4, states_filter=[])["groups"]}
        gone = client.call("DeleteGroups", 2, groups_names=groups)
        assert {row["group_id"]: row["error_code"] for row in gone["results"]} == dict.fromkeys(groups, 0)


def check_fetches(client: RawClient, topic: str) -> None:
    """A fetch session with all partitions: first all records, then only new ones, then an empty response after the
    wait."""
    parts = [{"partition": number, "fetch_offset": 0, "partition_max_bytes": 1_000_000} for number in range(PARTITIONS)]
    first = fetch(client, session_id=0, session_epoch=0, topics=[{"topic": topic, "partitions": parts}])
    rows = first["responses"][0]["partitions"]
    assert {row["partition_index"] for row in rows} == set(range(PARTITIONS))
    assert {(row["error_code"], row["high_watermark"]) for row in rows} == {(0, 1)}
    with_data = {row["partition_index"] for row in rows if row["records"]}
    epoch, session = 1, first["session_id"]
    while len(with_data) < PARTITIONS:
        new = fetch(client, session_id=session, session_epoch=epoch, topics=[], max_wait_ms=5_000)
        with_data |= {row["partition_index"] for topic_rows in new["responses"] for row in topic_rows["partitions"]}
        epoch += 1
    for part in parts:
        part["fetch_offset"] = 1
    started = time.monotonic()
    last = fetch(
        client, session_id=session, session_epoch=epoch, topics=[{"topic": topic, "partitions": parts}], max_wait_ms=300
    )
    assert last["error_code"] == 0 and last["responses"] == []
    assert time.monotonic() - started > 0.25


def fetch(client: RawClient, *, max_wait_ms: int = 1_000, **fields: Any) -> dict[str, Any]:
    return client.call(
        "Fetch", 11, replica_id=-1, max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=50_000_000, isolation_level=0,
        forgotten_topics_data=[], rack_id="", **fields,
    )  # fmt: skip


def test_topics_are_written_to_by_their_ids(fleet: HaproxyFleet) -> None:
    """All partitions in one request, which is split among their leaders, and an unknown topic id."""
    topic, unknown = unique_topic("ids"), uuid.uuid4()
    create_topic(fleet.single, topic, PARTITIONS)
    with connected(fleet.single) as client:
        (found,) = client.call("Metadata", 12, topics=[{"topic_id": None, "name": topic}], **NO_CREATION)["topics"]
        parts = [{"index": number, "records": bytes(batch(records(1)))} for number in range(PARTITIONS)]
        asked = [{"topic_id": each, "partition_data": parts} for each in (found["topic_id"], unknown)]
        for offset in range(3):
            fields = {"transactional_id": None, "acks": -1, "timeout_ms": 10_000, "topic_data": asked}
            answer = client.call("Produce", 13, **fields)
            rows = {
                (each["topic_id"], row["index"]): (row["error_code"], row["base_offset"])
                for each in answer["responses"]
                for row in each["partition_responses"]
            }
            numbers = range(PARTITIONS)
            expected = {(found["topic_id"], number): (0, offset) for number in numbers}
            assert rows == expected | {(unknown, number): (UNKNOWN_TOPIC_ID, -1) for number in numbers}
            assert len(answer["responses"]) == 2


def test_kafka_python_without_acks(fleet: HaproxyFleet) -> None:
    """There are no responses to acks=0 that could get lost; a group reads all partitions."""
    topic = unique_topic("haproxy")
    create_topic(fleet.single, topic, PARTITIONS)
    sent = {b"%d" % number for number in range(400)}
    with closing(kafka.KafkaProducer(bootstrap_servers=fleet.single, acks=0)) as producer:
        for value in sent:
            producer.send(topic, value, partition=int(value) % PARTITIONS)
        producer.flush(TIMEOUT_S)
    consumer = kafka.KafkaConsumer(topic, bootstrap_servers=fleet.single, group_id=topic, auto_offset_reset="earliest")
    with closing(consumer):
        read: set[bytes] = set()
        deadline = time.monotonic() + TIMEOUT_S
        while read != sent and time.monotonic() < deadline:
            # Long enough for a rebalance: kafka-python 3 may lose a join in which a poll ends.
            read |= {record.value for records in consumer.poll(5_000).values() for record in records}
        assert read == sent
        consumer.commit()
    assert sum(committed(fleet.single, topic, topic, PARTITIONS)) == len(sent)


def test_java_tools(fleet: HaproxyFleet) -> None:
    topic, records = unique_topic("haproxy"), 2_000
    create_topic(fleet.single, topic, PARTITIONS)
    with KafkaTools(fleet.single) as run:
        lines = "".join(f"{number}\n" for number in range(records))
        assert run("kafka.tools.ConsoleProducer", "--topic", topic, reads=lines).status == 0
        read = run(
            "org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", topic, "--group", topic, "--from-beginning",
            "--max-messages", str(records), "--timeout-ms", "60000",
        )  # fmt: skip
        assert {*read.text.splitlines()} >= {*map(str, range(records))}
        listed = run("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--list")
        assert topic in listed.text.split()


class SteadyProducer:
    """Sends a record to each partition in turn, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str, **config: Any) -> None:
        self.sent: dict[int, list[bytes]] = defaultdict(list)
        self.writes: list[Write] = []
        self.errors: list[KafkaError] = []
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **config})
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(SEND_PAUSE_S):
            partition, value = number % PARTITIONS, b"%d of %s" % (number, self._topic.encode())
            self.sent[partition].append(value)
            self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None and value is not None
        if offset is None:  # an idempotent producer may learn by a later response that the record was written
            return
        self.writes.append(Write(partition, offset, value, self._topic, int(value.split()[0])))

    @property
    def values(self) -> set[str]:
        return {value.decode() for values in list(self.sent.values()) for value in list(values)}

    def stop(self) -> None:
        """Stop; then all records are acknowledged."""
        self._stopping.set()
        self._thread.join(TIMEOUT_S)
        assert self._producer.flush(TIMEOUT_S) == 0
        assert self.errors == []


class Traffic:
    """A topic with an idempotent producer and a group, through one of the fleet's addresses."""

    def __init__(self, stack: ExitStack, work_dir: Path, bootstrap: str, members: int) -> None:
        self.bootstrap = bootstrap
        self.topic = self.group = unique_topic("traffic")
        create_topic(bootstrap, self.topic, PARTITIONS)
        self.members = [
            stack.enter_context(FleetMember(work_dir / f"{self.topic}-{number}", bootstrap, self.group, self.topic))
            for number in range(members)
        ]
        self.producer = SteadyProducer(bootstrap, self.topic, **{"enable.idempotence": True})
        stack.callback(self.producer.stop)

    def wait_read(self) -> None:
        """Wait until all records sent so far have been read."""
        sent = self.producer.values
        wait_for(lambda: self._read() >= sent, f"all of {self.topic} is read", TIMEOUT_S)

    def _read(self) -> set[str]:
        for member in self.members:
            member.check_alive()
        return {value for member in self.members for value in member.values}

    def check(self) -> None:
        """No record is lost or doubled; consumers had no errors except rebalances."""
        self.producer.stop()
        self.wait_read()
        for member in self.members:
            member.check_alive()
            member.process.terminate()
        for member in self.members:
            assert member.process.wait(TIMEOUT_S) == 0
        history = history_of(self.bootstrap, self.topic, self.group, self.members, self.producer.writes, PARTITIONS)
        for partition, values in self.producer.sent.items():
            assert [value for _, value in history.logs[partition]] == values
        check(history)


def coordinator_of(fleet: HaproxyFleet, group: str) -> GatewayProcess:
    with connected(fleet.inside(fleet.gateways[0])) as client:
        found = client.call("FindCoordinator", 3, key=group, key_type=0)
    return next(each for each in fleet.gateways if fleet.inside(each) == f"{HOST}:{found['port']}")


def restart(gateway: GatewayProcess) -> None:
    gateway.stop()
    gateway.start()
    gateway.wait_ready()


def test_gateways_come_and_go(fleet: HaproxyFleet, tmp_path: Path) -> None:
    """All gateways are restarted, one after the other, and one is killed, with producers and groups on both forms."""
    with ExitStack() as stack:
        traffic = [Traffic(stack, tmp_path, fleet.bootstrap, 1), Traffic(stack, tmp_path, fleet.single, 2)]
        plain_topic = unique_topic("plain")
        create_topic(fleet.single, plain_topic, PARTITIONS)
        plain = SteadyProducer(fleet.single, plain_topic)
        stack.callback(plain.stop)
        inside = {each.bootstrap: fleet.inside(each) for each in fleet.gateways}
        probe = stack.enter_context(CoordinatorProbe(inside, unique_topic("probe"), plain_topic))
        for each in traffic:
            each.wait_read()
        for gateway in fleet.gateways:
            restart(gateway)
        for each in traffic:
            each.wait_read()
        victim = coordinator_of(fleet, probe.group)
        other = next(each for each in fleet.gateways if each is not victim)
        victim.kill()
        wait_for(lambda: len(brokers(fleet.inside(other))) == GATEWAYS - 1, "its leadership moved")
        wait_for(lambda: probe.coordinators[-1] != victim.bootstrap, "another gateway coordinates its group")
        for each in traffic:
            each.wait_read()
        victim.start()
        victim.wait_ready()
        for each in traffic:
            each.check()
        plain.stop()
        for partition, values in plain.sent.items():
            assert set(read_all(fleet.single, plain_topic, partition)) == set(values)
    history = History()
    probe.add_to(history)
    check(history)
