"""What gateways write to the fleet's log: JSON objects, one an entry.

Each carries what its writer knew of the fleet, so that a gateway which starts need only read the last entry, and
what was written since that entry's `snapshot.position`.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

MAX_NODE_ID = 2**31 - 1
NO_EPOCH = -1
"""Before the first gateway joined."""
NO_TRANSACTIONS = -1
"""Of a gateway of before there were any, which says nothing of them."""


class LogPosition(NamedTuple):
    ledger_id: int
    entry_id: int


class _Part(BaseModel):
    """Fields of later versions are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Address(_Part):
    host: str
    port: int


class Member(_Part):
    """A gateway, as long as one process of it lives."""

    node_id: int = Field(ge=0, le=MAX_NODE_ID)
    incarnation: str
    """Of this process, since it last joined."""
    instance: str
    """Where it listens. Two living gateways cannot have one in common, so a newer one replaces the older at once."""
    addresses: dict[str, Address]
    """Where clients find it, by listener."""
    forwarding: Address | None = None
    """Where other gateways pass on what their clients want of this one."""
    rack: str | None = None
    transaction_version: int = NO_TRANSACTIONS
    """The highest of Kafka's `transaction.version` that it serves."""
    clusters: tuple[str, ...] = ()
    """Clusters that it serves besides the fleet's own, each `tenant/namespace`, or `tenant/*` for all of a tenant.
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
    """Of its last heartbeat."""
    drained_epoch: int = Field(
        validation_alias=AliasChoices("settled_epoch", "drained_epoch"), serialization_alias="settled_epoch"
    )  # the name in the log, which older gateways read
    """It has released everything that it lost up to this epoch."""
    leaving: bool = False


class Snapshot(_Part):
    """The fleet as the log has it up to `position`, inclusive."""

    epoch: int
    position: LogPosition | None
    members: tuple[MemberState, ...]
    evicted: tuple[str, ...] = ()
    """Incarnations that were evicted last, the latest one at the end; older gateways do not write them."""


class Heartbeat(_Part):
    kind: Literal["heartbeat"] = "heartbeat"
    state: MemberState
    joining: bool = False
    """Its sender does not know itself to be a member: only then does it become one."""
    snapshot: Snapshot


class Goodbye(_Part):
    """Its sender leads nothing any more."""

    kind: Literal["goodbye"] = "goodbye"
    node_id: int
    incarnation: str
    snapshot: Snapshot


class Eviction(_Part):
    """A member is presumed dead: no heartbeat after its `sequence` was read. Void if the log has a later one before."""

    kind: Literal["eviction"] = "eviction"
    node_id: int
    incarnation: str
    sequence: int
    snapshot: Snapshot


class Deletion(_Part):
    """Topics are gone: what gateways know and keep of them is of no use any more."""

    kind: Literal["deletion"] = "deletion"
    topics: tuple[str, ...]
    topic_ids: dict[str, Annotated[str, Field(pattern="^[0-9a-f]{32}$")]] = {}
    """Ids of the topics in hexadecimal; older gateways do not write them."""
    deleted_ms: int = 0
    """Since the epoch."""
    snapshot: Snapshot


Message = Heartbeat | Goodbye | Eviction | Deletion
_MESSAGE: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="kind")])


class MalformedMessageError(Exception):
    """An entry of the log that no gateway wrote."""


def encode_message(message: Message) -> bytes:
    return message.model_dump_json(by_alias=True).encode()


def decode_message(data: bytes) -> Message:
    """Raises MalformedMessageError."""
    try:
        return _MESSAGE.validate_json(data)
    except ValidationError as error:
        raise MalformedMessageError(f"{error.error_count()} errors, the first: {error.errors()[0]['msg']}") from None
