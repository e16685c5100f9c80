"""The authorizer `pulsar` with a Pulsar that has authorization on: both refuse the same operations to a role."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient as KafkaAdmin
from confluent_kafka.cimpl import NewTopic

from deploy.local.process import free_port
from deploy.local.secured import GATEWAY
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry
from gateway.security.acls import Requester
from gateway.security.pulsar_authorizer import PulsarAuthorizer
from protocol.kafka.acl import AclOperation, ResourceType
from tests.integration.native import wait_for
from tests.integration.secured_pulsar import ROOT, SecuredPulsar
from tests.integration.servers import gateway_on, running
from tests.integration.tenants.test_tenant_admin import tenant
from tests.support.gateway_process import HOST

__all__ = ["tenant"]
TOPICS = ("open", "closed")
ROLES = ("writer", "reader", "both", "boss", "nobody", "prefix-one", "writer-of-one", "root")
TIMEOUT_S = 70.0


class Nobody:
    """A listener that ignores all events."""

    def on_entry(self, entry: Entry) -> None: ...

    def on_reader_closed(self, error: PulsarError) -> None: ...

    def on_receipt(self, sequence_id: int, position: Position) -> None: ...

    def on_send_error(self, sequence_id: int, error: PulsarError) -> None: ...

    def on_producer_closed(self, error: PulsarError) -> None: ...


async def is_allowed(attempt: Awaitable[Any]) -> bool:
    """Whether the broker permits it. Opened producers and readers are closed with their client."""
    try:
        await attempt
    except PulsarError as error:
        assert not error.retriable, error
        return False
    return True


def grant(pulsar: SecuredPulsar, tenant: str) -> None:
    """Grants on a namespace, on topics, and on a subscription."""
    namespace, root = f"{tenant}/orders", pulsar.root
    pulsar.create_tenant(tenant, "boss")
    root.call("PUT", f"namespaces/{namespace}", {})
    for name in TOPICS:
        root.call("PUT", f"persistent/{namespace}/{name}")
    root.call("POST", f"namespaces/{namespace}/permissions/writer", ["produce"])
    root.call("POST", f"namespaces/{namespace}/permissions/reader", ["consume"])
    for role, actions in (
        ("both", ["produce", "consume"]),
        ("writer-of-one", ["produce"]),
        ("prefix-one", ["consume"]),
    ):
        root.call("POST", f"persistent/{namespace}/open/permissions/{role}", actions)
    root.call("POST", f"namespaces/{namespace}/permissions/subscription/kept", ["reader"])


@pytest.mark.parametrize("prefix_mode", [False, True])
async def test_rights_are_those_of_pulsar(secured_pulsar: SecuredPulsar, tenant: str, prefix_mode: bool) -> None:
    grant(secured_pulsar, tenant)
    if prefix_mode:
        secured_pulsar.root.call("POST", f"namespaces/{tenant}/orders/subscriptionAuthMode", "Prefix")
    admin = AdminClient(secured_pulsar.client_settings(ROOT))
    authorizer = PulsarAuthorizer(admin, tenant, f"{tenant}/orders", ["User:root"])
    try:
        await authorizer.refresh()
        for role in ROLES:
            await compare(secured_pulsar, authorizer, tenant, role)
    finally:
        await authorizer.close()
        await admin.close()


async def compare(pulsar: SecuredPulsar, authorizer: PulsarAuthorizer, tenant: str, role: str) -> None:
    who = Requester(f"User:{role}", HOST)
    client, nobody = PulsarClient(pulsar.client_settings(role)), Nobody()
    try:
        for topic in ("open", "closed"):
            full = f"persistent://{tenant}/orders/{topic}"
            may_write = authorizer.allows(who, AclOperation.WRITE, ResourceType.TOPIC, topic)
            assert may_write is await is_allowed(client.open_producer(full, nobody)), (role, topic)
            may_read = authorizer.allows(who, AclOperation.READ, ResourceType.TOPIC, topic)
            for group in ("kept", "other", f"{role}-own"):
                may_join = authorizer.allows(who, AclOperation.READ, ResourceType.GROUP, group)
                subscribed = await is_allowed(client.open_subscription(full, group, lambda _: None))
                assert (may_read and may_join) is subscribed, (role, topic, group)
    finally:
        await client.close()


async def test_a_tenants_administrator_reads_the_grants(secured_pulsar: SecuredPulsar, tenant: str) -> None:
    """Pulsar may hide only the list of other administrators from it."""
    grant(secured_pulsar, tenant)
    admin = AdminClient(secured_pulsar.client_settings(GATEWAY))
    authorizer = PulsarAuthorizer(admin, tenant, f"{tenant}/orders", [])
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await authorizer.start()
        assert authorizer.allows(Requester("User:writer", HOST), AclOperation.WRITE, ResourceType.TOPIC, "open")
        assert not authorizer.allows(Requester("User:reader", HOST), AclOperation.WRITE, ResourceType.TOPIC, "open")
    finally:
        await authorizer.close()
        await admin.close()


def test_a_client_has_the_rights_of_its_token(secured_pulsar: SecuredPulsar, tenant: str, tmp_path: Path) -> None:
    root = secured_pulsar.root
    secured_pulsar.create_tenant(tenant, "boss")
    port = free_port()
    listener = {
        "name": "sasl", "host": HOST, "port": port, "protocol": "SASL_PLAINTEXT", "mechanisms": ["PLAIN"],
    }  # fmt: skip
    gateway = gateway_on(
        secured_pulsar, tmp_path / "gateway", pulsar={"tenant": tenant, "namespace": "orders"},
        kafka={"host": HOST, "port": free_port(), "listeners": [listener]},
        security={"tokens": {"secret_key_file": str(secured_pulsar.security.key_file)}},
        authorization={"authorizer": "pulsar", "super_users": ["User:boss"]},
    )  # fmt: skip

    def config(role: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": f"{HOST}:{port}", "security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN",
            "sasl.username": role, "sasl.password": f"token:{secured_pulsar.security.token(role)}",
        }  # fmt: skip

    with running(gateway):
        create(config("boss"), "t")
        root.call("POST", f"namespaces/{tenant}/orders/permissions/writer", ["produce"])
        wait_for(lambda: produced(config("writer"), "t") is None, "the grant")
        assert produced(config("reader"), "t") == "TOPIC_AUTHORIZATION_FAILED"
        assert not asyncio.run(reaches_the_gateways_state(secured_pulsar, tenant, "writer"))
        assert asyncio.run(reaches_the_gateways_state(secured_pulsar, tenant, "root")), "the attempt is a real one"
        root.call("DELETE", f"namespaces/{tenant}/orders/permissions/writer")
        wait_for(lambda: produced(config("writer"), "t") is not None, "the end of the grant")


async def reaches_the_gateways_state(pulsar: SecuredPulsar, tenant: str, role: str) -> bool:
    """Whether a native client of the role can write or read it: it could name leaders, or grant itself rights."""
    client = PulsarClient(pulsar.client_settings(role))
    try:
        allowed = []
        for name in ("~gateways", "~security"):
            topic = f"persistent://{tenant}/orders-gateway/{name}"
            allowed.append(await is_allowed(client.open_producer(topic, Nobody())))
            allowed.append(await is_allowed(client.open_reader(topic, "earliest", Nobody())))
        return any(allowed)
    finally:
        await client.close()


def create(config: dict[str, Any], topic: str) -> None:
    admin = KafkaAdmin(config)
    admin.create_topics([NewTopic(topic, 1)])[topic].result(TIMEOUT_S)


def produced(config: dict[str, Any], topic: str) -> str | None:
    """The error; None if the record was written."""
    errors: list[Any] = []
    producer = Producer(config | {"message.timeout.ms": 60_000})
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(TIMEOUT_S)
    return None if errors[0] is None else str(errors[0].name())
