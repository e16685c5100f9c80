"""Grants at random, also to roles with unusual names: the authorizer `pulsar` allows what Pulsar allows, and no more.

`GRANT_SEEDS=100:120` tries other grants.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any
from urllib.parse import quote

import pytest

from gateway.coordination.mirror.names import subscription_name
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.security.acls import Requester
from gateway.security.pulsar_authorizer import PulsarAuthorizer
from gateway.topics.topic_names import to_pulsar
from protocol.kafka.acl import AclOperation, ResourceType
from tests.integration.secured_pulsar import ROOT, SecuredPulsar
from tests.integration.security.test_pulsar_authorization import Nobody, is_allowed
from tests.integration.servers import running
from tests.support.gateway_process import HOST
from tests.support.names import unique_topic

ROLES = ["ann", "ann-2", "spiffe://x/y", "with space", "bé", "User:bob", "a=b,c", "x%2Fy", "team*", "*", "anonymous"]
GROUPS = ["ann", "ann-g", "with space-g", "bé", "team", "g/1", "a~b", "spiffe://x/y", "User:bob-g"]
TOPICS = ["t1", "t.2", "T_3-x"]
ACTIONS = [["produce"], ["consume"], ["produce", "consume"], ["functions"], ["sources", "sinks"], []]
PATTERNS = ["an*", "*-2", "*", "team*", "*b", "wi*", "User:*", "*:bob", "a*,c", "**", "*y", "spiffe:*", "ann", "x%2Fy"]
ROUNDS, CHANGES, ROLES_A_ROUND, GROUPS_A_TOPIC = 3, 12, 4, 3


def in_path(name: str) -> str:
    return quote(name, safe="")


class Grants:
    """A namespace whose grants change. They name these roles."""

    def __init__(
        self, pulsar: SecuredPulsar, random: Random, roles: Sequence[str], *, partitioned: float = 0.6
    ) -> None:
        """`partitioned` is the share of partitioned topics."""
        self._pulsar, self._root, self._random, self._roles = pulsar, pulsar.root, random, roles
        self._partitioned = partitioned
        self.tenant = unique_topic("granted")
        self.namespace = f"{self.tenant}/orders"
        pulsar.create_tenant(self.tenant)
        self._root.call("PUT", f"namespaces/{self.namespace}", {})
        self.is_partitioned: dict[str, bool] = {}
        for topic in TOPICS:
            self._create(topic)

    def _create(self, topic: str) -> None:
        self.is_partitioned[topic] = self._random.random() < self._partitioned
        if self.is_partitioned[topic]:
            self._root.call("PUT", f"{self._path(topic)}/partitions", 2)
        else:
            self._root.call("PUT", self._path(topic))

    def _path(self, topic: str) -> str:
        return f"persistent/{self.namespace}/{in_path(to_pulsar(topic))}"

    def change(self) -> None:
        random = self._random
        namespace, topic, role = f"namespaces/{self.namespace}", random.choice(TOPICS), random.choice(self._roles)
        subscription, actions = subscription_name(random.choice(GROUPS)), random.choice(ACTIONS)
        match random.choices(range(8), [25, 10, 20, 10, 10, 5, 5, 5])[0]:
            case 0:
                self._root.call("POST", f"{namespace}/permissions/{in_path(role)}", actions)
            case 1:
                self._root.call("DELETE", f"{namespace}/permissions/{in_path(role)}")
            case 2:
                self._root.call("POST", f"{self._path(topic)}/permissions/{in_path(role)}", actions)
            case 3:
                self._revoke_on_topic(topic, role)
            case 4:
                roles = random.sample(self._roles, random.choice([1, 2]))
                self._root.call("POST", f"{namespace}/permissions/subscription/{in_path(subscription)}", roles)
            case 5:
                self._root.call("POST", f"{namespace}/subscriptionAuthMode", random.choice(["Prefix", "None"]))
            case 6:
                self._pulsar.set_administrators(self.tenant, random.sample(self._roles, random.choice([0, 0, 1])))
            case _:
                suffix = "/partitions" if self.is_partitioned[topic] else ""
                self._root.call("DELETE", f"{self._path(topic)}{suffix}?force=true")
                self._create(topic)

    def _revoke_on_topic(self, topic: str, role: str) -> None:
        if role in self._root.call("GET", f"{self._path(topic)}/permissions"):
            self._root.call("DELETE", f"{self._path(topic)}/permissions/{in_path(role)}")


def seeds() -> list[int]:
    first, _, end = os.environ.get("GRANT_SEEDS", "0:3").partition(":")
    return [*range(int(first), int(end or int(first) + 1))]


@pytest.fixture(scope="module")
def matching_pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredPulsar]:
    """Its grants may name roles by patterns."""
    settings = {"authorizationAllowWildcardsMatching": "true"}
    with running(SecuredPulsar(tmp_path_factory.mktemp("matching"), settings)) as pulsar:
        yield pulsar


@pytest.mark.parametrize("seed", seeds())
async def test_any_grants(secured_pulsar: SecuredPulsar, seed: int) -> None:
    random = Random(seed)
    grants = await asyncio.to_thread(Grants, secured_pulsar, random, ROLES)
    await compare_rounds(secured_pulsar, grants, random)


@pytest.mark.parametrize("seed", seeds())
async def test_any_grants_by_patterns(matching_pulsar: SecuredPulsar, seed: int) -> None:
    """Of a topic without partitions, the gateway allows less than Pulsar."""
    random = Random(seed)
    grants = await asyncio.to_thread(Grants, matching_pulsar, random, PATTERNS, partitioned=1.0)
    await compare_rounds(matching_pulsar, grants, random)


async def compare_rounds(pulsar: SecuredPulsar, grants: Grants, random: Random) -> None:
    admin = AdminClient(pulsar.client_settings(ROOT))
    authorizer = PulsarAuthorizer(admin, grants.tenant, grants.namespace, [])
    try:
        await authorizer.start()
        for _ in range(ROUNDS):
            for _ in range(CHANGES):
                await asyncio.to_thread(grants.change)
            await authorizer.refresh()
            for role in random.sample(ROLES, ROLES_A_ROUND):
                await compare(pulsar, authorizer, grants, role, random)
    finally:
        await authorizer.close()
        await admin.close()


async def compare(
    pulsar: SecuredPulsar, authorizer: PulsarAuthorizer, grants: Grants, role: str, random: Random
) -> None:
    who = Requester(f"User:{role}", HOST)
    client = PulsarClient(pulsar.client_settings(role))

    def may(operation: AclOperation, name: str, kind: ResourceType = ResourceType.TOPIC) -> bool:
        return authorizer.allows(who, operation, kind, name)

    try:
        for topic in TOPICS:
            full = f"persistent://{grants.namespace}/{to_pulsar(topic)}"
            allowed: list[tuple[Any, bool, bool]] = [
                ("describe", may(AclOperation.DESCRIBE, topic), await is_allowed(client.partitions(full)))
            ]
            full += "-partition-1" if grants.is_partitioned[topic] else ""
            written = await is_allowed(client.open_producer(full, Nobody()))
            allowed.append(("write", may(AclOperation.WRITE, topic), written))
            for group in random.sample(GROUPS, GROUPS_A_TOPIC):
                opening = client.open_subscription(full, subscription_name(group), lambda _: None)
                may_read = may(AclOperation.READ, topic) and may(AclOperation.READ, group, ResourceType.GROUP)
                allowed.append((group, may_read, await is_allowed(opening)))
            assert [(what, here) for what, here, _ in allowed] == [(what, there) for what, _, there in allowed], (
                role, topic,
            )  # fmt: skip
    finally:
        await client.close()
