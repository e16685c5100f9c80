"""Rights that follow from Pulsar's grants.

tests/integration/security/test_pulsar_authorization.py compares them with Pulsar.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from gateway.pulsar.admin.http import AdminError
from gateway.security import pulsar_authorizer
from gateway.security.acls import Requester
from gateway.security.pulsar_authorizer import PROVIDER, InvalidAuthorizer, PulsarAuthorizer
from gateway.security.pulsar_grants import grants_of
from protocol.kafka.acl import CLUSTER_NAME, AclOperation, ResourceType

NAMESPACE = "team/orders"
POLICIES = {
    "auth_policies": {
        "namespace_auth": {"reader": ["consume"], "svc-*": ["produce"]},
        "destination_auth": {f"persistent://{NAMESPACE}/a~partition-1": {"writer": ["produce", "functions"]}},
        "subscription_auth_roles": {"kept": ["other"], "free": []},
    }
}
ANN, READER = Requester("User:ann", "10.0.0.1"), Requester("User:reader", "10.0.0.1")
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, WRITE, DESCRIBE, CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE


@pytest.mark.parametrize(
    ("role", "operation", "resource_type", "name", "allowed"),
    [
        ("reader", READ, TOPIC, "t", True), ("reader", DESCRIBE, TOPIC, "t", True),
        ("reader", WRITE, TOPIC, "t", False),
        ("reader", READ, TOPIC, "__consumer_offsets", False), ("boss", READ, TOPIC, "__consumer_offsets", True),
        ("reader", AclOperation.DESCRIBE_CONFIGS, TOPIC, "t", False), ("reader", READ, GROUP, "kept", False),
        ("reader", READ, GROUP, "free", True), ("reader", AclOperation.DELETE, GROUP, "free", False),
        ("reader", AclOperation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME, False),
        ("writer", WRITE, TOPIC, "a-partition-1", True), ("writer", WRITE, TOPIC, "t", False),
        ("writer", AclOperation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME, True), ("writer", READ, GROUP, "free", False),
        ("writer", WRITE, ResourceType.TRANSACTIONAL_ID, "x", True), ("svc-1", WRITE, TOPIC, "t", False),
        ("boss", AclOperation.ALTER, CLUSTER, CLUSTER_NAME, True), ("nobody", DESCRIBE, TOPIC, "t", False),
    ],
)  # fmt: skip
def test_rights(role: str, operation: AclOperation, resource_type: ResourceType, name: str, allowed: bool) -> None:
    assert grants_of(NAMESPACE, POLICIES, ["boss"]).allows(role, operation, resource_type, name) is allowed


def test_wildcards_count_where_the_brokers_have_them_on() -> None:
    grants = grants_of(NAMESPACE, POLICIES, [], wildcards=True)
    assert grants.allows("svc-1", WRITE, TOPIC, "t") and not grants.allows("sv", WRITE, TOPIC, "t")


def test_a_topics_own_wildcards_allow_to_describe_it() -> None:
    """Brokers do not compare them with requests for a partition, which are those that write and read."""
    granted = {"destination_auth": {f"persistent://{NAMESPACE}/t": {"svc-*": ["produce", "consume"]}}}
    grants = grants_of(NAMESPACE, {"auth_policies": granted}, [], wildcards=True)
    assert grants.allows("svc-1", DESCRIBE, TOPIC, "t") and not grants.allows("svc-1", DESCRIBE, TOPIC, "u")
    assert not grants.allows("svc-1", WRITE, TOPIC, "t") and not grants.allows("svc-1", READ, TOPIC, "t")
    assert not grants.allows("svc-1", READ, GROUP, "free")
    assert not grants.allows("svc-1", AclOperation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME)


def test_in_prefix_mode_a_groups_name_begins_with_the_role() -> None:
    grants = grants_of(NAMESPACE, POLICIES | {"subscription_auth_mode": "Prefix"}, [])
    assert grants.allows("reader", READ, GROUP, "reader-1") and not grants.allows("reader", READ, GROUP, "free")


@pytest.mark.parametrize(
    ("group", "subscription"), [("orders daily", "orders~20daily"), ("__compaction", "~5F_compaction"), ("", "~")]
)
def test_the_roles_of_a_group_are_those_of_its_subscription(group: str, subscription: str) -> None:
    """Pulsar checks the name of the subscription that mirrors the group."""
    granted = POLICIES["auth_policies"] | {"subscription_auth_roles": {subscription: ["other"], "free": []}}
    assert not grants_of(NAMESPACE, {"auth_policies": granted}, []).allows("reader", READ, GROUP, group)
    granted = granted | {"subscription_auth_roles": {subscription: ["reader"], group: ["other"]}}
    assert grants_of(NAMESPACE, {"auth_policies": granted}, []).allows("reader", READ, GROUP, group)


def test_in_prefix_mode_the_subscription_begins_with_the_role() -> None:
    """As in Pulsar, a role whose name no subscription can begin with may use no group."""
    policies = {"auth_policies": {"namespace_auth": {"our reader": ["consume"]}}, "subscription_auth_mode": "Prefix"}
    assert not grants_of(NAMESPACE, policies, []).allows("our reader", READ, GROUP, "our reader")


class Scene:
    """An authorizer with a Pulsar and a clock of the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
        self.now_s = 100.0
        self.namespaces = SimpleNamespace(
            policies=AsyncMock(return_value=POLICIES), tenant=AsyncMock(return_value={"adminRoles": ["boss"]})
        )
        brokers = SimpleNamespace(runtime_configuration=AsyncMock(return_value=settings))
        admin = cast(Any, SimpleNamespace(namespaces=self.namespaces, brokers=brokers))
        self.authorizer = PulsarAuthorizer(admin, "team", NAMESPACE, ["User:root"])
        monkeypatch.setattr(pulsar_authorizer, "lease_now_ms", lambda: int(1000 * self.now_s))

    def may_read(self, who: Requester) -> bool:
        return self.authorizer.allows(who, READ, TOPIC, "t")


async def test_grants_that_cannot_be_read_for_long_count_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    assert not scene.may_read(READER)
    await scene.authorizer.refresh()
    assert scene.may_read(READER) and scene.may_read(Requester("User:boss", "h"))
    known = scene.authorizer.version()
    scene.now_s += pulsar_authorizer.STALE_S + 1
    assert not scene.may_read(READER) and scene.authorizer.version() != known
    assert scene.may_read(Requester("User:root", "h"))
    await scene.authorizer.refresh()
    assert scene.may_read(READER) and scene.authorizer.version() == known


async def test_a_changed_grant_is_a_new_version(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    await scene.authorizer.refresh()
    known = scene.authorizer.version()
    await scene.authorizer.refresh()
    assert scene.authorizer.version() == known
    scene.namespaces.policies.return_value = {"auth_policies": None}
    await scene.authorizer.refresh()
    assert scene.authorizer.version() > known and not scene.may_read(READER)


async def test_clients_without_login_have_no_role(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.namespaces.policies.return_value = {"auth_policies": {"namespace_auth": {"ANONYMOUS": ["consume"]}}}
    await scene.authorizer.refresh()
    assert not scene.may_read(Requester("User:ANONYMOUS", "h")) and not scene.may_read(Requester("Group:reader", "h"))


async def test_another_provider_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, authorizationEnabled="true", authorizationProvider="com.example.Own")
    with pytest.raises(InvalidAuthorizer, match=PROVIDER):
        await scene.authorizer.start()


async def test_a_tenants_administrator_goes_on_without_the_others_names(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.namespaces.tenant.side_effect = AdminError(403, "no superuser")
    async with asyncio.timeout(5):
        await scene.authorizer.start()
    assert scene.may_read(READER) and not scene.may_read(Requester("User:boss", "h"))
    await scene.authorizer.close()
