"""Requests that change one topic at the same time, each at another gateway. Pulsar does not keep them apart."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from deploy.local.standalone import PulsarStandalone
from tests.conformance.records import Record, batch
from tests.integration.admin_proxy import AdminProxy
from tests.integration.confluent import TIMEOUT_S, read_all_values
from tests.integration.entries.test_compaction import compact
from tests.integration.native import Admin, wait_for
from tests.integration.servers import await_fleet, gateway_on, running
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import RawClient, connected

NAMESPACE = "changes"
ROUNDS, ALTERED = 20, 4
SPREAD = 16
"""Partitions, of which each gateway leads some."""
MOST_WRITTEN = 5_000
SHOWN_WITHIN_S = 15.0
"""Without news, a gateway hides a topic that another one is deleting for twice as long."""
NONE, UNKNOWN_TOPIC, TOPIC_EXISTS, INVALID_PARTITIONS, INVALID_CONFIG = 0, 3, 36, 37, 40
LIMIT: dict[str, Any] = {"timeout_ms": 30_000}
THROTTLED = "leader.replication.throttled.replicas"
NO_CREATION = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
TOPIC, GROUP, SET, APPEND = 2, 32, 0, 2


@pytest.fixture(scope="module")
def proxy(pulsar: PulsarStandalone) -> Iterator[AdminProxy]:
    """The admin API of the first gateway."""
    with AdminProxy(pulsar.admin_url).running() as started:
        yield started


@pytest.fixture(scope="module")
def gateways(
    pulsar: PulsarStandalone, proxy: AdminProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[GatewayProcess]]:
    with ExitStack() as stack:
        started = []
        for admin_url in (proxy.url, pulsar.admin_url):
            section = {"namespace": NAMESPACE, "admin_url": admin_url}
            gateway = gateway_on(pulsar, tmp_path_factory.mktemp("changes"), pulsar=section)
            started.append(stack.enter_context(running(gateway)))
        await_fleet(started)
        yield started


@pytest.fixture(scope="module")
def clients(gateways: list[GatewayProcess]) -> Iterator[list[RawClient]]:
    """One at each gateway."""
    with ExitStack() as stack:
        yield [stack.enter_context(connected(gateway.bootstrap)) for gateway in gateways]


@pytest.fixture(scope="module")
def admin(pulsar: PulsarStandalone) -> Admin:
    return Admin(pulsar, f"kafka/{NAMESPACE}")


def send_create(client: RawClient, topic: str, partitions: int = 2) -> int:
    wanted = {"name": topic, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
    return client.send("CreateTopics", 5, topics=[wanted], validate_only=False, **LIMIT)


def created(client: RawClient, request: int) -> int:
    return int(client.receive("CreateTopics", 5, request)["topics"][0]["error_code"])


def create(client: RawClient, topic: str, partitions: int = 2) -> int:
    return created(client, send_create(client, topic, partitions))


def send_add(client: RawClient, topic: str, count: int) -> int:
    wanted = {"name": topic, "count": count, "assignments": None}
    return client.send("CreatePartitions", 1, topics=[wanted], validate_only=False, **LIMIT)


def added(client: RawClient, request: int) -> int:
    return int(client.receive("CreatePartitions", 1, request)["results"][0]["error_code"])


def send_delete(client: RawClient, topic: str) -> int:
    return client.send("DeleteTopics", 5, topic_names=[topic], **LIMIT)


def deleted(client: RawClient, request: int) -> int:
    return int(client.receive("DeleteTopics", 5, request)["responses"][0]["error_code"])


def send_alter(
    client: RawClient, resource_name: str, name: str, operation: int, value: str, resource_type: int = TOPIC
) -> int:
    config = {"name": name, "config_operation": operation, "value": value}
    resource = {"resource_type": resource_type, "resource_name": resource_name, "configs": [config]}
    return client.send("IncrementalAlterConfigs", 1, resources=[resource], validate_only=False)


def altered(client: RawClient, request: int) -> int:
    return int(client.receive("IncrementalAlterConfigs", 1, request)["responses"][0]["error_code"])


def partitions_of(client: RawClient, topic: str) -> int:
    """As the gateway has it; DescribeConfigs and CreatePartitions look the topic up anew."""
    wanted = {"name": topic, "count": 100_000, "assignments": None}
    client.call("CreatePartitions", 1, topics=[wanted], validate_only=True, **LIMIT)
    [found] = client.call("Metadata", 9, topics=[{"name": topic}])["topics"]
    return len(found["partitions"])


def configs_of(client: RawClient, name: str, resource_type: int = TOPIC) -> dict[str, str]:
    resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": None}
    options = {"include_synonyms": False, "include_documentation": False}
    [found] = client.call("DescribeConfigs", 4, resources=[resource], **options)["results"]
    return {each["name"]: each["value"] for each in found["configs"]}


def test_partitions_are_added(clients: list[RawClient]) -> None:
    """An acknowledged number of partitions never shrinks, and no two requests are acknowledged for the same number."""
    for number in range(ROUNDS):
        topic, (one, other) = unique_topic("added"), clients if number % 2 else clients[::-1]
        assert create(one, topic) == NONE
        fewer, more = send_add(one, topic, 5), send_add(other, topic, 8)
        assert (added(one, fewer), added(other, more)) in {(NONE, NONE), (INVALID_PARTITIONS, NONE)}
        assert [partitions_of(client, topic) for client in clients] == [8, 8]


def test_the_same_number_is_asked_for_twice(clients: list[RawClient]) -> None:
    for _ in range(ROUNDS):
        topic, (one, other) = unique_topic("added"), clients
        assert create(one, topic) == NONE
        requests = [send_add(client, topic, 5) for client in clients]
        answers = [added(client, request) for client, request in zip(clients, requests, strict=True)]
        assert sorted(answers) == [NONE, INVALID_PARTITIONS]
        assert partitions_of(other, topic) == 5


def test_a_name_is_created_twice(clients: list[RawClient]) -> None:
    """With another number of partitions each: one creates it, and has what it asked for."""
    for _ in range(ROUNDS):
        topic = unique_topic("created")
        requests = [send_create(client, topic, count) for client, count in zip(clients, (3, 6), strict=True)]
        answers = [created(client, request) for client, request in zip(clients, requests, strict=True)]
        assert sorted(answers) == [NONE, TOPIC_EXISTS]
        assert [partitions_of(client, topic) for client in clients] == [(3, 6)[answers.index(NONE)]] * 2


def test_a_topic_is_deleted_while_partitions_are_added(clients: list[RawClient]) -> None:
    """Nothing is left, and its name can be used again."""
    for number in range(ROUNDS):
        topic, (one, other) = unique_topic("deleted"), clients if number % 2 else clients[::-1]
        assert create(one, topic) == NONE
        adding, deleting = send_add(one, topic, 6), send_delete(other, topic)
        assert added(one, adding) in {NONE, UNKNOWN_TOPIC}
        assert deleted(other, deleting) == NONE
        assert create(other, topic) == NONE
        assert partitions_of(one, topic) == 2


def test_a_topic_is_deleted_twice_and_made_again(clients: list[RawClient]) -> None:
    """The second deletion does not hit the new topic."""
    for _ in range(ROUNDS):
        topic, (one, other) = unique_topic("deleted"), clients
        assert create(one, topic) == NONE
        first, second = send_delete(one, topic), send_delete(other, topic)
        answer = deleted(one, first)
        again = create(one, topic)
        answers = [answer, deleted(other, second)]
        assert sorted(answers) in ([NONE, NONE], [NONE, UNKNOWN_TOPIC])
        if again == NONE and UNKNOWN_TOPIC in answers:
            assert [partitions_of(client, topic) for client in clients] == [2, 2]


def test_configurations_are_altered(clients: list[RawClient]) -> None:
    """Different ones survive, and so do different additions to one list."""
    for _ in range(ROUNDS):
        topic, (one, other) = unique_topic("altered"), clients
        assert create(one, topic) == NONE
        requests = [
            send_alter(one, topic, "retention.ms", SET, "70000000"),
            send_alter(other, topic, "max.message.bytes", SET, "500000"),
        ]
        assert [altered(client, request) for client, request in zip(clients, requests, strict=True)] == [NONE, NONE]
        for client in clients:
            found = configs_of(client, topic)
            assert (found["retention.ms"], found["max.message.bytes"]) == ("70000000", "500000")
        requests = [send_alter(client, topic, THROTTLED, APPEND, f"{at}:0") for at, client in enumerate(clients)]
        assert [altered(client, request) for client, request in zip(clients, requests, strict=True)] == [NONE, NONE]
        for client in clients:
            assert sorted(configs_of(client, topic)[THROTTLED].split(",")) == ["0:0", "1:0"]


def test_configurations_of_a_group_are_altered(clients: list[RawClient]) -> None:
    group = unique_topic("group")
    for number in range(ROUNDS):
        wanted = {SESSION: str(46_000 + number), HEARTBEAT: str(6_000 + number)}
        requests = [
            send_alter(client, group, name, SET, value, GROUP)
            for client, (name, value) in zip(clients, wanted.items(), strict=True)
        ]
        assert [altered(client, request) for client, request in zip(clients, requests, strict=True)] == [NONE, NONE]
        for client in clients:
            found = configs_of(client, group, GROUP)
            assert {name: found[name] for name in wanted} == wanted


def test_a_deletion_fails(clients: list[RawClient], proxy: AdminProxy) -> None:
    """The topic is still there, at the other gateway, too."""
    topic, (one, other) = unique_topic("kept"), clients
    assert create(one, topic) == NONE
    proxy.passes = lambda method, path: method != "DELETE" or topic not in path
    try:
        assert deleted(one, send_delete(one, topic)) != NONE
    finally:
        proxy.passes = lambda method, path: True

    def is_found() -> bool:
        [found] = other.call("Metadata", 9, topics=[{"name": topic}], **NO_CREATION)["topics"]
        return len(found["partitions"]) == 2

    wait_for(is_found, "the other gateway has the topic", SHOWN_WITHIN_S)
    assert deleted(other, send_delete(other, topic)) == NONE


def led_by(client: RawClient, topic: str) -> int:
    """A partition that the client's gateway leads, and whose log it has opened now."""
    found: list[int] = wait_for(lambda: all_led_by(client, topic), "it leads some partitions")
    return found[0]


def all_led_by(client: RawClient, topic: str) -> list[int]:
    partitions = [{"partition_index": number, "timestamp": -1} for number in range(SPREAD)]
    asked = [{"name": topic, "partitions": partitions}]
    [found] = client.call("ListOffsets", 6, replica_id=-1, isolation_level=0, topics=asked)["topics"]
    return [row["partition_index"] for row in found["partitions"] if row["error_code"] == NONE]


def wrote(client: RawClient, topic: str, partition: int, key: bytes) -> bool:
    """Whether a record with this key was acknowledged."""
    row = {"index": partition, "records": batch([Record(key, key)])}
    asked = [{"name": topic, "partition_data": [row]}]
    [answer] = client.call("Produce", 7, acks=-1, topic_data=asked, **LIMIT)["responses"]
    return bool(answer["partition_responses"][0]["error_code"] == NONE)


def write_until(over: threading.Event, bootstrap: str, topic: str, partition: int) -> set[bytes]:
    """Write one record after the other, until one is acknowledged that was sent later. Returns the acknowledged keys.
    """
    acknowledged = set()
    with connected(bootstrap) as client:
        for number in range(MOST_WRITTEN):
            is_last = over.is_set()
            if wrote(client, topic, partition, b"%d" % number):
                acknowledged.add(b"%d" % number)
                if is_last:
                    return acknowledged
            else:
                time.sleep(0.01)
    raise AssertionError("no record was acknowledged any more")


def keys_in(gateway: GatewayProcess, topic: str, partition: int) -> set[bytes]:
    found = [value for _, value in read_all_values(gateway.bootstrap, topic, partition)]
    assert len(found) == len({*found}), "written twice"
    return {*found}


@pytest.mark.parametrize("writer", [0, 1], ids=["same gateway", "other gateway"])
def test_the_first_record_comes_while_an_empty_topic_becomes_compacted(
    gateways: list[GatewayProcess], clients: list[RawClient], proxy: AdminProxy, admin: Admin, writer: int
) -> None:
    """The topic was found to be empty, and nothing is altered yet: a record in the format of before could never be
    compacted by Pulsar."""
    topic = unique_topic("empty")
    assert create(clients[0], topic, SPREAD) == NONE
    asked, released = threading.Event(), threading.Event()

    def passes(method: str, path: str) -> bool:
        if method == "PUT" and f"{topic}/properties" in path:
            asked.set()
            released.wait(TIMEOUT_S)
        return True

    with connected(gateways[writer].bootstrap) as client:
        partition = led_by(client, topic)
        proxy.passes = passes
        try:
            request = send_alter(clients[0], topic, "cleanup.policy", SET, "compact")
            assert asked.wait(TIMEOUT_S)
            written = {b"first"} if wrote(client, topic, partition, b"first") else set()
        finally:
            released.set()
            proxy.passes = lambda method, path: True
        assert altered(clients[0], request) == NONE
        wait_for(lambda: wrote(client, topic, partition, b"second"), "a record is written")
    written.add(b"second")
    assert keys_in(gateways[0], topic, partition) >= written
    compact(admin, topic, partition)
    assert keys_in(gateways[0], topic, partition) >= written


def test_both_gateways_write_while_an_empty_topic_becomes_compacted(
    gateways: list[GatewayProcess], clients: list[RawClient], admin: Admin
) -> None:
    """Unless a record was first, Pulsar can compact the topic. Nothing that was acknowledged is lost."""
    for number in range(ALTERED):
        topic, one = unique_topic("empty"), clients[number % 2]
        assert create(one, topic, SPREAD) == NONE
        led, over = [led_by(client, topic) for client in clients], threading.Event()
        with ThreadPoolExecutor(len(led)) as pool:
            writing = [
                pool.submit(write_until, over, gateway.bootstrap, topic, partition)
                for gateway, partition in zip(gateways, led, strict=True)
            ]
            try:
                answer = altered(one, send_alter(one, topic, "cleanup.policy", SET, "compact"))
            finally:
                over.set()
            written = [each.result() for each in writing]
        assert answer in {NONE, INVALID_CONFIG}
        for partition, keys in zip(led, written, strict=True):
            assert keys_in(gateways[0], topic, partition) >= keys
            if answer == NONE:
                compact(admin, topic, partition)
                assert keys_in(gateways[1], topic, partition) >= keys
