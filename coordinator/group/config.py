"""Limits and times of the group coordinator, with Apache Kafka 3.9's defaults."""

from dataclasses import dataclass
from typing import NamedTuple

# A new member's JoinGroup is given up after this: it has no session yet and its client may be gone (KAFKA-7610).
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000


class ConsumerTimes(NamedTuple):
    """What the coordinator has the members use in a group of the consumer protocol."""

    session_timeout_ms: int
    heartbeat_interval_ms: int


@dataclass(frozen=True)
class GroupConfig:
    min_session_timeout_ms: int = 6_000  # group.min.session.timeout.ms
    max_session_timeout_ms: int = 1_800_000  # group.max.session.timeout.ms
    max_size: int = 2**31 - 1  # group.max.size
    initial_rebalance_delay_ms: int = 3_000  # group.initial.rebalance.delay.ms
    offset_metadata_max_chars: int = 4_096  # offset.metadata.max.bytes: Kafka too counts UTF-16 units, not bytes
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000  # offsets.retention.minutes
    offsets_retention_check_interval_ms: int = 600_000  # offsets.retention.check.interval.ms
    consumer_session_timeout_ms: int = 45_000  # group.consumer.session.timeout.ms
    consumer_heartbeat_interval_ms: int = 5_000  # group.consumer.heartbeat.interval.ms
    consumer_max_size: int = 2**31 - 1  # group.consumer.max.size
    online_upgrade: bool = True  # group.consumer.migration.policy, as Kafka 4 has it: bidirectional
    online_downgrade: bool = True

    @property
    def consumer_times(self) -> ConsumerTimes:
        """Of groups without configurations of their own."""
        return ConsumerTimes(self.consumer_session_timeout_ms, self.consumer_heartbeat_interval_ms)
