"""Pulsar's admin API fails, its brokers do not: every request is answered in time, and configurations are applied.

A failure is an error in a row or in the response. The gateway does not close the connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from deploy.local.standalone import PulsarStandalone
from gateway.handlers.table import APIS
from tests.integration.admin_proxy import AdminProxy
from tests.integration.native import Admin, wait_for
from tests.integration.outage_requests import alteration, requests
from tests.integration.servers import gateway_on, running
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import RawClient

TIMEOUT_S = 20.0
METADATA_TIMEOUT_MS = 500
REQUEST_TIMED_OUT, TOPIC_ALREADY_EXISTS = 7, 36


class Scene(NamedTuple):
    gateway: GatewayProcess
    proxy: AdminProxy
    admin: Admin


@pytest.fixture(scope="module")
def scene(pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    namespace, work_dir = unique_topic("outage"), tmp_path_factory.mktemp("outage")
    with AdminProxy(pulsar.admin_url).running() as proxy:
        sections: dict[str, dict[str, Any]] = {
            "pulsar": {"namespace": namespace, "admin_url": proxy.url, "operation_timeout_ms": 3_000,
                "request_timeout_ms": 2_000, "connect_timeout_ms": 1_000},
            "limits": {"metadata_timeout_ms": METADATA_TIMEOUT_MS, "metadata_max_age_ms": 100},
        }
        with running(gateway_on(pulsar, work_dir, **sections)) as gateway:
            yield Scene(gateway, proxy, Admin(pulsar, f"kafka/{namespace}"))


@pytest.fixture
def client(scene: Scene) -> Iterator[RawClient]:
    client = RawClient(scene.gateway.bootstrap, timeout_s=TIMEOUT_S)
    yield client
    client.close()
    scene.proxy.passes = lambda method, path: True


def create(client: RawClient, name: str, **configs: str) -> None:
    topic = {
        "name": name, "num_partitions": 2, "replication_factor": 1, "assignments": [],
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }  # fmt: skip

    def is_created() -> bool:
        """The gateway waits half a second for Pulsar. A busy machine may need more time; at a retry, the topic exists.
        """
        (row,) = client.call("CreateTopics", 5, topics=[topic], timeout_ms=5_000, validate_only=False)["topics"]
        assert row["error_code"] in {0, REQUEST_TIMED_OUT, TOPIC_ALREADY_EXISTS}, row
        return bool(row["error_code"] != REQUEST_TIMED_OUT)

    wait_for(is_created, "the topic is created")


@pytest.mark.parametrize("api", [api.name for api in APIS.values()])
def test_every_request_is_answered_in_time(scene: Scene, client: RawClient, api: str) -> None:
    """On the connection of the request, which can still be used."""
    known, unknown = unique_topic("known"), unique_topic("unknown")
    create(client, known)
    client.call("Metadata", 9, topics=None)
    scene.proxy.passes = lambda method, path: False
    for version, fields in requests(api, known, unknown):
        client.call(api, version, **fields)
    client.call("ApiVersions", 0)


def test_all_topics_are_as_they_were_listed(scene: Scene, client: RawClient) -> None:
    names = {unique_topic("listed") for _ in range(3)}
    for name in names:
        create(client, name)
    scene.proxy.passes = lambda method, path: False
    for _ in range(2):
        listed = client.call("Metadata", 9, topics=None)["topics"]
        assert names <= {row["name"] for row in listed if row["error_code"] == 0}


def test_one_topic_that_fails_is_one_row(scene: Scene, client: RawClient) -> None:
    """The gateway has not seen the topic before."""
    bad, good = unique_topic("bad"), unique_topic("good")
    scene.proxy.passes = lambda method, path: bad not in path
    for name in (bad, good):
        scene.admin.create_partitioned(name, 2)

    def rows() -> dict[str, int]:
        return {row["name"]: row["error_code"] for row in client.call("Metadata", 9, topics=None)["topics"]}

    # The gateway waits half a second for Pulsar, which is not enough on a busy machine.
    wait_for(lambda: rows().get(good) == 0, "the topic is listed, and looked up")
    assert rows()[bad] == 5
    scene.proxy.passes = lambda method, path: True
    wait_for(lambda: rows()[bad] == 0, "the topic can be looked up")


def test_configurations_are_applied_when_pulsar_is_back(scene: Scene, client: RawClient) -> None:
    """The client got an error, or disconnected. A gateway that was killed in between is replaced by another one."""
    topic = unique_topic("configured")
    create(client, topic)
    scene.proxy.passes = lambda method, path: not path.endswith("/retention")
    answer = client.call("IncrementalAlterConfigs", 0, **alteration(topic, retention_ms="86400000"))
    assert answer["responses"][0]["error_code"] != 0
    scene.gateway.kill()
    assert scene.admin.topic("GET", topic, "/retention") is None
    scene.proxy.passes = lambda method, path: True
    scene.gateway.start()
    scene.gateway.wait_ready()
    again = RawClient(scene.gateway.bootstrap)
    try:
        again.call("Metadata", 9, topics=[{"name": topic}])
        expected = {"retentionTimeInMinutes": 1440, "retentionSizeInMB": -1}
        wait_for(lambda: scene.admin.topic("GET", topic, "/retention") == expected, "the policy is that of the topic")
        wait_for(lambda: scene.admin.topic("GET", topic, "/messageTTL") == 86_400, "so is the other one")
        wait_for(lambda: not any("pending" in key for key in properties(scene, topic)), "nothing is left to be done")
    finally:
        again.close()


def properties(scene: Scene, topic: str) -> dict[str, str]:
    found: dict[str, str] = scene.admin.topic("GET", topic, "/partitions")["properties"]
    return found
