"""Several gateways of one namespace: all know the leaders, which change when a gateway starts, stops, dies or hangs."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from deploy.local.process import StartError, free_ports
from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import (
    TIMEOUT_S,
    Record,
    Sender,
    assigned,
    commit,
    committed,
    consume,
    create_topic,
    delete_records,
    offsets_of,
    produce,
    read_all,
    take,
)
from tests.integration.fleet_history import FleetGroup, FleetMember, history_of
from tests.integration.native import wait_for
from tests.integration.servers import gateway_on, lone_gateway_on, metric, running
from tests.support.coordinator_probe import CoordinatorProbe
from tests.support.gateway_process import HOST, GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import ConnectionClosedError, connected
from tests.support.traffic.history import check

PARTITIONS = 8
NOT_LEADER_OR_FOLLOWER, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 6, 15, 16
OFFSETS_TOPIC = "__consumer_offsets"
RACKS = ("first", "second")
MOST_TOPICS = 50
"""Each is led by either gateway with the same probability."""


@pytest.fixture(scope="module")
def fleet(pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[GatewayProcess]]:
    """Two gateways in a namespace of their own. A test that ends one starts it again."""
    tmp_path = tmp_path_factory.mktemp("fleet")
    namespace = {"namespace": unique_topic("fleet")}
    with ExitStack() as stack:
        yield [
            stack.enter_context(running(gateway_on(pulsar, tmp_path / name, pulsar=namespace, kafka={"rack": name})))
            for name in RACKS
        ]


@pytest.fixture
def gateways(fleet: list[GatewayProcess]) -> list[GatewayProcess]:
    """The two, when each knows the other: a gateway is ready as soon as it knows itself."""
    ports = {port(each) for each in fleet}
    wait_for(lambda: all(brokers(each.bootstrap) == ports for each in fleet), "they know each other")
    return fleet


def metadata(gateway: GatewayProcess, *topics: str) -> dict[str, Any]:
    with connected(gateway.bootstrap) as client:
        return client.call("Metadata", 9, topics=[{"name": name} for name in topics])


def node_ports(gateway: GatewayProcess) -> dict[int, int]:
    return {node["node_id"]: node["port"] for node in metadata(gateway, OFFSETS_TOPIC)["brokers"]}


def leaders(gateway: GatewayProcess, topic: str) -> dict[int, int]:
    """Partition to port."""
    answer = metadata(gateway, topic)
    ports = {node["node_id"]: node["port"] for node in answer["brokers"]}
    return {part["partition_index"]: ports[part["leader_id"]] for part in answer["topics"][0]["partitions"]}


def port(gateway: GatewayProcess) -> int:
    return int(gateway.config["kafka"]["port"])


def coordinator_port(gateway: GatewayProcess, group: str) -> int | None:
    """None while the gateway knows of none: until it has prepared the topic of groups, and while it has no members."""
    with connected(gateway.bootstrap) as client:
        found = client.call("FindCoordinator", 3, key=group, key_type=0)
    if found["error_code"] == COORDINATOR_NOT_AVAILABLE:
        return None
    assert found["error_code"] == 0
    return int(found["port"])


@contextmanager
def asleep(gateway: GatewayProcess) -> Iterator[None]:
    os.kill(gateway.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(gateway.pid, signal.SIGCONT)


def test_all_agree_and_a_gateway_that_does_not_lead_refuses(gateways: list[GatewayProcess]) -> None:
    first, second = gateways
    topic = unique_topic("fleet")
    create_topic(first.bootstrap, topic, 32)
    assert leaders(first, topic) == leaders(second, topic)
    assert set(leaders(first, topic).values()) == {port(first), port(second)}
    assert leaders(first, OFFSETS_TOPIC) == leaders(second, OFFSETS_TOPIC)
    elsewhere = next(number for number, leader in leaders(first, topic).items() if leader == port(second))
    foreign = next(f"g{number}" for number in range(99) if coordinator_port(first, f"g{number}") == port(second))
    with connected(first.bootstrap) as client:
        listed = client.call(
            "ListOffsets", 4, replica_id=-1, isolation_level=0,
            topics=[{"name": topic, "partitions": [{"partition_index": elsewhere, "timestamp": -1}]}],
        )  # fmt: skip
        assert listed["topics"][0]["partitions"][0]["error_code"] == NOT_LEADER_OR_FOLLOWER
        topic_id = client.call("Metadata", 10, topics=[{"name": topic}])["topics"][0]["topic_id"]
        part = {"partition": elsewhere, "fetch_offset": 0, "partition_max_bytes": 1_000}
        fetched = client.call(
            "Fetch", 16, max_wait_ms=1, min_bytes=1, max_bytes=1_000, isolation_level=0, session_id=0,
            session_epoch=-1, topics=[{"topic_id": topic_id, "partitions": [part]}], forgotten_topics_data=[],
            rack_id="",
        )  # fmt: skip
        assert fetched["responses"][0]["partitions"][0]["error_code"] == NOT_LEADER_OR_FOLLOWER
        assert [node["port"] for node in fetched["node_endpoints"]] == [port(second)]
        beat = client.call("Heartbeat", 0, group_id=foreign, generation_id=1, member_id="m")
        assert beat["error_code"] == NOT_COORDINATOR


def test_the_cluster_id_is_the_namespaces(
    gateways: list[GatewayProcess], pulsar: PulsarStandalone, tmp_path: Path
) -> None:
    """All gateways of a namespace have the same one, also after a restart; gateways of another namespace have another
    one."""
    first, second = gateways
    cluster_id = metadata(first)["cluster_id"]
    assert metadata(second)["cluster_id"] == cluster_id
    assert len(cluster_id) == 22
    first.stop()
    first.start()
    first.wait_ready()
    assert metadata(first)["cluster_id"] == cluster_id
    with running(lone_gateway_on(pulsar, tmp_path)) as other:
        assert metadata(other)["cluster_id"] != cluster_id


@pytest.mark.parametrize("rack", [*RACKS, "elsewhere"])
def test_consumers_read_from_their_own_rack(gateways: list[GatewayProcess], rack: str) -> None:
    """KIP-392: a gateway of the consumer's rack serves partitions that another gateway leads, up to the end and beyond.
    """
    topic, each_leads = unique_topic("racks"), 3
    create_topic(gateways[0].bootstrap, topic, 32)
    by_leader: dict[int, list[int]] = {}
    for number, leader in leaders(gateways[0], topic).items():
        by_leader.setdefault(leader, []).append(number)
    assert len(by_leader) == len(gateways)
    chosen = [number for led in by_leader.values() for number in led[:each_leads]]
    values = {number: [f"{number}-{each}".encode() for each in range(40)] for number in chosen}
    for number, sent in values.items():
        produce(gateways[0].bootstrap, topic, [Record(value) for value in sent[:20]], partition=number)
    before = [metric(each, "kafka_gateway_request_latency_seconds_count", api="Fetch") for each in gateways]
    settings: dict[str, Any] = {"client_rack": rack, "auto_offset_reset": "earliest", "fetch_wait_max_ms": 100}
    for number, sent in values.items():
        with assigned(gateways[0].bootstrap, topic, partition=number, **settings) as consumer:
            assert [message.value() for message in take(consumer, 20)] == sent[:20]
            produce(gateways[0].bootstrap, topic, [Record(value) for value in sent[20:]], partition=number)
            assert [message.value() for message in take(consumer, 20)] == sent[20:]
    after = [metric(each, "kafka_gateway_request_latency_seconds_count", api="Fetch") for each in gateways]
    fetches = dict(zip(RACKS, (late - early for late, early in zip(after, before, strict=True)), strict=True))
    others = {name: count for name, count in fetches.items() if name != rack}
    if rack in fetches:  # each partition of another leader is requested from that leader once
        assert all(count <= 2 * len(chosen) for count in others.values()), fetches
        assert fetches[rack] > 2 * len(chosen)
    else:
        assert all(count > 0 for count in others.values()), fetches


def test_deleted_records_do_not_come_back_when_a_reader_leads(gateways: list[GatewayProcess]) -> None:
    """It has the log open since before the deletion, because it read for consumers of its rack."""
    first, second = gateways
    topic = led_by(first)
    produce(first.bootstrap, topic, [Record(b"%d" % number) for number in range(20)])
    consume(second.bootstrap, topic, 20, client_rack=RACKS[1])
    delete_records(first.bootstrap, topic, 15)
    first.stop()
    try:
        wait_for(lambda: leads(second, topic), "the reader leads")
        found = consume(second.bootstrap, topic, 5, offset=3, auto_offset_reset="earliest")
    finally:
        first.start()
        first.wait_ready()
    assert offsets_of(found) == [*range(15, 20)]


def led_by(gateway: GatewayProcess) -> str:
    """A topic with one partition."""
    for _ in range(MOST_TOPICS):
        topic = unique_topic("racks")
        create_topic(gateway.bootstrap, topic)
        if leads(gateway, topic):
            return topic
    raise AssertionError("the gateway leads none of the topics")


def leads(gateway: GatewayProcess, topic: str) -> bool:
    return leaders(gateway, topic)[0] == port(gateway)


def test_a_deleted_topic_does_not_exist_at_any_gateway(gateways: list[GatewayProcess]) -> None:
    """It does not matter which gateway deletes it: its leader keeps nothing of it for a new topic with the same name.
    """
    topic, bootstrap = unique_topic("fleet"), gateways[0].bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for values in ([b"old"] * 5, [b"new"]):
        create_topic(bootstrap, topic, 4)
        commit(bootstrap, topic, topic, 1)
        for number in range(4):
            sender = Sender(bootstrap, topic, partition=number)
            sent = [b"%s %d" % (value, index) for index, value in enumerate(values)]
            sender.send(sent)
            sender.flush()
            assert read_all(bootstrap, topic, number) == sent
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)
        wait_for(lambda: committed(bootstrap, topic, topic) == [-1001], "its committed offsets are gone")


def test_a_node_id_belongs_to_one(gateways: list[GatewayProcess], pulsar: PulsarStandalone, tmp_path: Path) -> None:
    taken = next(iter(node_ports(gateways[0])))
    sections = {"pulsar": gateways[0].config["pulsar"], "kafka": {"host": "127.0.0.1", "port": 0, "node_id": taken}}
    third = GatewayProcess(tmp_path / "third", pulsar.service_url, pulsar.admin_url, sections)
    third.start()
    try:
        with pytest.raises(StartError, match=f"node id {taken} is in use by the gateway at 127.0.0.1"):
            third.wait_ready()
    finally:
        third.stop()


def stop(gateway: GatewayProcess) -> None:
    gateway.stop()


def kill(gateway: GatewayProcess) -> None:
    gateway.kill()


@pytest.mark.parametrize("end", [stop, kill])
def test_records_when_a_gateway_ends(gateways: list[GatewayProcess], end: Callable[[GatewayProcess], None]) -> None:
    """No record is lost, and none of an idempotent producer is doubled, when a gateway ends and returns."""
    first, second = gateways
    topic = unique_topic("fleet")
    create_topic(first.bootstrap, topic, PARTITIONS)
    bootstrap = f"{first.bootstrap},{second.bootstrap}"
    senders = [
        Sender(bootstrap, topic, partition=number, enable_idempotence=True, retry_backoff_ms=50)
        for number in range(PARTITIONS)
    ]
    expected = [b"%d" % number for number in range(600)]
    for sender in senders:
        sender.send(expected[:300])
    end(second)
    for sender in senders:
        sender.send(expected[300:400])
    wait_for(lambda: set(node_ports(first).values()) == {port(first)}, "the leaders moved")
    for sender in senders:
        sender.flush()
    second.start()
    second.wait_ready()
    for sender in senders:
        sender.send(expected[400:])
    for number, sender in enumerate(senders):
        sender.flush()
        assert sender.errors == []
        assert read_all(bootstrap, topic, number) == expected


def test_workers(pulsar: PulsarStandalone, tmp_path: Path) -> None:
    """Two workers on one machine: one that dies is restarted, and all end together."""
    first, *_ = ports = free_ports(2)
    sections: dict[str, dict[str, Any]] = {
        "kafka": {"host": HOST, "port": first},
        "http": {"host": HOST, "port": 0},
        "pulsar": {"namespace": unique_topic("workers")},
    }
    supervisor = GatewayProcess(tmp_path, pulsar.service_url, pulsar.admin_url, sections, workers=2)
    supervisor.start()
    try:
        wait_for(lambda: serves(supervisor, ports), "both serve")
        before = worker_pids(supervisor)
        os.kill(before[1], signal.SIGKILL)
        wait_for(lambda: before[1] not in worker_pids(supervisor), "it is gone")
        wait_for(lambda: len(worker_pids(supervisor)) == 2 and serves(supervisor, ports), "both serve again")
        after = worker_pids(supervisor)
    finally:
        supervisor.stop()
    assert len(after) == 2 and before[1] not in after
    assert not any(Path(f"/proc/{pid}").exists() for pid in after)


def serves(supervisor: GatewayProcess, ports: list[int]) -> bool:
    try:
        return all(brokers(f"{HOST}:{each}") == set(ports) for each in ports)
    except (OSError, ConnectionClosedError):
        return False


def worker_pids(supervisor: GatewayProcess) -> list[int]:
    """Oldest first."""
    text = Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children").read_text()
    return sorted(int(pid) for pid in text.split())


def brokers(bootstrap: str) -> set[int]:
    with connected(bootstrap) as client:
        return {node["port"] for node in client.call("Metadata", 9, topics=[])["brokers"]}


@pytest.mark.parametrize("fault", ["killed", "asleep"])
def test_groups_when_a_gateway(gateways: list[GatewayProcess], tmp_path: Path, fault: str) -> None:
    """The group continues at the other gateway: no commit is lost or moved back, no partition has two owners."""
    first, second = gateways
    bootstrap = f"{first.bootstrap},{second.bootstrap}"
    topic = unique_topic("fleet")
    create_topic(first.bootstrap, topic, PARTITIONS)
    groups = (name for name in map(unique_topic, "g" * 99) if coordinator_port(first, name) == port(second))
    group, probed = next(groups), next(groups)
    senders = [
        Sender(bootstrap, topic, partition=number, enable_idempotence=True, socket_timeout_ms=4_000)
        for number in range(PARTITIONS)
    ]
    with ExitStack() as stack:
        members = [
            stack.enter_context(FleetMember(tmp_path / f"member{number}", bootstrap, group, topic))
            for number in range(3)
        ]
        probe = stack.enter_context(
            CoordinatorProbe({each.bootstrap: each.bootstrap for each in gateways}, probed, topic)
        )
        trial = FleetGroup(members, senders)

        def goes_on_without_second() -> None:
            trial.send("without")
            wait_for(lambda: coordinator_port(first, group) == port(first), "the coordinator moved")
            wait_for(lambda: first.bootstrap in probe.coordinators, "it acts as the coordinator of the other group")
            wait_for(trial.all_is_read, "all is read", state=trial.state)

        trial.send("before")
        wait_for(trial.all_is_read, "all is read", state=trial.state)
        wait_for(trial.is_in_one_generation, "all are in one generation", state=trial.state)
        wait_for(lambda: second.bootstrap in probe.coordinators, "the other group has a coordinator")
        if fault == "killed":
            second.kill()
            goes_on_without_second()
            second.start()
            second.wait_ready()
        else:
            with asleep(second):
                goes_on_without_second()
        trial.send("again")
        wait_for(trial.all_is_read, "all is read", state=trial.state)
        trial.leave(TIMEOUT_S)
    for sender in senders:
        sender.flush()
        assert sender.errors == []
    writes = [write for sender in senders for write in sender.writes]
    history = history_of(bootstrap, topic, group, members, writes, PARTITIONS)
    probe.add_to(history)
    check(history)
