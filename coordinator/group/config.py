"""Limits and times of the group coordinator, with Apache Kafka 3.9's defaults."""

from dataclasses import dataclass
from typing import NamedTuple

# The coordinator forgets a new member's JoinGroup after this time: it has no session yet, and its client may be gone
# (KAFKA-7610).
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000


class ConsumerTimes(NamedTuple):
    """The times that the coordinator gives the members of a group of the consumer protocol."""

    session_timeout_ms: int
    heartbeat_interval_ms: int


@dataclass(frozen=True)
class GroupConfig:
    min_session_timeout_ms: int = 6_000  # group.min.session.timeout.ms
    max_session_timeout_ms: int = 1_800_000  # group.max.session.timeout.ms
    max_size: int = 2**31 - 1  # group.max.size
    max_metadata_bytes: int = 64 * 1024 * 1024  # of all groups; Kafka has no such limit
    initial_rebalance_delay_ms: int = 3_000  # group.initial.rebalance.delay.ms
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000  # offsets.retention.minutes
    offsets_retention_check_interval_ms: int = 600_000  # offsets.retention.check.interval.ms
    consumer_session_timeout_ms: int = 45_000  # group.consumer.session.timeout.ms
    consumer_heartbeat_interval_ms: int = 5_000  # group.consumer.heartbeat.interval.ms
    consumer_max_size: int = 2**31 - 1  # group.consumer.max.size
    online_upgrade: bool = True  # group.consumer.migration.policy; bidirectional is Kafka 4's default
    online_downgrade: bool = True

    @property
    def consumer_times(self) -> ConsumerTimes:
        """For groups without configurations of their own."""
        return ConsumerTimes(self.consumer_session_timeout_ms, self.consumer_heartbeat_interval_ms)
