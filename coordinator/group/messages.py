"""Requests to the group coordinator and its answers: the APIs' fields without their wire versions."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from sys import getsizeof

from coordinator.topics import TopicPartition
from protocol.kafka.errors import ErrorCode

UNKNOWN_MEMBER_ID = ""
NO_GENERATION = -1
NO_OFFSET = -1
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1


class RefusedError(Exception):
    """The request is answered with this error, and changes nothing."""

    def __init__(self, error: ErrorCode, message: str = "") -> None:
        super().__init__(message)
        self.error = error


@dataclass(frozen=True)
class JoinRequest:
    """`rebalance_timeout_ms` of version 0 is the session timeout. `protocols`: (name, metadata), preferred first.

    `require_member_id` (KIP-394) is for versions 4 and up of members without `group_instance_id`;
    `can_skip_assignment` (KIP-814) for versions 9 and up.
    """

    group_id: str
    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Sequence[tuple[str, bytes]]
    group_instance_id: str | None = None
    require_member_id: bool = False
    can_skip_assignment: bool = False
    reason: str | None = None


MAX_MEMBER_BYTES = 4 * 1024 * 1024
"""Of what a member of a consumer group subscribes to: one record has to hold it. The log would refuse a larger record,
and with it everything that the other members need."""


PROTOCOL_BYTES = 150
"""What a protocol takes besides its name and its metadata, which may both be empty."""


def metadata_bytes(protocols: Sequence[tuple[str, bytes]]) -> int:
    return sum(PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in protocols)


def texts_bytes(*texts: str | None) -> int:
    """What these take in memory: one wide character makes all of a text wide."""
    return sum(getsizeof(text) for text in texts if text)


@dataclass(frozen=True)
class JoinedMember:
    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True)
class JoinResponse:
    """`members` is filled for the leader only."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = UNKNOWN_MEMBER_ID
    members: Sequence[JoinedMember] = ()
    skip_assignment: bool = False


@dataclass(frozen=True)
class SyncRequest:
    group_id: str
    generation: int
    member_id: str
    assignments: Mapping[str, bytes] = field(default_factory=dict)
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None


@dataclass(frozen=True)
class SyncResponse:
    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol_name: str | None = None


JoinReply = Callable[[JoinResponse], None]
SyncReply = Callable[[SyncResponse], None]


@dataclass(frozen=True)
class HeartbeatRequest:
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True)
class LeavingMember:
    """An empty `member_id` removes the member that has `group_instance_id` (used by the admin client)."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class LeaveRequest:
    group_id: str
    members: Sequence[LeavingMember]


@dataclass(frozen=True)
class LeaveResponse:
    """`member_errors` has the order of the request's members. Versions 0-2 return its only error as their own."""

    error: ErrorCode
    member_errors: Sequence[ErrorCode] = ()


@dataclass(frozen=True)
class OffsetToCommit:
    """`commit_timestamp_ms` is only in version 1; `NO_TIMESTAMP` means now. `topic_id` is empty if it is not known."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str | None = ""
    commit_timestamp_ms: int = NO_TIMESTAMP
    topic_id: bytes = b""


@dataclass(frozen=True)
class CommitRequest:
    """`generation` below 0 with an empty member id is a simple consumer or an admin client.

    `generation` carries the member epoch of KIP-848 members, who must use version 9. `retention_ms` is an expiry that
    only versions 2-4 have.
    """

    group_id: str
    offsets: Mapping[TopicPartition, OffsetToCommit]
    member_id: str = UNKNOWN_MEMBER_ID
    generation: int = NO_GENERATION
    group_instance_id: str | None = None
    retention_ms: int | None = None
    version: int = 9


@dataclass(frozen=True, kw_only=True)
class TransactionalCommitRequest(CommitRequest):
    """TxnOffsetCommit: the offsets count when the producer's transaction is committed. Below version 3 without a
    member."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True)
class OpenTransaction:
    """The pending offsets of a producer. `first_order` is the order of the first of them, counted from 1."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """Of the last marker for the producer; -1 if it is not known."""
    first_order: int
    last_commit_ms: int


CommitResponse = Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True)
class EndOfTransaction:
    """A marker for all pending offsets of the producer.

    `transaction_version` is 2 if its producer epoch is higher than the epoch of the transaction (KIP-890).
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    transaction_version: int


@dataclass(frozen=True)
class FetchOffsetsRequest:
    """`partitions` None means all. `member_id` and `member_epoch` are from version 9, for KIP-848 members."""

    group_id: str
    partitions: Sequence[TopicPartition] | None = None
    require_stable: bool = False
    member_id: str | None = None
    member_epoch: int = -1


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    """`topic_id` is the id of the topic at the time of the commit, empty if it is not known."""

    offset: int = NO_OFFSET
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE
    topic_id: bytes = b""


@dataclass(frozen=True)
class FetchOffsetsResponse:
    error: ErrorCode
    offsets: Mapping[TopicPartition, FetchedOffset] = field(default_factory=dict)


@dataclass(frozen=True)
class DeleteOffsetsResponse:
    """With an `error` there are no `partition_errors`."""

    error: ErrorCode
    partition_errors: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)


@dataclass(frozen=True)
class ListedGroup:
    group_id: str
    protocol_type: str
    state: str
    group_type: str


@dataclass(frozen=True)
class ListResponse:
    error: ErrorCode
    groups: Sequence[ListedGroup]


@dataclass(frozen=True)
class DescribedMember:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes = b""
    assignment: bytes = b""


@dataclass(frozen=True)
class DescribedGroup:
    error: ErrorCode
    group_id: str
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: Sequence[DescribedMember] = ()
    message: str | None = None
    """The error that explains the state Dead."""


PartitionsByTopicId = Mapping[bytes, AbstractSet[int]]
"""A topic in the map has at least one partition."""


@dataclass(frozen=True)
class DescribedConsumer:
    """`assigned` is what the member may read now, `target` what it will read when all members have reconciled."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: AbstractSet[str]
    topic_regex: str | None
    assigned: PartitionsByTopicId
    target: PartitionsByTopicId
    is_classic: bool
    """The member uses the classic protocol."""


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
    topic_names: Mapping[bytes, str] = field(default_factory=dict)
