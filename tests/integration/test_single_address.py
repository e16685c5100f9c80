"""All gateways behind one port of haproxy: clients see one broker, whichever gateway takes their connections."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import kafka
import pytest
from confluent_kafka.admin import AdminClient

from deploy.haproxy.config import Backend, single_address_config
from deploy.local.process import ChildProcess, free_port
from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import TIMEOUT_S, Sender, commit, committed, create_topic, read_all
from tests.integration.fleet_history import FleetMember, check_commits_hold, check_one_owner_each
from tests.integration.native import wait_for
from tests.integration.servers import running
from tests.support.gateway_process import HOST, GatewayProcess
from tests.support.kafka_tools import KafkaTools, compile_tools
from tests.support.names import unique_topic
from tests.support.raw_client import ConnectionClosedError, RawClient, connected

PARTITIONS = 8
MOVED_S = 10.0


class SingleAddress:
    """Gateways of one namespace behind a haproxy of their own."""

    def __init__(self, gateways: list[GatewayProcess], bootstrap: str) -> None:
        self.gateways = gateways
        self.bootstrap = bootstrap

    def direct(self, gateway: GatewayProcess) -> str:
        """Its own listener, where it tells what leads what, and answers for nobody else."""
        return f"{HOST}:{gateway.config['kafka']['listeners'][0]['port']}"


@pytest.fixture(scope="module")
def fleet(pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SingleAddress]:
    """Who ends a gateway starts it again."""
    work_dir, port = tmp_path_factory.mktemp("single"), free_port()
    namespace = {"namespace": unique_topic("single")}
    gateways = [
        GatewayProcess(
            work_dir / name, pulsar.service_url, pulsar.admin_url, {"pulsar": namespace, **single_address(port)}
        )
        for name in ("first", "second")
    ]
    backends = [Backend(HOST, each.config["kafka"]["port"], each.config["http"]["port"]) for each in gateways]
    file = work_dir / "haproxy.cfg"
    file.write_text(single_address_config(backends, HOST, port))
    haproxy = ChildProcess("haproxy", work_dir / "haproxy.log")
    with running(gateways[0]), running(gateways[1]):
        haproxy.start(["haproxy", "-db", "-f", str(file)])
        try:
            wait_for(lambda: answers(f"{HOST}:{port}"), "haproxy has found the gateways")
            yield SingleAddress(gateways, f"{HOST}:{port}")
        finally:
            haproxy.stop()


def single_address(port: int) -> dict[str, Any]:
    """The sections of a gateway behind `port` of haproxy."""
    return {
        "kafka": {
            "host": HOST, "port": free_port(), "proxy_protocol": True, "single_address": True, "advertised_port": port,
            "listeners": [{"name": "inside", "host": HOST, "port": free_port()}],
        },
        "fleet": {"forwarding": {"host": HOST, "port": free_port()}},
    }  # fmt: skip


def answers(bootstrap: str) -> bool:
    try:
        with connected(bootstrap) as client:
            return len(client.call("Metadata", 9, topics=[])["brokers"]) == 1
    except (OSError, ConnectionClosedError):
        return False


def leaders(fleet: SingleAddress, topic: str) -> list[int]:
    """Node ids by partition, as they are told inside."""
    with connected(fleet.direct(fleet.gateways[0])) as client:
        parts = client.call("Metadata", 9, topics=[{"name": topic}])["topics"][0]["partitions"]
    return [part["leader_id"] for part in sorted(parts, key=lambda part: int(part["partition_index"]))]


def groups_of_both(fleet: SingleAddress) -> tuple[str, str]:
    """A group for each coordinator."""
    found: dict[int, str] = {}
    with connected(fleet.direct(fleet.gateways[0])) as client:
        while len(found) < 2:
            name = unique_topic("g")
            found[client.call("FindCoordinator", 3, key=name, key_type=0)["node_id"]] = name
    first, second = found.values()
    return first, second


def test_clients_see_one_broker(fleet: SingleAddress) -> None:
    topic = unique_topic("single")
    create_topic(fleet.bootstrap, topic, PARTITIONS)
    assert len(set(leaders(fleet, topic))) == 2
    with connected(fleet.bootstrap) as client:
        metadata = client.call("Metadata", 9, topics=[{"name": topic}])
        assert [(node["node_id"], f"{HOST}:{node['port']}") for node in metadata["brokers"]] == [(0, fleet.bootstrap)]
        assert {part["leader_id"] for part in metadata["topics"][0]["partitions"]} == {0}
        assert len(client.call("DescribeCluster", 1, include_cluster_authorized_operations=False)["brokers"]) == 1
        for group in groups_of_both(fleet):
            assert client.call("FindCoordinator", 3, key=group, key_type=0)["node_id"] == 0


def test_requests_that_span_leaders(fleet: SingleAddress) -> None:
    """Frame by frame, at each gateway's own listener for the single address."""
    topic = unique_topic("single")
    create_topic(fleet.bootstrap, topic, PARTITIONS)
    for number in range(PARTITIONS):
        sender = Sender(fleet.bootstrap, topic, partition=number)
        sender.send([b"%d" % number])
        sender.flush()
    with connected(fleet.bootstrap) as client:
        wanted = [{"partition_index": number, "timestamp": -1} for number in range(PARTITIONS)]
        listed = client.call(
            "ListOffsets", 4, replica_id=-1, isolation_level=0, topics=[{"name": topic, "partitions": wanted}]
        )
        assert len(listed["topics"]) == 1
        rows = {row["partition_index"]: (row["error_code"], row["offset"]) for row in listed["topics"][0]["partitions"]}
        assert rows == dict.fromkeys(range(PARTITIONS), (0, 1))
        check_fetches(client, topic)
        groups = groups_of_both(fleet)
        for group in groups:
            commit(fleet.bootstrap, group, topic, 1)
        described = client.call("DescribeGroups", 5, groups=list(groups), include_authorized_operations=False)
        assert {row["group_id"]: row["group_state"] for row in described["groups"]} == dict.fromkeys(groups, "Empty")
        assert {*groups} <= {row["group_id"] for row in client.call("ListGroups", 4, states_filter=[])["groups"]}
        gone = client.call("DeleteGroups", 2, groups_names=list(groups))
        assert {row["group_id"]: row["error_code"] for row in gone["results"]} == dict.fromkeys(groups, 0)


def check_fetches(client: RawClient, topic: str) -> None:
    """A session over all partitions: all at once, then only what is new, and an empty answer after the wait."""
    parts = [
        {"partition": number, "fetch_offset": 0, "partition_max_bytes": 1_000_000} for number in range(PARTITIONS)
    ]
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


def test_kafka_python_without_acks(fleet: SingleAddress) -> None:
    """acks=0 has no answers that could go astray; a group reads all partitions."""
    topic = unique_topic("single")
    create_topic(fleet.bootstrap, topic, PARTITIONS)
    sent = {b"%d" % number for number in range(400)}
    with closing(kafka.KafkaProducer(bootstrap_servers=fleet.bootstrap, acks=0)) as producer:
        for value in sent:
            producer.send(topic, value, partition=int(value) % PARTITIONS)
        producer.flush(TIMEOUT_S)
    consumer = kafka.KafkaConsumer(
        topic, bootstrap_servers=fleet.bootstrap, group_id=topic, auto_offset_reset="earliest"
    )
    with closing(consumer):
        read: set[bytes] = set()
        deadline = time.monotonic() + TIMEOUT_S
        while read != sent and time.monotonic() < deadline:
            read |= {record.value for records in consumer.poll(500).values() for record in records}
        assert read == sent
        consumer.commit()
    assert sum(committed(fleet.bootstrap, topic, topic, PARTITIONS)) == len(sent)


def test_java_tools(fleet: SingleAddress, tmp_path: Path) -> None:
    topic, records = unique_topic("single"), 2_000
    create_topic(fleet.bootstrap, topic, PARTITIONS)
    compile_tools(tmp_path)
    with KafkaTools(tmp_path, fleet.bootstrap) as run:
        lines = "".join(f"{number}\n" for number in range(records))
        assert run("kafka.tools.ConsoleProducer", "--topic", topic, reads=lines).status == 0
        read = run(
            "org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", topic, "--group", topic, "--from-beginning",
            "--max-messages", str(records), "--timeout-ms", "20000",
        )  # fmt: skip
        assert {*read.text.splitlines()} >= {*map(str, range(records))}
        listed = run("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--list")
        assert topic in listed.text.split()


def test_one_of_them_dies(fleet: SingleAddress, tmp_path: Path) -> None:
    """Under a group and idempotent producers, who hear of nothing but errors that pass."""
    topic, group = unique_topic("single"), unique_topic("g")
    create_topic(fleet.bootstrap, topic, PARTITIONS)
    senders = [
        Sender(fleet.bootstrap, topic, partition=number, enable_idempotence=True) for number in range(PARTITIONS)
    ]
    sent = [[b"%d of %d" % (number, part) for number in range(600)] for part in range(PARTITIONS)]
    with ExitStack() as stack:
        members = [
            stack.enter_context(FleetMember(tmp_path / f"member{number}", fleet.bootstrap, group, topic))
            for number in range(2)
        ]

        def all_read(count: int) -> bool:
            read = {value.encode() for member in members for value in member.values}
            return read >= {value for values in sent for value in values[:count]}

        for values, sender in zip(sent, senders, strict=True):
            sender.send(values[:200])
        wait_for(lambda: all_read(200), "all is read", TIMEOUT_S)
        for values, sender in zip(sent, senders, strict=True):
            sender.send(values[200:400])
        fleet.gateways[1].kill()
        for values, sender in zip(sent, senders, strict=True):
            sender.send(values[400:500])
        wait_for(lambda: len(set(leaders(fleet, topic))) == 1, "the leaders moved", MOVED_S)
        wait_for(lambda: all_read(500), "all is read", TIMEOUT_S)
        fleet.gateways[1].start()
        fleet.gateways[1].wait_ready()
        for values, sender in zip(sent, senders, strict=True):
            sender.send(values[500:])
        wait_for(lambda: all_read(600), "all is read", TIMEOUT_S)
        for member in members:
            member.process.terminate()
        for member in members:
            member.process.wait(TIMEOUT_S)
    for part, sender in enumerate(senders):
        sender.flush()
        assert sender.errors == []
        assert read_all(fleet.bootstrap, topic, part) == sent[part]
    check_one_owner_each(members)
    check_commits_hold(members, committed(fleet.bootstrap, group, topic, PARTITIONS))
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    listed = admin.list_consumer_groups().result(TIMEOUT_S)
    assert listed.errors == []
    assert group in {each.group_id for each in listed.valid}
