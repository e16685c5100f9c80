"""Applies clients' configurations as Pulsar's topic-level policies, even if a gateway dies in between.

The configurations are properties of the topic. A change of configurations that affect Pulsar is written together
with a separate property, which names the affected policies, and holds the changed properties before and after. This
property is removed when the broker's policies match the configurations. Any gateway that finds such a property can
finish the change: it compares and writes until nothing differs, so several gateways may do so at the same time.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from gateway.background import run_once
from gateway.backoff import Backoff, retried
from gateway.errors import KafkaError
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.admin.topics import COMPACTION_CURSOR, PartitionedTopic, TopicPolicy
from gateway.pulsar.errors import PulsarError, RequestTimeoutError
from gateway.topics.topic import HAS_TRANSACTIONS, MESSAGES_ONLY, partition_name, read_topic, stored_configs
from gateway.topics.topic_policies import Policies, all_policies
from protocol.kafka.errors import ErrorCode

PENDING_PREFIX = "kafka.policies.pending."
MAX_ROUNDS = 20
"""The maximum number of times to write and read again, while others change the same topic."""
PATIENCE_S, PAUSE_S = 5.0, 0.25
GRACE_S = 10.0
"""A change that still exists after this time was left by a gateway that died or could not finish it."""
MAX_PAUSE_S = 600.0
_REFUSED = frozenset({400, 412})
"""A broker's HTTP statuses for a policy that conflicts with its settings."""

T = TypeVar("T")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """A change of configurations whose policies may not be applied to the topic yet."""

    key: str
    """The name of the topic's property."""
    touches: frozenset[TopicPolicy]
    changed: Mapping[str, tuple[str | None, str | None]]
    """The properties' values before and after; None if missing."""

    @property
    def properties(self) -> dict[str, str]:
        value = {"policies": sorted(self.touches), "changed": {key: list(pair) for key, pair in self.changed.items()}}
        return {self.key: json.dumps(value, separators=(",", ":"))}

    def touched_in(self, properties: Mapping[str, str], defaults: Mapping[str, str]) -> AbstractSet[TopicPolicy]:
        """The policies that the change affects, together with what others have changed since."""
        before, after = (
            _policies(_with(properties, {name: pair[side] for name, pair in self.changed.items()}), defaults)
            for side in (0, 1)
        )
        return self.touches | {policy for policy in after if before[policy] != after[policy]}


def policy_change(
    before: Mapping[str, str], after: Mapping[str, str], defaults: Mapping[str, str]
) -> PolicyChange | None:
    """The change of policies for these properties before and after; None if no policy is affected.

    A client that sets the present values again wants to be sure: then all policies that have a value are compared.
    """
    had, wanted = _policies(before, defaults), _policies(after, defaults)
    touches = {policy for policy in wanted if had[policy] != wanted[policy]}
    if before == after:
        touches = {policy for policy, value in wanted.items() if value is not None}
    if not touches:
        return None
    names = sorted(before.keys() | after.keys())
    changed = {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}
    return PolicyChange(PENDING_PREFIX + uuid.uuid4().hex, frozenset(touches), changed)


def pending_changes(properties: Mapping[str, str]) -> list[PolicyChange]:
    """The unfinished changes. Invalid values are skipped, because anybody may write a topic's properties."""
    found = []
    for key, value in properties.items():
        if key.startswith(PENDING_PREFIX):
            try:
                fields = json.loads(value)
                touches = frozenset(map(TopicPolicy, fields["policies"]))
                changed = {str(name): (pair[0], pair[1]) for name, pair in fields["changed"].items()}
                found.append(PolicyChange(key, touches, changed))
            except (ValueError, TypeError, KeyError, IndexError, AttributeError):
                log.warning("cannot read a pending change in the properties of a topic", key=key)
    return found


class PolicyChanges:
    """Finishes changes: those of this gateway, and those that another gateway left unfinished."""

    def __init__(self, admin: AdminClient, defaults: Mapping[str, str]) -> None:
        self._admin = admin
        self._defaults = defaults
        self._left: dict[str, set[str]] = {}
        """By topic, the keys of changes that are still to be finished."""
        self._finishing: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        for task in (tasks := tuple(self._finishing)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def finish(self, pulsar_name: str, change: PolicyChange) -> None:
        """Apply the policies. If Pulsar refuses, restores the properties and raises KafkaError POLICY_VIOLATION.

        Raises PulsarError when the change continues in the background.
        """
        try:
            await self._finish(pulsar_name, change)
        except PulsarError:
            self.finish_later(pulsar_name, change.properties)
            raise

    def finish_later(self, pulsar_name: str, properties: Mapping[str, str]) -> None:
        """Changes among these properties that still exist after a while are finished, whichever gateway began them."""
        keys = {change.key for change in pending_changes(properties)}
        if not keys:
            return
        if pulsar_name in self._left:
            self._left[pulsar_name] |= keys
            return
        self._left[pulsar_name] = keys
        task = run_once("finish policies", self._finish_left(pulsar_name, keys))
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)

    async def _finish_left(self, pulsar_name: str, keys: set[str]) -> None:
        try:
            await self._finish_all(pulsar_name, keys)
        finally:
            del self._left[pulsar_name]

    async def _finish_all(self, pulsar_name: str, keys: set[str]) -> None:
        """More keys may be added at any time; each change gets its time to be finished by others."""
        backoff = Backoff(GRACE_S, MAX_PAUSE_S)
        while keys:
            asked = set(keys)
            await backoff.pause()
            try:
                found = await read_topic(self._admin, pulsar_name)
                for change in pending_changes(found.properties):
                    if change.key in asked:
                        log.info("finishing a change of policies", topic=pulsar_name, policies=sorted(change.touches))
                        await self._finish(pulsar_name, change)
                keys -= asked
                backoff.reset()
            except KafkaError as error:
                log.warning("change of policies was rolled back", topic=pulsar_name, error=str(error))
            except PulsarError as error:
                if isinstance(error, AdminError) and error.not_found:
                    return
                log.warning("policies differ from the configurations; will retry", topic=pulsar_name, error=str(error))

    async def _finish(self, pulsar_name: str, change: PolicyChange) -> None:
        try:
            await self._write_until_equal(pulsar_name, change)
        except KafkaError:
            await self._roll_back(pulsar_name, change)
            raise
        await self._admin.topics.remove_property(pulsar_name, change.key)

    async def _roll_back(self, pulsar_name: str, change: PolicyChange) -> None:
        """Restore the properties. Values that others have changed since are not touched."""
        present = (await read_topic(self._admin, pulsar_name)).properties
        mine = {name: pair[0] for name, pair in change.changed.items() if present.get(name) == pair[1]}
        again = {name: value for name, value in mine.items() if value is not None}
        if again:
            await self._admin.topics.put_properties(pulsar_name, again)
        for name in mine.keys() - again.keys():
            await self._admin.topics.remove_property(pulsar_name, name)
        try:
            await self._write_until_equal(pulsar_name, change)
        except KafkaError as error:  # caused by another client's change, which may have to be undone too
            log.warning("Pulsar refuses the previous policies, too", topic=pulsar_name, error=str(error))
            self.finish_later(pulsar_name, change.properties)
        else:
            await self._admin.topics.remove_property(pulsar_name, change.key)

    async def _write_until_equal(self, pulsar_name: str, change: PolicyChange) -> None:
        """Write until nothing differs. Configurations that change in the meantime are included."""
        work = _Comparison(self._admin, pulsar_name)
        for _ in range(MAX_ROUNDS):
            found = await read_topic(self._admin, pulsar_name)
            touched = change.touched_in(found.properties, self._defaults)
            policies = _policies(found.properties, self._defaults, pulsar_name)
            wanted = {policy: value for policy, value in policies.items() if policy in touched}
            if not await work.write_differing(wanted, found):
                return
        raise RequestTimeoutError(f"the policies of {pulsar_name} keep changing")


class _Comparison:
    """Reads and writes the policies of one topic until they are as wanted."""

    def __init__(self, admin: AdminClient, pulsar_name: str) -> None:
        self._admin = admin
        self._name = pulsar_name
        self._refused_quota: object | None = None
        self._cursors_dropped = False

    async def write_differing(self, wanted: Policies, topic: PartitionedTopic) -> bool:
        """Write in the order of `wanted`. Returns False if there was nothing to write."""
        present = dict(zip(wanted, await asyncio.gather(*map(self._read, wanted)), strict=True))
        differing = [policy for policy, value in wanted.items() if not _same(present[policy], value)]
        quota = TopicPolicy.BACKLOG_QUOTA
        if quota in differing:
            if present[quota] is not None:  # it must be below the retention at any time
                await self._write(quota, None)
            elif wanted[quota] == self._refused_quota:
                differing.remove(quota)
        for policy in differing:
            if policy is quota:
                await self._limit_backlog(wanted[quota])
            else:
                await self._write(policy, wanted[policy])
        return await self._keep_compaction_cursors(wanted, topic) or bool(differing)

    async def _keep_compaction_cursors(self, wanted: Policies, topic: PartitionedTopic) -> bool:
        """Delete the cursors of a topic that is no longer compacted: they would keep all new data for ever."""
        threshold = TopicPolicy.COMPACTION_THRESHOLD
        if threshold not in wanted or self._cursors_dropped == (wanted[threshold] is None):
            return False
        if wanted[threshold] is not None:
            self._cursors_dropped = False
            await self._write(threshold, wanted[threshold])  # the broker creates the cursors again
            return True
        self._cursors_dropped = True
        names = [partition_name(self._name, number) for number in range(topic.partitions)] or [self._name]
        for name in names:
            await self._drop_compaction(name)
        return True

    async def _drop_compaction(self, partition: str) -> None:
        try:
            await self._admin.topics.delete_subscription(partition, COMPACTION_CURSOR, force=True)
        except AdminError as error:
            if not error.not_found:
                raise

    async def _limit_backlog(self, quota: object | None) -> None:
        """Set the quota. If brokers do not allow quotas or this size, records are kept longer; none are lost."""
        if quota is None:
            return
        try:
            await self._write(TopicPolicy.BACKLOG_QUOTA, quota)
        except (KafkaError, PulsarError) as error:
            self._refused_quota = quota
            log.warning(
                "unused groups may keep data beyond retention.bytes", topic=self._name, error=str(error)
            )

    async def _read(self, policy: TopicPolicy) -> Any:
        return await _patiently(lambda: self._admin.topics.policy(self._name, policy))

    async def _write(self, policy: TopicPolicy, value: object | None) -> None:
        topics = self._admin.topics
        try:
            if value is None:
                await _patiently(lambda: topics.remove_policy(self._name, policy))
            else:
                await _patiently(lambda: topics.set_policy(self._name, policy, value))
        except AdminError as error:
            if error.status in _REFUSED and not error.retriable:
                raise KafkaError(ErrorCode.POLICY_VIOLATION, f"Pulsar refuses {policy}={value}: {error}") from error
            raise


async def _patiently(request: Callable[[], Awaitable[T]]) -> T:
    """Retries, because the policy service of a new namespace may need a moment."""
    return await retried(
        request,
        lambda error: isinstance(error, AdminError) and (error.retriable or error.not_found),
        Backoff(PAUSE_S),
        within_s=PATIENCE_S,
    )


def _same(present: Any, wanted: object | None) -> bool:
    if isinstance(present, dict) and isinstance(wanted, dict):  # brokers add fields
        return all(present.get(key) == value for key, value in wanted.items())
    return bool(present == wanted)


def _with(properties: Mapping[str, str], values: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in {**properties, **values}.items() if value is not None}


def _policies(properties: Mapping[str, str], defaults: Mapping[str, str], name: str = "") -> Policies:
    return all_policies(
        stored_configs(name, properties), defaults, compactable=MESSAGES_ONLY in properties,
        has_transactions=HAS_TRANSACTIONS in properties,
    )  # fmt: skip
