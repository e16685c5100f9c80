"""What a coordinator asks of a group of any type (Kafka's interface `Group`), and of the protocol of its members.

A `Group` is data and what follows from it. Its members' requests and timers go to the `GroupProtocol` of its type.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Generic, TypeVar

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
from protocol.kafka.errors import ErrorCode

DEAD = "Dead"
"""The state that DescribeGroups shows of a group that it cannot describe."""


class GroupType(Enum):
    """Values are the names that ListGroups shows (KIP-848)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


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
    def state_name(self) -> str:
        """As ListGroups shows it."""

    @property
    def admits_classic_members(self) -> bool:
        """A member of the classic protocol may join it as it is."""
        return True

    @abstractmethod
    def die(self, now_ms: int) -> None:
        """It was removed, or handed to another coordinator; callbacks under way may still meet it."""

    @abstractmethod
    def tombstones(self) -> list[Record]:
        """Of the records of the group itself; its offsets have their own."""

    # --- Offsets

    def offset_fetch_error(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether the sender may read the offsets. A classic group does not ask who it is."""
        return ErrorCode.NONE

    @abstractmethod
    def transactional_commit_error(self, request: TransactionalCommitRequest) -> ErrorCode:
        """Whether the sender may commit in a transaction. Nobody has to say who it is."""

    @abstractmethod
    def offset_delete_error(self) -> ErrorCode:
        """Whether offsets may be deleted of topics that no member reads (KIP-496)."""

    @abstractmethod
    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Members read the topic, or may read it."""

    @abstractmethod
    def offset_expiration_condition(self) -> OffsetExpirationCondition | None:
        """How offsets expire now (KIP-211); None: they do not."""

    # --- Topics

    def subscribed_names(self) -> frozenset[str]:
        """Topics that the group is assigned by the coordinator, whether they exist or not."""
        return frozenset()

    def regexes(self) -> frozenset[str]:
        """Regular expressions that the coordinator resolves for the members."""
        return frozenset()

    @abstractmethod
    def topics_changed(self, names: Collection[str]) -> None:
        """These topics appeared, went or got partitions."""

    def consumer_topics(self) -> frozenset[str] | None:
        """Topics that classic members read or own, if they are consumers; None if they are not."""
        return frozenset()

    # --- Answers

    @abstractmethod
    def answer_all(self, error: ErrorCode) -> None:
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


def list_groups(groups: Iterable[Group], states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
    """Empty filters take all; names are compared without case."""
    wanted_states = {state.lower() for state in states}
    wanted_types = {group_type.lower() for group_type in types}
    return [
        listed
        for listed in (group.listed() for group in groups)
        if (not states or listed.state.lower() in wanted_states)
        and (not types or listed.group_type.lower() in wanted_types)
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
        """Whether the sender may commit; if so it is alive."""

    @abstractmethod
    def restart_timers(self, group: G, now_ms: int) -> None:
        """After loading, every member has its full time."""

    @abstractmethod
    def period_ms(self, group: G, timer: TimerKey) -> int:
        """How long the timer runs from its start, 0 if it waits for no member."""

    @abstractmethod
    def on_timer(self, group: G, timer: TimerKey, now_ms: int) -> None:
        """The timer is due. One that was started when the group had another type means nothing."""

    def release_waiting(self, group: G, error: ErrorCode) -> None:
        """Answer the members whose requests wait for other members; they may come again."""

    def replaced(self, group: G, now_ms: int) -> None:
        """A group of another type has taken this one's place: its members have to join that one."""
