"""Requests that change one topic at the same time, each at another gateway. Pulsar does not keep them apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from deploy.local.standalone import PulsarStandalone
from tests.integration.admin_proxy import AdminProxy
from tests.integration.native import wait_for
from tests.integration.servers import await_fleet, gateway_on, running
from tests.support.names import unique_topic
from tests.support.raw_client import RawClient, connected

ROUNDS = 20
SHOWN_WITHIN_S = 15.0
"""Without news, a gateway hides a topic that another one is deleting for twice as long."""
NONE, UNKNOWN_TOPIC, TOPIC_EXISTS, INVALID_PARTITIONS = 0, 3, 36, 37
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
def clients(
    pulsar: PulsarStandalone, proxy: AdminProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[RawClient]]:
    """One at each of two gateways."""
    namespace = unique_topic("changes")
    with ExitStack() as stack:
        gateways = []
        for admin_url in (proxy.url, pulsar.admin_url):
            section = {"namespace": namespace, "admin_url": admin_url}
            gateway = gateway_on(pulsar, tmp_path_factory.mktemp("changes"), pulsar=section)
            gateways.append(stack.enter_context(running(gateway)))
        await_fleet(gateways)
        yield [stack.enter_context(connected(gateway.bootstrap)) for gateway in gateways]


def send_create(client: RawClient, topic: str, partitions: int = 2) -> int:
    wanted = {"name": topic, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
    return client.send("CreateTopics", 5, topics=[wanted], validate_only=False, **LIMIT)


def created(client: RawClient, request: int) -> int:
    return int(client.receive("CreateTopics", 5, request)["topics"][0]["error_code"])


def create(client: RawClient, topic: str) -> int:
    return created(client, send_create(client, topic))


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
