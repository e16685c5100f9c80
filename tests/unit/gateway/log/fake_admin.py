"""The admin API's topics in memory: during every request other tasks run, and a test may let it fail."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.admin.topics import Ledger, PartitionedTopic, TopicPolicy

PREFIX = "persistent://t/n/"


class FakeTopics:
    def __init__(self) -> None:
        self.properties: dict[str, dict[str, str]] = {}
        self.policies: dict[str, dict[TopicPolicy, object]] = {}
        self.subscriptions_deleted: list[str] = []
        self.refused: dict[TopicPolicy, Callable[[object], bool]] = {}
        self.refuses_deletion = False
        self.may_delete = asyncio.Event()
        self.may_delete.set()
        self.entries = 0
        self.partitions = 2
        self.clients = 0
        """How many clients open a partition while its topic is being deleted, one after the other."""
        self.left: list[str] = []
        """Partitions that no topic has."""
        self.requests: Counter[str] = Counter()
        self.before: Callable[[str, str], Awaitable[None]] = _let_others_go_first
        """Called with the method's and the topic's name before each request has an effect; may raise."""

    @property
    def client(self) -> AdminClient:
        return cast(AdminClient, SimpleNamespace(topics=self))

    async def _requested(self, method: str, topic: str = "") -> None:
        self.requests[method] += 1
        await self.before(method, topic)

    def _existing(self, topic: str) -> dict[str, str]:
        if topic not in self.properties:
            raise AdminError(404, "no such topic")
        return self.properties[topic]

    async def list_partitioned(self, namespace: str) -> list[str]:
        await self._requested("list_partitioned")
        return list(self.properties)

    async def list_topics(self, namespace: str) -> list[str]:
        await self._requested("list_topics")
        partitions = [f"{topic}-partition-{number}" for topic in self.properties for number in range(self.partitions)]
        return [*partitions, *self.left]

    async def partitioned(self, topic: str) -> PartitionedTopic:
        await self._requested("partitioned", topic)
        return PartitionedTopic(self.partitions, dict(self._existing(topic)))

    async def create_partitioned(self, topic: str, partitions: int, properties: Mapping[str, str]) -> None:
        await self._requested("create_partitioned", topic)
        if topic in self.properties or any(name.rpartition("-partition-")[0] == topic for name in self.left):
            raise AdminError(409, "exists")
        self.properties[topic] = dict(properties)
        self.policies[topic] = {}

    async def create_missed_partitions(self, topic: str) -> None:
        await self._requested("create_missed_partitions", topic)

    async def delete_partitioned(self, topic: str, *, force: bool) -> None:
        await self._requested("delete_partitioned forced" if force else "delete_partitioned", topic)
        await self.may_delete.wait()
        if self.refuses_deletion:
            raise AdminError(500, "not now")
        if self.clients:
            self.clients -= 1
            raise AdminError(412, "Topic has active producers/subscriptions")
        self._existing(topic)
        del self.properties[topic], self.policies[topic]

    async def delete(self, topic: str) -> None:
        await self._requested("delete", topic)
        self.left.remove(topic)

    async def update_partitions(self, topic: str, partitions: int, *, force: bool = False) -> None:
        """As in Pulsar: the requests do not know of each other."""
        self._existing(topic)
        if any(name.rpartition("-partition-")[0] == topic for name in self.left) and not force:
            raise AdminError(409, "Exist unexpected topic partition")
        await self._requested("update_partitions", topic)
        self.left = [name for name in self.left if name.rpartition("-partition-")[0] != topic]
        if topic in self.properties:
            self.partitions = partitions
        else:
            self.left.append(f"{topic}-partition-{partitions - 1}")

    async def put_properties(self, topic: str, properties: Mapping[str, str]) -> None:
        await self._requested("put_properties", topic)
        self._existing(topic).update(properties)

    async def remove_property(self, topic: str, key: str) -> None:
        await self._requested("remove_property", topic)
        self._existing(topic).pop(key, None)

    async def policy(self, topic: str, policy: TopicPolicy) -> object | None:
        await self._requested("policy", topic)
        self._existing(topic)
        return self.policies[topic].get(policy)

    async def set_policy(self, topic: str, policy: TopicPolicy, value: object) -> None:
        await self._requested("set_policy", topic)
        self._existing(topic)
        if policy in self.refused and self.refused[policy](value):
            raise AdminError(412, "Retention Quota must exceed configured backlog quota for topic.")
        self.policies[topic][policy] = value

    async def remove_policy(self, topic: str, policy: TopicPolicy) -> None:
        await self._requested("remove_policy", topic)
        self._existing(topic)
        self.policies[topic].pop(policy, None)

    async def delete_subscription(self, topic: str, subscription: str, *, force: bool) -> None:
        await self._requested("delete_subscription", topic)
        self.subscriptions_deleted.append(f"{topic} {subscription}")

    async def managed_ledger_properties(self, topic: str) -> dict[str, str]:
        await self._requested("managed_ledger_properties", topic)
        return {"index": "-1"}

    async def internal_stats(self, topic: str) -> Any:
        await self._requested("internal_stats", topic)
        return SimpleNamespace(ledgers=(Ledger(1, self.entries, 0),))


async def _let_others_go_first(method: str, topic: str) -> None:
    await asyncio.sleep(0)
