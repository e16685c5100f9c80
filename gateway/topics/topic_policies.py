"""Kafka's topic configurations as Pulsar's topic-level policies.

Pulsar uses whole minutes, seconds and MB. All values are rounded up, so that nothing is deleted early. Pulsar's
retention applies to each partition separately, as Kafka's does, and deletes whole closed ledgers. Message TTL is set
together with retention, because the subscriptions that mirror consumer groups keep data that retention would
otherwise delete.
https://pulsar.apache.org/docs/4.0.x/cookbooks-retention-expiry/
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.pulsar.admin.topics import TopicPolicy
from gateway.topics.config_values import INT_MAX
from gateway.topics.topic_configs import DEFAULTS, has_policy

COMPACTION_THRESHOLD_BYTES = 64 * 1024 * 1024
"""The size of new data after which Pulsar compacts a topic, unless segment.bytes is smaller."""
OUT_OF_REACH_BYTES = 2**62
NO_LIMIT, NO_TTL = -1, 0
_RETENTION = frozenset({"retention.ms", "retention.bytes"})
_MAX_MINUTES = INT_MAX // 60  # brokers count in seconds
_MIB = 1024 * 1024

Policies = dict[TopicPolicy, object | None]
"""None removes a policy; the namespace's policy then applies."""


def all_policies(
    configs: Mapping[str, str], defaults: Mapping[str, str], *, compactable: bool, has_transactions: bool = False
) -> Policies:
    """The result of `policies`, followed by the backlog quota."""
    found = policies(configs, defaults, compactable=compactable, has_transactions=has_transactions)
    return {**found, TopicPolicy.BACKLOG_QUOTA: backlog_quota(configs)}


def policies(
    configs: Mapping[str, str], defaults: Mapping[str, str] = DEFAULTS, *, compactable: bool,
    has_transactions: bool = False,
) -> Policies:  # fmt: skip
    """The policies to set in Pulsar, in this order.

    ``compactable``: all entries contain messages; the broker's compactor fails at an entry of record batches.
    ``has_transactions``: the compactor must not run automatically; its cursor stays, and keeps all data.
    """
    compacts = has_policy(configs, "compact")
    kept_for_ever = not has_policy(configs, "delete")
    if compacts and compactable:
        threshold = OUT_OF_REACH_BYTES if has_transactions else compaction_threshold(configs, defaults)
        # The policy makes the broker's compaction cursor, which holds what has not been compacted.
        return {TopicPolicy.COMPACTION_THRESHOLD: threshold, **_deletion(configs, defaults, expires=not kept_for_ever)}
    if kept_for_ever:
        return {TopicPolicy.COMPACTION_THRESHOLD: None, **_no_deletion()}
    return {TopicPolicy.COMPACTION_THRESHOLD: None, **_deletion(configs, defaults, expires=True)}


def compaction_threshold(configs: Mapping[str, str], defaults: Mapping[str, str]) -> int:
    """Bytes of new data after which a topic is compacted."""
    return min(int(configs.get("segment.bytes", defaults["segment.bytes"])), COMPACTION_THRESHOLD_BYTES)


def _deletion(configs: Mapping[str, str], defaults: Mapping[str, str], *, expires: bool) -> Policies:
    retention_ms = int(configs.get("retention.ms", defaults["retention.ms"]))
    retention_bytes = int(configs.get("retention.bytes", defaults["retention.bytes"]))
    retention = {
        "retentionTimeInMinutes": _at_least_one(retention_ms, 60_000, _MAX_MINUTES),
        "retentionSizeInMB": _at_least_one(retention_bytes, _MIB, INT_MAX),
    }
    ttl_s = max(NO_TTL, _at_least_one(retention_ms, 1_000, INT_MAX))
    return {
        TopicPolicy.RETENTION: retention if _RETENTION & configs.keys() else None,
        TopicPolicy.MESSAGE_TTL: NO_TTL if not expires else ttl_s if "retention.ms" in configs else None,
    }


def backlog_quota(configs: Mapping[str, str]) -> object | None:
    """The quota for data that some subscription has not consumed; it moves these subscriptions forward.

    Retention by size applies only to data that every subscription has consumed. Brokers require the quota to be
    below the retention, so the quota is set after the other policies, and removed before they change.
    """
    retention_bytes = int(configs.get("retention.bytes", NO_LIMIT))
    if retention_bytes < 0 or has_policy(configs, "compact") or not has_policy(configs, "delete"):
        return None
    megabytes = _at_least_one(retention_bytes, _MIB, INT_MAX)
    if megabytes == NO_LIMIT:
        return None
    return {"limitSize": megabytes * _MIB - 1, "policy": "consumer_backlog_eviction"}


def _no_deletion() -> Policies:
    return {
        TopicPolicy.RETENTION: {"retentionTimeInMinutes": NO_LIMIT, "retentionSizeInMB": NO_LIMIT},
        TopicPolicy.MESSAGE_TTL: NO_TTL,
    }


def _at_least_one(value: int, unit: int, highest: int) -> int:
    """In whole units, rounded up; brokers refuse 0 for only one of time and size. Too large a value means no limit."""
    units = max(1, -(-value // unit))
    return NO_LIMIT if value < 0 or units > highest else units
