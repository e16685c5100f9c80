"""ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848, version 0) without their wire format."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from coordinator.group.assignment import Assignment, TopicId, TopicInfo
from coordinator.group.consumer_member import ConsumerMember
from protocol.kafka.errors import ErrorCode


class Topics(Protocol):
    """The topics of the cluster as this gateway knows them now."""

    def find(self, name: str) -> TopicInfo | None: ...


@dataclass(frozen=True)
class ConsumerHeartbeatRequest:
    """None (and -1 for the timeout) means: as before. `member_epoch` 0 joins, -1 leaves, -2 leaves for a restart."""

    group_id: str
    member_id: str
    member_epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: Sequence[str] | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None


@dataclass(frozen=True)
class ConsumerHeartbeatResponse:
    """`assignment` None: unchanged since the last answer."""

    error: ErrorCode
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


@dataclass(frozen=True)
class DescribedConsumer:
    member: ConsumerMember
    target: Assignment


@dataclass(frozen=True)
class DescribedConsumerGroup:
    """`topic_names` names every topic id of the members' assignments that still exists."""

    error: ErrorCode
    group_id: str
    state: str = ""
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: Sequence[DescribedConsumer] = ()
    topic_names: Mapping[TopicId, str] = field(default_factory=dict)
