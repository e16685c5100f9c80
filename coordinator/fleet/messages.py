"""The entries of the fleet's log: JSON objects, one for each entry.

Many end with a snapshot: the fleet as its writer knew it. So a gateway that starts reads only the last snapshot, and
the entries since the `snapshot.position` in it. Gateways that read on do not look at it: in a large fleet it is nearly
all of an entry.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

MAX_NODE_ID = 2**31 - 1
NO_EPOCH = -1
"""The epoch before the first gateway joined."""
NO_TRANSACTIONS = -1
"""The incarnation of a gateway of an older version, which does not write any."""


class LogPosition(NamedTuple):
    ledger_id: int
    entry_id: int


class _Part(BaseModel):
    """Unknown fields of later versions are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Address(_Part):
    host: str
    port: int


class Member(_Part):
    """One process of a gateway, as long as it lives."""

    node_id: int = Field(ge=0, le=MAX_NODE_ID)
    incarnation: str
    """Identifies this process, since it last joined."""
    instance: str
    """The addresses where it listens. Two living gateways cannot share one, so a newer one replaces the older at once.
    """
    addresses: dict[str, Address]
    """The addresses that clients use, by listener."""
    forwarding: Address | None = None
    """The address to which other gateways forward requests."""
    rack: str | None = None
    transaction_version: int = NO_TRANSACTIONS
    """The highest `transaction.version` of Kafka that it serves."""
    clusters: tuple[str, ...] = ()
    """The clusters that it serves besides the fleet's own, each `tenant/namespace`, or `tenant/*` for all of a tenant.
    Older gateways serve none."""
    lease_ms: int = Field(gt=0)
    started_ms: int

    def __hash__(self) -> int:
        return hash(self.incarnation)

    def serves(self, cluster: str) -> bool:
        """A cluster besides the fleet's own."""
        tenant = cluster.partition("/")[0]
        return cluster in self.clusters or f"{tenant}/*" in self.clusters


class MemberState(_Part):
    member: Member
    sequence: int
    """The sequence of its last heartbeat."""
    drained_epoch: int = Field(
        validation_alias=AliasChoices("settled_epoch", "drained_epoch"), serialization_alias="settled_epoch"
    )  # The name in the log, which older gateways read.
    """It has released everything that it lost up to this epoch."""
    leaving: bool = False


class Turn(_Part):
    """The gateway ``incarnation`` changes a topic, or waits until it may."""

    topic: str
    request_id: str
    incarnation: str


class Snapshot(_Part):
    """The fleet as of `position` of the log, inclusive."""

    epoch: int
    position: LogPosition | None
    members: tuple[MemberState, ...]
    evicted: tuple[str, ...] = ()
    """The incarnations that were evicted last, oldest first. Older gateways do not write them."""
    turns: tuple[Turn, ...] = ()
    """Those of one topic are in their order. Older gateways do not write them."""


class Heartbeat(_Part):
    kind: Literal["heartbeat"] = "heartbeat"
    state: MemberState
    joining: bool = False
    """Its sender does not know yet that it is a member. Only such a heartbeat makes it one."""
    snapshot: Snapshot | None = None


class Goodbye(_Part):
    """Its sender leads nothing any more."""

    kind: Literal["goodbye"] = "goodbye"
    node_id: int
    incarnation: str
    snapshot: Snapshot | None = None


class Eviction(_Part):
    """A member is presumed dead: no heartbeat after its `sequence` was read. Void if a later one precedes it in the
    log."""

    kind: Literal["eviction"] = "eviction"
    node_id: int
    incarnation: str
    sequence: int
    snapshot: Snapshot | None = None


class Deletion(_Part):
    """Topics were deleted: gateways drop everything that they cached or stored for them."""

    kind: Literal["deletion"] = "deletion"
    topics: tuple[str, ...]
    topic_ids: dict[str, Annotated[str, Field(pattern="^[0-9a-f]{32}$")]] = {}
    """Ids of the topics in hexadecimal. Older gateways do not write them."""
    deleted_ms: int = 0
    """Milliseconds since the epoch."""
    snapshot: Snapshot | None = None


class TopicStop(_Part):
    """The gateway ``incarnation`` is about to delete a topic: the others stop using it, and answer."""

    kind: Literal["topic_stop"] = "topic_stop"
    topic: str
    request_id: str
    incarnation: str
    snapshot: Snapshot | None = None


class TopicStopped(_Part):
    """The answer to a `TopicStop`: the gateway ``incarnation`` uses the topic no more."""

    kind: Literal["topic_stopped"] = "topic_stopped"
    request_id: str
    incarnation: str
    snapshot: Snapshot | None = None


class TopicTurn(_Part):
    """The gateway ``incarnation`` wants to change a topic: it is its turn after those that are in the log already."""

    kind: Literal["topic_turn"] = "topic_turn"
    topic: str
    request_id: str
    incarnation: str
    snapshot: Snapshot | None = None


class TopicTurnEnd(_Part):
    """Its sender changes the topic no more."""

    kind: Literal["topic_turn_end"] = "topic_turn_end"
    topic: str
    request_id: str
    snapshot: Snapshot | None = None


_SNAPSHOT = b',"snapshot":{"epoch":'
"""How it begins, as it is written; in a string the quotes would be escaped."""
Message = Heartbeat | Goodbye | Eviction | Deletion | TopicStop | TopicStopped | TopicTurn | TopicTurnEnd
_MESSAGE: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="kind")])


class MalformedMessageError(Exception):
    """An entry of the log that no gateway wrote."""


def encode_message(message: Message) -> bytes:
    return message.model_dump_json(by_alias=True).encode()


def has_snapshot(data: bytes) -> bool:
    """Of a message as a gateway writes it."""
    return _SNAPSHOT in data


def decode_without_snapshot(data: bytes) -> Message:
    """A message without its snapshot, which is not looked at. Raises MalformedMessageError."""
    head, found, _ = data.partition(_SNAPSHOT)
    return decode_message(head + b"}" if found else data)


def decode_message(data: bytes) -> Message:
    """Raises MalformedMessageError."""
    try:
        return _MESSAGE.validate_json(data)
    except ValidationError as error:
        raise MalformedMessageError(f"{error.error_count()} errors, the first: {error.errors()[0]['msg']}") from None
