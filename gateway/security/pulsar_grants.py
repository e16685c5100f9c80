"""Pulsar's grants to roles in a namespace, and the Kafka rights that follow from them.

Permissions are evaluated as in PulsarAuthorizationProvider 4.0: those of the namespace, those of single topics, and the
roles that may use a subscription. Superusers and administrators of the tenant may do everything.

A broker compares a topic's own wildcards only with requests that name the topic, not with those that name one of its
partitions. So such a grant allows to describe the topic, but not to write or read.

| Pulsar | Kafka |
| --- | --- |
| produce | TOPIC Write and Describe; with any such topic CLUSTER IdempotentWrite, TRANSACTIONAL_ID Write and Describe |
| consume | TOPIC Read and Describe; with any such topic GROUP Read and Describe, if the role may use the subscription |
| administrator | everything |
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.coordination.mirror.names import subscription_name
from gateway.topics.topic_names import INTERNAL_TOPICS, to_pulsar
from protocol.kafka.acl import AclOperation, ResourceType

PRODUCE, CONSUME = "produce", "consume"
Actions = Mapping[str, Collection[str]]
"""By role: the granted actions."""
_WRITES = frozenset({AclOperation.WRITE, AclOperation.DESCRIBE})
_READS = frozenset({AclOperation.READ, AclOperation.DESCRIBE})
_STAR = "*"


@dataclass(frozen=True)
class Grants:
    """The grants in a namespace's policies."""

    namespace: str
    of_namespace: Actions = field(default_factory=dict)
    of_topics: Mapping[str, Actions] = field(default_factory=dict)
    """By the topic's full name in Pulsar."""
    of_subscriptions: Mapping[str, Collection[str]] = field(default_factory=dict)
    """By subscription: the only roles that may use it. An empty list means all roles."""
    prefix_mode: bool = False
    """A subscription's name must start with the role's name."""
    administrators: frozenset[str] = frozenset()
    wildcards: bool = False
    """Grants may name roles as `prefix*` or `*suffix` (authorizationAllowWildcardsMatching)."""

    def allows(self, role: str, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        if role in self.administrators:
            return True
        if resource_type is ResourceType.TOPIC:
            return name not in INTERNAL_TOPICS and (
                (operation in _WRITES and self._may(role, PRODUCE, operation, name))
                or (operation in _READS and self._may(role, CONSUME, operation, name))
            )
        if resource_type is ResourceType.GROUP:
            return operation in _READS and self._may_somewhere(role, CONSUME) and self._may_subscribe(role, name)
        if resource_type is ResourceType.TRANSACTIONAL_ID:
            return operation in _WRITES and self._may_somewhere(role, PRODUCE)
        return operation is AclOperation.IDEMPOTENT_WRITE and self._may_somewhere(role, PRODUCE)

    def allows_any(self, role: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        """True if the operation is allowed on at least one resource of the type."""
        if role in self.administrators:
            return True
        wants_write, wants_read = operation in _WRITES, operation in _READS
        if resource_type is ResourceType.TOPIC:
            return (wants_write and self._may_somewhere(role, PRODUCE)) or (
                wants_read and self._may_somewhere(role, CONSUME)
            )
        return self.allows(role, operation, resource_type, role)

    def _may(self, role: str, action: str, operation: AclOperation, topic: str) -> bool:
        if self._is_granted(role, action, self.of_namespace):
            return True
        of_topic = self.of_topics.get(f"persistent://{self.namespace}/{to_pulsar(topic)}", {})
        if operation is AclOperation.DESCRIBE:
            return self._is_granted(role, action, of_topic)
        return action in of_topic.get(role, ())

    def _may_somewhere(self, role: str, action: str) -> bool:
        if self._is_granted(role, action, self.of_namespace):
            return True
        return any(action in of_topic.get(role, ()) for of_topic in self.of_topics.values())

    def _is_granted(self, role: str, action: str, granted: Actions) -> bool:
        if action in granted.get(role, ()):
            return True
        return self.wildcards and any(action in actions for key, actions in granted.items() if _matches(key, role))

    def _may_subscribe(self, role: str, group_id: str) -> bool:
        subscription = subscription_name(group_id)
        roles = self.of_subscriptions.get(subscription)
        if roles and role not in roles:
            return False
        return not self.prefix_mode or subscription.startswith(role)


def _matches(pattern: str, role: str) -> bool:
    by_prefix = pattern.endswith(_STAR) and role.startswith(pattern[:-1])
    return by_prefix or (pattern.startswith(_STAR) and role.endswith(pattern[1:]))


def grants_of(
    namespace: str, policies: Mapping[str, Any], administrators: Collection[str], *, wildcards: bool = False
) -> Grants:
    """`policies` are in the form that the admin API returns."""
    granted: Mapping[str, Any] = policies.get("auth_policies") or {}
    return Grants(
        namespace,
        granted.get("namespace_auth") or {},
        granted.get("destination_auth") or {},
        granted.get("subscription_auth_roles") or {},
        policies.get("subscription_auth_mode") == "Prefix",
        frozenset(administrators),
        wildcards,
    )
