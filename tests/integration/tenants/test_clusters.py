"""One fleet, several clusters: each listener has a namespace of its own, and clusters see nothing of each other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pulsar
import pytest
from confluent_kafka import OFFSET_INVALID, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from deploy.local.process import free_port
from tests.integration.confluent import (
    TIMEOUT_S,
    Record,
    commit,
    committed,
    create_topic,
    produce,
    read_all_values,
)
from tests.integration.native import wait_for
from tests.integration.secured_pulsar import SecuredPulsar
from tests.integration.servers import await_fleet, gateway_on, metric, running
from tests.integration.transactional import await_markers
from tests.support.gateway_process import HOST, GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import ConnectionClosedError, connected
from tests.support.tokens import Issuer

PARTITIONS = 8
UNKNOWN_TOPIC_ID, FETCH_SESSION_ID_NOT_FOUND = 100, 70
CLUSTERS = ("first", "second")
SINGLE = "single"
USERS = {"alice": "a", "bob": "b", "carol": "c"}


def clusters_of(tenant: str) -> dict[str, Any]:
    return {
        "clusters": [
            {"namespace": f"{tenant}/first", "create_namespace": True},
            {"namespace": f"{tenant}/second", "create_namespace": True, "users": ["alice"]},
            {"namespace": f"{tenant}/*", "create_namespace": True, "users": ["carol"]},
            {"namespace": f"{tenant}/missing"},
        ]
    }


def listeners(tenant: str, advertised: int) -> list[dict[str, Any]]:
    """`single` is the address of all gateways for the second cluster."""
    return [
        {"name": "first", "host": HOST, "port": free_port(), "cluster": f"{tenant}/first"},
        {"name": "second", "host": HOST, "port": free_port(), "cluster": f"{tenant}/second"},
        {"name": "missing", "host": HOST, "port": free_port(), "cluster": f"{tenant}/missing"},
        {
            "name": "login", "host": HOST, "port": free_port(), "protocol": "SASL_PLAINTEXT",
            "mechanisms": ["PLAIN", "SCRAM-SHA-256"],
        },
        {
            "name": SINGLE, "host": HOST, "port": free_port(), "cluster": f"{tenant}/second", "single_address": True,
            "advertised_port": advertised,
        },
    ]  # fmt: skip


def address(gateway: GatewayProcess, listener: str) -> str:
    found = next(each for each in gateway.config["kafka"]["listeners"] if each["name"] == listener)
    return f"{HOST}:{found['port']}"


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer"))


@pytest.fixture(scope="module")
def gateways(
    secured_pulsar: SecuredPulsar, issuer: Issuer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[GatewayProcess]]:
    """Two gateways. A test that ends one starts it again."""
    tmp_path, tenant, single = tmp_path_factory.mktemp("clusters"), unique_topic("tenant"), free_port()
    own = {"namespace": unique_topic("own")}
    secured_pulsar.create_tenant(tenant)
    with ExitStack() as stack:
        started: list[GatewayProcess] = []
        for name in ("one", "two"):
            kafka = {"listeners": listeners(tenant, single), **clusters_of(tenant)}
            kafka["listeners"][-1]["port"] = single if not started else free_port()
            forwarding = {"forwarding": {"host": HOST, "port": free_port()}}
            gateway = gateway_on(
                secured_pulsar, tmp_path / name, pulsar=own, kafka=kafka, fleet=forwarding,
                security={"users": USERS, "tokens": {"public_key_file": str(issuer.public_key_file)}},
            )  # fmt: skip
            started.append(stack.enter_context(running(gateway)))
        await_fleet(started)
        for gateway in started:
            for cluster in CLUSTERS:
                wait_for(partial(serves_groups, address(gateway, cluster)), "groups of the cluster")
        yield started


def serves_groups(bootstrap: str) -> bool:
    try:
        with connected(bootstrap) as client:
            found = client.call("FindCoordinator", 3, key="any", key_type=0)
            if found["error_code"]:
                return False
            with connected(f"{found['host']}:{found['port']}") as coordinator:
                return bool(coordinator.call("ListGroups", 4, states_filter=[])["error_code"] == 0)
    except (OSError, ConnectionClosedError):
        return False


def metadata(bootstrap: str, *topics: str) -> dict[str, Any]:
    with connected(bootstrap) as client:
        return client.call("Metadata", 12, topics=[{"name": name, "topic_id": None} for name in topics] or None)


def leaders(bootstrap: str, topic: str) -> list[int]:
    return [part["leader_id"] for part in metadata(bootstrap, topic)["topics"][0]["partitions"]]


def topics_of(bootstrap: str) -> set[str]:
    return {each["name"] for each in metadata(bootstrap)["topics"] if not each["is_internal"]}


def groups_of(gateways: list[GatewayProcess], cluster: str) -> set[str]:
    found: set[str] = set()
    for gateway in gateways:
        with connected(address(gateway, cluster)) as client:
            found |= {each["group_id"] for each in client.call("ListGroups", 4, states_filter=[])["groups"]}
    return found


def transactionally(bootstrap: str, name: str, topic: str, value: bytes) -> Producer:
    """A producer with an open transaction."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, value, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    return producer


def test_names_are_a_clusters_own(gateways: list[GatewayProcess]) -> None:
    topic, group, transactional_id = unique_topic(), unique_topic("g"), unique_topic("id")
    first, second = (address(gateways[0], cluster) for cluster in CLUSTERS)
    create_topic(first, topic, PARTITIONS)
    assert topic in topics_of(first)
    assert topic not in topics_of(second) | topics_of(gateways[0].bootstrap)
    create_topic(second, topic, PARTITIONS)
    for number, bootstrap in enumerate((first, second)):
        produce(bootstrap, topic, [Record(b"%d" % number)] * (number + 1), partition=0)
    assert [value for _, value in read_all_values(first, topic)] == [b"0"]
    assert [value for _, value in read_all_values(second, topic)] == [b"1", b"1"]

    commit(first, group, topic, 1)
    assert committed(second, group, topic) == [OFFSET_INVALID]
    commit(second, group, topic, 2)
    assert committed(first, group, topic) == [1]
    assert group in groups_of(gateways, "first") & groups_of(gateways, "second")
    only = unique_topic("only")
    commit(second, only, topic, 1)
    assert only in groups_of(gateways, "second") - groups_of(gateways, "first")

    one = transactionally(first, transactional_id, topic, b"one")
    other = transactionally(second, transactional_id, topic, b"other")  # and fences no other producer
    one.commit_transaction(TIMEOUT_S)
    other.abort_transaction(TIMEOUT_S)
    for bootstrap in (first, second):
        await_markers(bootstrap)
    assert [value for _, value in read_all_values(first, topic)] == [b"0", b"one"]
    assert b"other" not in [value for _, value in read_all_values(second, topic)]

    admin = AdminClient({"bootstrap.servers": first})
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    wait_for(lambda: topic not in topics_of(address(gateways[1], "first")), "deletion")
    for gateway in gateways:
        assert topic in topics_of(address(gateway, "second"))
    assert committed(second, group, topic) == [2]
    assert [value for _, value in read_all_values(second, topic)] == [b"1", b"1"]


def test_ids_of_another_cluster_are_unknown(gateways: list[GatewayProcess]) -> None:
    topic = unique_topic()
    first, second = (address(gateways[0], cluster) for cluster in CLUSTERS)
    create_topic(first, topic)
    found = metadata(first, topic)["topics"][0]
    leader = leaders(first, topic)[0]
    hosts = {node["node_id"]: node["port"] for node in metadata(second)["brokers"]}
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    asked = {
        "max_wait_ms": 0, "min_bytes": 0, "session_id": 0, "session_epoch": 0, "forgotten_topics_data": [],
        "topics": [{"topic_id": found["topic_id"], "partitions": [partition]}],
    }  # fmt: skip
    with connected(f"{HOST}:{hosts[leader]}") as client:
        answer = client.call("Fetch", 13, **asked)
        rows = [part for each in answer["responses"] for part in each["partitions"]]
        assert [answer["error_code"] or row["error_code"] for row in rows] == [UNKNOWN_TOPIC_ID]
    first_hosts = {node["node_id"]: node["port"] for node in metadata(first)["brokers"]}
    with connected(f"{HOST}:{first_hosts[leader]}") as client:
        session = client.call("Fetch", 13, **asked)["session_id"]
        assert session
    with connected(f"{HOST}:{hosts[leader]}") as client:
        resumed = client.call("Fetch", 13, **asked | {"session_id": session, "session_epoch": 1, "topics": []})
        assert resumed["error_code"] == FETCH_SESSION_ID_NOT_FOUND


def test_a_cluster_has_an_id_and_addresses_of_its_own(gateways: list[GatewayProcess]) -> None:
    seen = [[metadata(address(gateway, cluster)) for gateway in gateways] for cluster in CLUSTERS]
    ids = [{each["cluster_id"] for each in of_cluster} for of_cluster in seen]
    assert [len(each) for each in ids] == [1, 1]
    own = metadata(gateways[0].bootstrap)["cluster_id"]
    assert len({own, *ids[0], *ids[1]}) == 3
    for cluster, of_cluster in zip(CLUSTERS, seen, strict=True):
        ports = {node["port"] for each in of_cluster for node in each["brokers"]}
        assert {f"{HOST}:{port}" for port in ports} == {address(gateway, cluster) for gateway in gateways}


def test_internal_topics_are_where_no_client_writes(
    gateways: list[GatewayProcess], secured_pulsar: SecuredPulsar
) -> None:
    tenant = gateways[0].config["kafka"]["clusters"][0]["namespace"].partition("/")[0]
    for cluster in CLUSTERS:
        names = secured_pulsar.root.call("GET", f"persistent/{tenant}/{cluster}-gateway/partitioned")
        assert any(name.endswith("/__consumer_offsets") for name in names)


def topic_at_both_gateways(single: str, second: str) -> str | None:
    """A new topic; None if all its partitions have the same leader, which is chosen by their names."""
    topic = unique_topic()
    create_topic(single, topic, PARTITIONS)
    return topic if len({*leaders(second, topic)} - {-1}) == 2 else None


def test_one_address_for_all_gateways(gateways: list[GatewayProcess]) -> None:
    """Another gateway answers forwarded requests for the client's cluster."""
    group, second, single = unique_topic("g"), address(gateways[0], "second"), address(gateways[0], SINGLE)
    topic = wait_for(lambda: topic_at_both_gateways(single, second), "each gateway leads some partitions of a topic")
    for partition in range(PARTITIONS):
        produce(single, topic, [Record(b"%d" % partition)], partition=partition)
        assert [value for _, value in read_all_values(single, topic, partition=partition)] == [b"%d" % partition]
        assert [value for _, value in read_all_values(second, topic, partition=partition)] == [b"%d" % partition]
    commit(single, group, topic, 1)
    assert committed(second, group, topic) == [1]
    assert topic not in topics_of(address(gateways[1], "first")) | topics_of(gateways[1].bootstrap)
    producer = transactionally(single, unique_topic("id"), topic, b"x")
    producer.commit_transaction(TIMEOUT_S)


def test_a_gateway_ends_and_comes_again(gateways: list[GatewayProcess]) -> None:
    topic, group = unique_topic(), unique_topic("g")
    for number, cluster in enumerate(CLUSTERS):
        create_topic(address(gateways[0], cluster), topic, PARTITIONS)
        for partition in range(PARTITIONS):
            produce(address(gateways[0], cluster), topic, [Record(b"%d" % number)], partition=partition)
        commit(address(gateways[0], cluster), group, topic, number + 1)
    for end in (GatewayProcess.kill, GatewayProcess.stop):
        end(gateways[1])
        for number, cluster in enumerate(CLUSTERS):
            bootstrap = address(gateways[0], cluster)
            for partition in range(PARTITIONS):
                produce(bootstrap, topic, [Record(b"more")], partition=partition)
            assert committed(bootstrap, group, topic) == [number + 1]
        gateways[1].start()
        gateways[1].wait_ready()
        for number, cluster in enumerate(CLUSTERS):
            bootstrap = address(gateways[1], cluster)
            wait_for(partial(serves_groups, bootstrap), "groups of the cluster")
            assert committed(bootstrap, group, topic) == [number + 1]
            assert read_all_values(bootstrap, topic, partition=3)[0][1] == b"%d" % number


def test_a_namespace_that_is_missing_is_refused(gateways: list[GatewayProcess]) -> None:
    with connected(address(gateways[0], "missing")) as client, pytest.raises(ConnectionClosedError):
        client.call("Metadata", 9, topics=[])
    reason = "the cluster cannot be opened"
    assert metric(gateways[0], "kafka_gateway_connections_closed_total", reason=reason) > 0


def test_a_cluster_has_no_leaders_until_all_gateways_serve_it(
    gateways: list[GatewayProcess], secured_pulsar: SecuredPulsar, tmp_path: Path
) -> None:
    """A gateway without the cluster, for instance an older version, would treat the cluster's clients as its own."""
    topic = unique_topic()
    bootstrap = address(gateways[0], "first")
    create_topic(bootstrap, topic, PARTITIONS)
    namespace = {"namespace": gateways[0].config["pulsar"]["namespace"]}
    other = {"listeners": [{"name": "first", "host": HOST, "port": free_port()}]}
    with running(gateway_on(secured_pulsar, tmp_path / "without", pulsar=namespace, kafka=other)):
        wait_for(lambda: leaders(bootstrap, topic) == [-1] * PARTITIONS, "the gateway knows the new one")
    wait_for(lambda: -1 not in leaders(bootstrap, topic), "leaders")


def logged_in(gateway: GatewayProcess, user: str, password: str, mechanism: str = "PLAIN") -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": address(gateway, "login"), "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password,
        }
    )  # fmt: skip


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_user_is_in_its_own_cluster(gateways: list[GatewayProcess], mechanism: str) -> None:
    topic = unique_topic()
    create_topic(address(gateways[0], "second"), topic)
    assert topic in logged_in(gateways[0], "alice", "a", mechanism).list_topics(timeout=TIMEOUT_S).topics
    assert topic not in logged_in(gateways[0], "bob", "b", mechanism).list_topics(timeout=TIMEOUT_S).topics
    for wrong in (("carol", "c"), ("alice", "b")):  # the user carol must name a cluster
        with pytest.raises(KafkaException):
            logged_in(gateways[0], *wrong, mechanism).list_topics(timeout=3)


def test_a_token_names_a_cluster_which_is_opened_everywhere(gateways: list[GatewayProcess], issuer: Issuer) -> None:
    tenant = gateways[0].config["kafka"]["clusters"][0]["namespace"].partition("/")[0]
    cluster, topic = f"{tenant}/{unique_topic('ondemand')}", unique_topic()
    carol = logged_in(gateways[0], cluster, "token:" + issuer.token("carol"))
    carol.create_topics([NewTopic(topic, num_partitions=PARTITIONS)])[topic].result(TIMEOUT_S)
    found = carol.list_topics(timeout=TIMEOUT_S)
    assert {name for name in found.topics if not name.startswith("__")} == {topic} and len(found.brokers) == 2
    for name, token in ((f"{tenant}/first-gateway", "carol"), (cluster, "alice"), (cluster, "bob")):
        with pytest.raises(KafkaException):
            logged_in(gateways[0], name, "token:" + issuer.token(token)).list_topics(timeout=3)

    def is_open() -> bool:
        return f'kafka_gateway_cluster_connections{{cluster="{cluster}"}}' in gateways[1].get("/metrics")[1]

    wait_for(is_open, "the cluster at the other gateway")
    assert metric(gateways[0], "kafka_gateway_cluster_bytes_in_total", cluster=cluster) > 0


def test_usage_is_published_in_a_topic(gateways: list[GatewayProcess], secured_pulsar: SecuredPulsar) -> None:
    """Each gateway writes it for each cluster; the newest record counts."""
    kafka, own = gateways[0].config["kafka"], gateways[0].config["pulsar"]["namespace"]
    second = kafka["clusters"][1]["namespace"]
    told: dict[str, dict[str, Any]] = {}
    client = secured_pulsar.native_client()
    try:
        reader = client.create_reader(f"persistent://kafka/{own}-gateway/~usage", pulsar.MessageId.earliest)

        def is_complete() -> bool:
            while reader.has_message_available():
                message = reader.read_next(int(TIMEOUT_S * 1000))
                told[message.partition_key()] = json.loads(message.data())
            return all(told.get(f"{second} {node_id}", {}).get("bytes_in", 0) > 0 for node_id in (0, 1))

        wait_for(is_complete, "the usage of both gateways")
    finally:
        client.close()
    row = told[f"{second} 0"]
    assert row["version"] == 1 and row["cluster"] == second and row["started_ms"] <= row["at_ms"]
    assert f"kafka/{own} 0" in told
