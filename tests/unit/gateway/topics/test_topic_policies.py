"""Kafka's topic configurations as Pulsar's policies: rounded up, bounded, and unused groups keep nothing."""

import pytest

from gateway.pulsar.admin.topics import TopicPolicy
from gateway.topics.topic_configs import DEFAULTS
from gateway.topics.topic_policies import COMPACTION_THRESHOLD_BYTES, OUT_OF_REACH_BYTES, backlog_quota, policies

RETENTION, TTL, THRESHOLD = TopicPolicy.RETENTION, TopicPolicy.MESSAGE_TTL, TopicPolicy.COMPACTION_THRESHOLD


def limits(minutes: int, mb: int) -> dict[str, int]:
    return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": mb}


def test_a_topic_without_configurations_follows_its_namespace() -> None:
    assert policies({}, compactable=False) == {THRESHOLD: None, RETENTION: None, TTL: None}


@pytest.mark.parametrize(
    ("retention_ms", "minutes", "ttl_s"),
    [
        (-1, -1, 0),
        (0, 1, 1),
        (1, 1, 1),
        (60_000, 1, 60),
        (60_001, 2, 61),
        (604_800_000, 10_080, 604_800),
        (2**31 * 1_000, -1, 0),  # brokers count in 32 bits
        (2**63 - 1, -1, 0),
    ],
)
def test_retention_by_time(retention_ms: int, minutes: int, ttl_s: int) -> None:
    found = policies({"retention.ms": str(retention_ms)}, compactable=False)
    assert found == {THRESHOLD: None, RETENTION: limits(minutes, -1), TTL: ttl_s}


@pytest.mark.parametrize(
    ("retention_bytes", "mb"), [(-1, -1), (-5, -1), (0, 1), (1, 1), (2**20, 1), (2**20 + 1, 2), (2**63 - 1, -1)]
)
def test_retention_by_size(retention_bytes: int, mb: int) -> None:
    found = policies({"retention.bytes": str(retention_bytes)}, compactable=False)
    assert found == {THRESHOLD: None, RETENTION: limits(10_080, mb), TTL: None}


def test_the_gateways_own_default_goes_with_a_size() -> None:
    defaults = {**DEFAULTS, "retention.ms": "3600000"}
    found = policies({"retention.bytes": "5"}, defaults, compactable=False)
    assert found[RETENTION] == limits(60, 1)


def test_a_compacted_topic_loses_nothing_to_time() -> None:
    """The compaction cursor holds what is not compacted; retention is for what is. Groups need not hurry."""
    found = policies({"cleanup.policy": "compact", "retention.ms": "60000"}, compactable=True)
    assert found == {THRESHOLD: COMPACTION_THRESHOLD_BYTES, RETENTION: limits(1, -1), TTL: 0}
    assert next(iter(found)) is THRESHOLD, "its cursor must be there before retention is shorter"


def test_with_transactions_pulsar_does_not_compact_by_itself() -> None:
    """Its cursor stays: what is not compacted is not deleted."""
    found = policies({"cleanup.policy": "compact,delete"}, compactable=True, has_transactions=True)
    assert found == {THRESHOLD: OUT_OF_REACH_BYTES, RETENTION: None, TTL: None}
    assert policies({}, compactable=True, has_transactions=True) == policies({}, compactable=True)


def test_small_segments_mean_early_compaction() -> None:
    found = policies({"cleanup.policy": "compact,delete", "segment.bytes": "1000"}, compactable=True)
    assert found == {THRESHOLD: 1000, RETENTION: None, TTL: None}


@pytest.mark.parametrize("policy", ["compact", ""])
def test_what_cannot_be_compacted_is_kept(policy: str) -> None:
    found = policies({"cleanup.policy": policy, "retention.ms": "60000"}, compactable=False)
    assert found == {THRESHOLD: None, RETENTION: limits(-1, -1), TTL: 0}


@pytest.mark.parametrize(
    ("configs", "limit_bytes"),
    [
        ({}, None),
        ({"retention.bytes": "-1"}, None),
        ({"retention.bytes": "0"}, 2**20 - 1),
        ({"retention.bytes": str(5 * 2**20)}, 5 * 2**20 - 1),
        ({"retention.bytes": str(2**63 - 1)}, None),
        ({"retention.bytes": "5", "cleanup.policy": "compact"}, None),
        ({"retention.bytes": "5", "cleanup.policy": "compact,delete"}, None),
    ],
)
def test_dead_groups_hold_no_more_than_retention_bytes(configs: dict[str, str], limit_bytes: int | None) -> None:
    """Brokers refuse a quota that is not below the retention."""
    quota = None if limit_bytes is None else {"limitSize": limit_bytes, "policy": "consumer_backlog_eviction"}
    assert backlog_quota(configs) == quota
