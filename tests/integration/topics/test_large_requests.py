"""Large requests of different clients do not wait for each other, and cost Pulsar few look-ups."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local.standalone import PulsarStandalone
from gateway.topics.requested_topics import MIN_LOOKUPS
from tests.integration.admin_proxy import AdminProxy
from tests.integration.native import Admin, wait_for
from tests.integration.servers import gateway_on, metric, running
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import RawClient

UNKNOWN_TOPIC_OR_PARTITION, GROUP_MAX_SIZE_REACHED = 3, 81
MIB = 1024 * 1024
JOIN: dict[str, Any] = {
    "group_id": "waits", "session_timeout_ms": 30_000, "rebalance_timeout_ms": 600_000, "member_id": "",
    "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": bytes(3 * MIB)}],
}  # fmt: skip
ABSENT = [f"absent-{number}" for number in range(5_000)]


class Requests:
    """The requests that the admin API gets."""

    def __init__(self) -> None:
        self.look_ups: list[str] = []
        self.let_go = threading.Event()
        """Until it is set, nobody learns whether there is the topic `held`."""

    def passes(self, method: str, path: str) -> bool:
        if "/absent-" in path:
            self.look_ups.append(path)
        if "/held" in path:
            self.let_go.wait(60.0)
        return True


@pytest.fixture
def requests() -> Requests:
    return Requests()


@pytest.fixture
def namespace() -> str:
    return unique_topic("large")


@pytest.fixture
def gateway(pulsar: PulsarStandalone, tmp_path: Path, namespace: str, requests: Requests) -> Iterator[GatewayProcess]:
    with AdminProxy(pulsar.admin_url).running() as proxy:
        proxy.passes = requests.passes
        sections: dict[str, dict[str, Any]] = {
            "pulsar": {"namespace": namespace, "admin_url": proxy.url},
            "groups": {"initial_rebalance_delay_ms": 600_000, "max_metadata_bytes": 16 * MIB},
            "limits": {"requests_budget_bytes": 8 * MIB, "metadata_timeout_ms": 60_000},
        }
        with running(gateway_on(pulsar, tmp_path, **sections)) as gateway:
            yield gateway
        requests.let_go.set()


def committing(names: list[str], partitions: int = 1, metadata: str = "") -> dict[str, Any]:
    rows = [
        {
            "partition_index": index, "committed_offset": 1, "committed_leader_epoch": -1,
            "committed_metadata": metadata,
        }
        for index in range(partitions)
    ]  # fmt: skip
    return {
        "group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None,
        "topics": [{"name": name, "partitions": rows} for name in names],
    }  # fmt: skip


def commit(client: RawClient, names: list[str]) -> dict[str, int]:
    """The error codes by topic."""
    answer = client.call("OffsetCommit", 8, **committing(names))
    return {topic["name"]: topic["partitions"][0]["error_code"] for topic in answer["topics"]}


def held(gateway: GatewayProcess, source: str) -> RawClient:
    """A client whose request of 3 MiB waits for Pulsar."""
    client = RawClient(gateway.bootstrap, source=source)
    client.send("OffsetCommit", 8, **committing(["held"], partitions=100, metadata="x" * 32_000))
    return client


def join(gateway: GatewayProcess) -> RawClient:
    """A client whose large request waits for other members of its group."""
    client = RawClient(gateway.bootstrap)
    client.send("JoinGroup", 3, **JOIN)
    return client


def await_coordinator(client: RawClient) -> None:
    wait_for(
        lambda: client.call("OffsetFetch", 7, group_id="waits", topics=None, require_stable=False)["error_code"] == 0,
        "the coordinator is ready",
    )


def waiting_bytes(gateway: GatewayProcess) -> float:
    return metric(gateway, "kafka_gateway_request_bytes")


def test_a_large_request_is_answered_although_those_of_another_client_wait(
    gateway: GatewayProcess, requests: Requests
) -> None:
    """Those that wait take all memory of decoded requests that one client may use."""
    other = RawClient(gateway.bootstrap, source="127.0.0.3", timeout_s=60.0)
    await_coordinator(other)
    waiting = [held(gateway, "127.0.0.2") for _ in range(2)]
    try:
        wait_for(lambda: waiting_bytes(gateway) > 6 * MIB, "the requests have arrived")
        assert set(commit(other, ABSENT).values()) == {UNKNOWN_TOPIC_OR_PARTITION}
        assert waiting_bytes(gateway) > 6 * MIB, "the others still wait"
        assert len(requests.look_ups) <= 2 * MIN_LOOKUPS, "a listing tells which topics there are"
    finally:
        for client in (*waiting, other):
            client.close()


def test_members_that_wait_for_others_hold_no_memory_of_requests(gateway: GatewayProcess) -> None:
    """Otherwise a group could not get together: the requests of its last members, and all others, would not be read."""
    other = RawClient(gateway.bootstrap, timeout_s=60.0)
    await_coordinator(other)
    waiting = [join(gateway) for _ in range(5)]
    try:
        wait_for(lambda: len(members(other)) == 5, "all have arrived")
        assert waiting_bytes(gateway) < MIB
        assert other.call("JoinGroup", 3, **JOIN)["error_code"] == GROUP_MAX_SIZE_REACHED
    finally:
        for client in (*waiting, other):
            client.close()


def members(client: RawClient) -> list[Any]:
    answer = client.call("DescribeGroups", 5, groups=["waits"], include_authorized_operations=False)
    found: list[Any] = answer["groups"][0]["members"]
    return found


def test_a_topic_that_was_created_before_a_large_request_is_found(
    gateway: GatewayProcess, pulsar: PulsarStandalone, namespace: str
) -> None:
    admin = Admin(pulsar, f"kafka/{namespace}")
    client = RawClient(gateway.bootstrap, timeout_s=60.0)
    try:
        for number in range(3):
            name = f"new-{number}"
            admin.call("PUT", f"persistent/kafka/{namespace}/{name}/partitions", 1)
            assert commit(client, [*ABSENT, name]) == dict.fromkeys(ABSENT, UNKNOWN_TOPIC_OR_PARTITION) | {name: 0}
    finally:
        client.close()
