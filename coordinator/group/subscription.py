"""Metadata that members of classic consumer groups exchange through the coordinator: subscriptions and assignments.

ConsumerProtocolSubscription: int16 version | [string] topics | bytes user data | from v1: [string topic, [int32]] owned
| fields of newer versions. ConsumerProtocolAssignment: int16 version | [string topic, [int32]] | bytes user data.
From the later fields of a subscription only the owned partitions are read. Offset deletion and expiry (KIP-211,
KIP-496), and groups with members of both protocols (KIP-848), use them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from construct import Construct, ConstructError, Int16sb, Int32sb, Struct

from coordinator.group.records.fields import STRING, Lengthed, array

CONSUMER_PROTOCOL_TYPE = "consumer"
OWNED_VERSION = 1

_NULLABLE_BYTES = Lengthed(Int32sb, 0, text=False, nullable=True)
_PARTITIONS = array(Struct(topic=STRING, partitions=array(Int32sb)))
_HEAD: dict[str, Construct] = {"version": Int16sb, "topics": array(STRING), "user_data": _NULLABLE_BYTES}
_SUBSCRIPTION = Struct(**_HEAD)
_SUBSCRIPTION_WITH_OWNED = Struct(**_HEAD, owned=_PARTITIONS)
_ASSIGNMENT = Struct(version=Int16sb, assigned=_PARTITIONS, user_data=_NULLABLE_BYTES)

PartitionsByTopic = Mapping[str, Sequence[int]]


class MalformedSubscriptionError(Exception):
    """The bytes are not the metadata of a consumer."""


class Subscription(NamedTuple):
    version: int
    topics: frozenset[str]
    owned: PartitionsByTopic


def read_subscription(metadata: bytes) -> Subscription:
    """Raises MalformedSubscriptionError."""
    try:
        read = _SUBSCRIPTION.parse(metadata)
        owned = _SUBSCRIPTION_WITH_OWNED.parse(metadata).owned if read.version >= OWNED_VERSION else ()
    except (ConstructError, UnicodeDecodeError) as error:
        raise MalformedSubscriptionError(str(error)) from error
    return Subscription(read.version, frozenset(read.topics), {each.topic: list(each.partitions) for each in owned})


def read_assignment(data: bytes) -> PartitionsByTopic:
    """Nothing for empty bytes. Raises MalformedSubscriptionError."""
    try:
        assigned = _ASSIGNMENT.parse(data).assigned if data else ()
    except (ConstructError, UnicodeDecodeError) as error:
        raise MalformedSubscriptionError(str(error)) from error
    return {each.topic: list(each.partitions) for each in assigned}


def write_assignment(version: int, assigned: PartitionsByTopic) -> bytes:
    """In the consumer protocol's `version`, which is the version of the member's subscription."""
    rows = [{"topic": topic, "partitions": sorted(partitions)} for topic, partitions in sorted(assigned.items())]
    data: bytes = _ASSIGNMENT.build({"version": version, "assigned": rows, "user_data": None})
    return data


def subscribed_topics(metadata_of_members: Iterable[bytes]) -> frozenset[str] | None:
    """The union of the members' topics; None if a member's metadata is not a consumer's."""
    topics: set[str] = set()
    for metadata in metadata_of_members:
        try:
            topics.update(_SUBSCRIPTION.parse(metadata).topics)
        except (ConstructError, UnicodeDecodeError):
            return None
    return frozenset(topics)
