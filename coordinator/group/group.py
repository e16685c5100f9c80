"""The interface of a group of any type (Kafka's `Group`), and of the protocol of its members.

A `Group` has data and what follows from it. Requests and timers of its members go to the `GroupProtocol` of its type.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from coordinator.group.messages import (
    CommitRequest,
    DescribedConsumerGroup,
    DescribedGroup,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeavingMember,
    ListedGroup,
    SyncReply,
    SyncRequest,
    TransactionalCommitRequest,
)
from coordinator.group.offsets.group_offsets import GroupOffsets, OffsetExpirationCondition
from coordinator.group.timer_keys import TimerKey
from coordinator.log import Record
from coordinator.slices import Steps
from protocol.kafka.errors import ErrorCode

DEAD = "Dead"
"""The state that DescribeGroups shows for a group that it cannot describe."""


class GroupType(Enum):
    """Values are the names that ListGroups shows (KIP-848)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class GroupSubscription(NamedTuple):
    """Sets of topics, including topics that do not exist; and regular expressions."""

    names: Sequence[frozenset[str]] = ()
    regexes: frozenset[str] = frozenset()


class Group(ABC):
    type: GroupType
    members: Mapping[str, object]
    protocol_type: str | None
    """"consumer" if the members are consumers; None or empty if it is not known."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.offsets = GroupOffsets()

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """It has no members: it may be deleted, or become a group of another type."""

    @property
    @abstractmethod
    def metadata_bytes(self) -> int:
        """The size of what its members have sent: ids, protocols, topics, and what a leader assigned."""

    @property
    @abstractmethod
    def state_name(self) -> str:
        """As ListGroups shows it."""

    @property
    def admits_classic_members(self) -> bool:
        """A member of the classic protocol can join the group without converting it."""
        return True

    @abstractmethod
    def die(self, now_ms: int) -> None:
        """The group was removed, or another coordinator has it. Callbacks in flight may still refer to it."""

    @abstractmethod
    def tombstones(self) -> Iterator[Record]:
        """Tombstones of the records of the group itself; its offsets have their own records."""

    # --- Offsets

    def offset_fetch_error(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether the sender may read the offsets. A classic group does not check the sender."""
        return ErrorCode.NONE

    @abstractmethod
    def transactional_commit_error(self, request: TransactionalCommitRequest) -> ErrorCode:
        """Whether the sender may commit in a transaction. Requests need not name a member."""

    @abstractmethod
    def offset_delete_error(self) -> ErrorCode:
        """Whether offsets of topics that no member reads may be deleted (KIP-496)."""

    @abstractmethod
    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Members read the topic, or might read it."""

    @abstractmethod
    def offset_expiration_condition(self) -> OffsetExpirationCondition | None:
        """The condition under which offsets expire (KIP-211); None: they do not."""

    # --- Topics

    def subscription(self) -> GroupSubscription:
        """What the coordinator assigns to the group, or resolves for it."""
        return GroupSubscription()

    @abstractmethod
    def topics_changed(self, names: Collection[str]) -> None:
        """These topics were created or deleted, or got partitions."""

    def consumer_topics(self) -> frozenset[str] | None:
        """Topics that classic members read or own, if they are consumers; None if they are not."""
        return frozenset()

    # --- Answers

    @abstractmethod
    def answer_all(self, error: ErrorCode) -> Steps:
        """Answer the members whose requests wait for other members."""

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, self.protocol_type or "", self.state_name, self.type.value)

    def describe(self) -> DescribedGroup:
        """As DescribeGroups shows it: only classic groups are described."""
        message = f"Group {self.group_id} is not a classic group."
        return DescribedGroup(ErrorCode.NONE, self.group_id, DEAD, message=message)

    def describe_consumer_group(self) -> DescribedConsumerGroup:
        """As ConsumerGroupDescribe shows it: only consumer groups are described."""
        return DescribedConsumerGroup(ErrorCode.GROUP_ID_NOT_FOUND, self.group_id)


def list_groups(groups: Iterable[Group], states: Set[str], types: Set[str]) -> list[ListedGroup]:
    """Empty filters match all; the names in them are in lower case."""
    return [
        listed
        for listed in (group.listed() for group in groups)
        if (not states or listed.state.lower() in states) and (not types or listed.group_type.lower() in types)
    ]


G = TypeVar("G", bound=Group)


class GroupProtocol(ABC, Generic[G]):
    """Serves the members of groups of one type: the requests of the classic protocol, commits, and timers."""

    @abstractmethod
    def join(self, group: G, request: JoinRequest, now_ms: int, reply: JoinReply) -> None: ...

    @abstractmethod
    def sync(self, group: G, request: SyncRequest, now_ms: int, reply: SyncReply) -> None: ...

    @abstractmethod
    def heartbeat(self, group: G, request: HeartbeatRequest, now_ms: int) -> ErrorCode: ...

    @abstractmethod
    def leave(self, group: G, leaving: LeavingMember, now_ms: int) -> ErrorCode: ...

    @abstractmethod
    def offset_commit_error(self, group: G, request: CommitRequest, now_ms: int) -> ErrorCode:
        """Whether the sender may commit. A sender that may is alive: its session is extended."""

    @abstractmethod
    def restart_timers(self, group: G, now_ms: int) -> None:
        """After loading, every member's timers start again."""

    @abstractmethod
    def period_ms(self, group: G, timer: TimerKey) -> int:
        """The duration of the timer from its start, 0 if it waits for no member."""

    @abstractmethod
    def on_timer(self, group: G, timer: TimerKey, now_ms: int) -> None:
        """The timer is due. A timer that was started when the group had another type has no effect."""

    def release_waiting(self, group: G, error: ErrorCode, now_ms: int) -> None:
        """Answer the members whose requests wait for other members; they may send them again."""

    def replaced(self, group: G, now_ms: int) -> None:
        """A group of another type has replaced this one: its members must join that one."""
