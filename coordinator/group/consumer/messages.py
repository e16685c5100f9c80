"""ConsumerGroupHeartbeat (KIP-848) without its wire format."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from coordinator.group.consumer.assignment import Assignment, TopicInfo
from protocol.kafka.errors import ErrorCode


class Topics(Protocol):
    """The topics of the cluster as this gateway knows them now; topics that it has not looked up yet are unknown."""

    def is_known(self, name: str) -> bool:
        """Whether `find` knows the name."""

    def find(self, name: str) -> TopicInfo | None: ...

    def matching(self, regex: str) -> Set[str] | None:
        """The topics that a regular expression matches; None until it was matched with all present ones, and
        for one that is not matched any more: it then keeps the topics that it has matched before."""


MayDescribe = Callable[[str], bool]
"""Whether a client has the right to describe the topic of that name."""


def describes_all(_name: str) -> bool:
    return True


class Rights(NamedTuple):
    """Of the client whose heartbeat has regular expressions resolved: they match no other topics, as in Kafka
    (KAFKA-18813)."""

    may_describe: MayDescribe = describes_all
    version: int = 0
    """Increases when rights of any client may have changed."""


ALL_RIGHTS = Rights()


@dataclass(frozen=True)
class ConsumerHeartbeatRequest:
    """None (and -1 for the timeout) means unchanged. `member_epoch` 0 joins, -1 leaves, -2 leaves for a restart.

    `has_own_id` is for version 1 and later, where clients choose their member ids; there an empty subscription is
    valid.
    """

    group_id: str
    member_id: str
    member_epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: Sequence[str] | None = None
    subscribed_topic_regex: str | None = None
    regex_problem: str | None = None
    """Why the expression is refused, although it is valid: it takes too long to match."""
    server_assignor: str | None = None
    owned: Assignment | None = None
    has_own_id: bool = False
    rights: Rights = ALL_RIGHTS

    @property
    def has_subscription(self) -> bool:
        return self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None


@dataclass(frozen=True)
class ConsumerHeartbeatResponse:
    """`assignment` None: unchanged since the last answer."""

    error: ErrorCode
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


ConsumerHeartbeatReply = Callable[[ConsumerHeartbeatResponse], None]
