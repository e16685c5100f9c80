"""What is created in Pulsar at start, with the rights of a tenant's administrator, and what is refused."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
from structlog.testing import capture_logs

from gateway import namespace
from gateway.config.gateway_config import PulsarSection
from gateway.namespace import INTERCEPTOR, TIME_INTERCEPTOR, UnsupportedCluster, prepare_namespaces
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.admin.topics import PartitionedTopic

KEPT: dict[str, Any] = {
    "inactive_topic_policies": {"deleteWhileInactive": False},
    "retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
}


class FakeAdmin:
    """A Pulsar that lists no tenants: that is a superuser's right."""

    def __init__(self, *, superuser: bool = False, tenants: set[str] = frozenset()) -> None:  # type: ignore[assignment]
        self.namespaces = self.topics = self.brokers = self
        self.superuser = superuser
        self.tenants = set(tenants)
        self.known: dict[str, dict[str, Any]] = {}
        self.partitions = 0

    async def runtime_configuration(self) -> dict[str, str]:
        return {"brokerEntryMetadataInterceptors": INTERCEPTOR, "exposingBrokerEntryMetadataToClientEnabled": "true"}

    async def clusters(self) -> list[str]:
        return ["c"]

    async def create_tenant(self, tenant: str, clusters: list[str]) -> None:
        if not self.superuser:
            raise AdminError(403, "no superuser")
        if tenant in self.tenants:
            raise AdminError(409, "exists")
        self.tenants.add(tenant)

    async def policies(self, namespace: str) -> dict[str, Any]:
        if namespace not in self.known:
            raise AdminError(404, "no such namespace")
        return self.known[namespace]

    async def create(self, namespace: str, *, retention_minutes: int, more_policies: dict[str, Any] | None) -> None:
        if namespace.partition("/")[0] not in self.tenants:
            raise AdminError(404, "no such tenant")
        self.known[namespace] = {**KEPT, **(more_policies or {}), "retention": retention_minutes}

    async def partitioned(self, topic: str) -> PartitionedTopic:
        if not self.partitions:
            raise AdminError(404, topic)
        return PartitionedTopic(self.partitions, {})


async def prepare(admin: FakeAdmin, **settings: Any) -> None:
    await prepare_namespaces(cast(AdminClient, admin), PulsarSection(**settings))


async def test_a_superuser_makes_all() -> None:
    admin = FakeAdmin(superuser=True)
    await prepare(admin)
    assert admin.tenants == {"kafka"} and set(admin.known) == {"kafka/default", "kafka/default-gateway"}
    assert admin.known["kafka/default-gateway"]["retention"] == -1


async def test_a_tenant_administrator_makes_its_namespaces() -> None:
    admin = FakeAdmin(tenants={"kafka"})
    await prepare(admin)
    assert set(admin.known) == {"kafka/default", "kafka/default-gateway"}


async def test_state_is_kept_where_and_as_often_as_records() -> None:
    admin = FakeAdmin(tenants={"kafka"})
    policies = {"replication_clusters": ["eu", "us"], "persistence": {"bookkeeperWriteQuorum": 2}}
    admin.known["kafka/default"] = {**KEPT, **policies}
    await prepare(admin)
    assert policies.items() <= admin.known["kafka/default-gateway"].items()


class StaleAdmin(FakeAdmin):
    """A Pulsar in which other gateways create the same names: each first request does not know it yet."""

    def __init__(self) -> None:
        super().__init__(superuser=True)
        self.stale = {"tenant": 500, "create": 404, "policies": 404}

    def _fail_once(self, request: str) -> None:
        if status := self.stale.pop(request, None):
            raise AdminError(status, "stale")

    async def create_tenant(self, tenant: str, clusters: list[str]) -> None:
        self.tenants.add(tenant)
        self._fail_once("tenant")
        await super().create_tenant(tenant, clusters)

    async def create(self, namespace: str, *, retention_minutes: int, more_policies: dict[str, Any] | None) -> None:
        self._fail_once("create")
        await super().create(namespace, retention_minutes=retention_minutes, more_policies=more_policies)

    async def policies(self, namespace: str) -> dict[str, Any]:
        if namespace in self.known:
            self._fail_once("policies")
        return await super().policies(namespace)


async def test_gateways_that_start_together_create_the_same_names() -> None:
    admin = StaleAdmin()
    await prepare(admin)
    assert not admin.stale and set(admin.known) == {"kafka/default", "kafka/default-gateway"}


async def test_a_missing_tenant_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespace, "CREATED_BESIDE_S", 0.1)
    with pytest.raises(UnsupportedCluster, match="tenant administrator"):
        await prepare(FakeAdmin())


async def test_offsets_that_are_elsewhere_are_not_hidden() -> None:
    admin = FakeAdmin(tenants={"kafka"})
    admin.known["kafka/default"] = KEPT
    admin.partitions = 4
    with pytest.raises(UnsupportedCluster, match='system_namespace = "default"'):
        await prepare(admin)
    await prepare(admin, system_namespace="default")
    assert set(admin.known) == {"kafka/default"}


@pytest.mark.parametrize(("minutes", "warned"), [(7 * 24 * 60, False), (60, True), (-1, True)])
async def test_another_retention_than_clients_see_is_warned_of(minutes: int, warned: bool) -> None:
    admin = FakeAdmin(tenants={"kafka"})
    retention = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": -1}
    admin.known["kafka/default"] = {**KEPT, "retention_policies": retention, "message_ttl_in_seconds": 1}
    with capture_logs() as logged:
        await prepare(admin)
    remedies = [entry["remedy"] for entry in logged if "retention.ms" in entry["event"]]
    assert remedies == ([f"set retention_minutes = {minutes} in [pulsar]"] if warned else [])


@pytest.mark.parametrize("clusters", [["eu"], ["eu", "us"]])
@pytest.mark.parametrize("interceptors", [INTERCEPTOR, f"{INTERCEPTOR},{TIME_INTERCEPTOR}", None])
async def test_publish_times_of_copies_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, clusters: list[str], interceptors: str | None
) -> None:
    admin = FakeAdmin(tenants={"kafka"})
    if interceptors is None:
        monkeypatch.setattr(admin, "runtime_configuration", AsyncMock(side_effect=AdminError(403, "no superuser")))
    else:
        settings = {**await admin.runtime_configuration(), "brokerEntryMetadataInterceptors": interceptors}
        monkeypatch.setattr(admin, "runtime_configuration", AsyncMock(return_value=settings))
    admin.known["kafka/default"] = {**KEPT, "replication_clusters": clusters}
    with capture_logs() as logged:
        await prepare(admin)
    warned = [entry for entry in logged if "by time" in entry["event"]]
    assert len(warned) == (len(clusters) > 1 and interceptors == INTERCEPTOR)


@pytest.mark.parametrize(
    ("override", "broker", "warned"),
    [
        (None, "true", True),
        (None, "false", False),
        ({"allowAutoTopicCreation": False}, "true", False),
        ({"allowAutoTopicCreation": True, "topicType": "partitioned"}, "false", True),
    ],
)
async def test_auto_creation_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, override: dict[str, Any] | None, broker: str, warned: bool
) -> None:
    admin = FakeAdmin(tenants={"kafka"})
    settings = {**await admin.runtime_configuration(), "allowAutoTopicCreation": broker}
    monkeypatch.setattr(admin, "runtime_configuration", AsyncMock(return_value=settings))
    admin.known["kafka/default"] = {**KEPT, "autoTopicCreationOverride": override}
    with capture_logs() as logged:
        await prepare(admin)
    remedies = [entry["remedy"] for entry in logged if "bring partitions back" in entry["event"]]
    expected = ["pulsar-admin namespaces set-auto-topic-creation kafka/default --disable"] if warned else []
    assert remedies == expected
