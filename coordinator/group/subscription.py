"""Metadata that members of classic consumer groups exchange through the coordinator: subscriptions and assignments.

ConsumerProtocolSubscription: int16 version | [string topic] | bytes user data | from v1: [string topic, [int32]] owned
| fields of newer versions. ConsumerProtocolAssignment: int16 version | [string topic, [int32]] | bytes user data.
Strings have an int16 length, arrays and bytes an int32 length, -1 for no user data. From the later fields of a
subscription only the owned partitions are read. Offset deletion and expiry (KIP-211, KIP-496), and groups with members
of both protocols (KIP-848), use them. A rebalance reads those of all members, so they are read by hand.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import Struct, pack, unpack_from
from struct import error as StructError
from typing import NamedTuple

from coordinator.group.records.offset_commit_codec import decode_string, encode_string

CONSUMER_PROTOCOL_TYPE = "consumer"
OWNED_VERSION = 1
MAX_BYTES = 1024 * 1024
"""Longer metadata is not read: the event loop waits for it. 5,000 topics need 250 KB, with names of average length."""

MAX_TOPICS = 100_000
"""More topics of one group's members are not read at once. Members mostly name the same ones, which count once."""

_VERSION, _COUNT = Struct(">h"), Struct(">i")
_NO_USER_DATA = _COUNT.pack(-1)

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
        version, topics, at = _read_topics(metadata)
        at = _skip_bytes(metadata, at)
        owned = _read_partitions(metadata, at)[0] if version >= OWNED_VERSION else {}
    except (StructError, ValueError) as error:
        raise MalformedSubscriptionError(str(error)) from error
    return Subscription(version, topics, owned)


def version_of(metadata: bytes) -> int:
    """The version of a subscription, which has been read before: it may have very many topics."""
    [version] = _VERSION.unpack_from(metadata)
    return version  # type: ignore[no-any-return]


def read_assignment(data: bytes) -> PartitionsByTopic:
    """Nothing for empty bytes. Raises MalformedSubscriptionError."""
    try:
        if not data:
            return {}
        _check_size(data)
        _VERSION.unpack_from(data)
        assigned, at = _read_partitions(data, _VERSION.size)
        _skip_bytes(data, at)
    except (StructError, ValueError) as error:
        raise MalformedSubscriptionError(str(error)) from error
    return assigned


def write_assignment(version: int, assigned: PartitionsByTopic) -> bytes:
    """In the consumer protocol's `version`, which is the version of the member's subscription."""
    parts = [_VERSION.pack(version), _COUNT.pack(len(assigned))]
    for topic, partitions in sorted(assigned.items()):
        parts += encode_string(topic), pack(f">i{len(partitions)}i", len(partitions), *sorted(partitions))
    return b"".join((*parts, _NO_USER_DATA))


def subscribed_topics(metadata_of_members: Iterable[bytes]) -> frozenset[str] | None:
    """The union of the members' topics; None if a member's metadata is not a consumer's, or there are too many."""
    names = _Names()
    topics: set[str] = set()
    last = frozenset[str]()
    try:
        for metadata in metadata_of_members:
            of_member, at = names.read(metadata)
            _skip_bytes(metadata, at)
            if of_member is not last:  # mostly, all members name the same ones
                topics |= of_member
            last = of_member
    except (StructError, ValueError):
        return None
    return frozenset(topics)


class ConsumerOfGroup(NamedTuple):
    """What a classic member reads, and what it was assigned."""

    subscription: Subscription
    assigned: PartitionsByTopic


def read_consumers(members: Sequence[tuple[bytes, bytes]]) -> Iterator[ConsumerOfGroup]:
    """From (metadata, assignment) of a group's members. Raises MalformedSubscriptionError, also if they name too many
    topics: then few or none of them are read."""
    names = _Names()
    try:
        names.take(sum(_assigned_count(assignment) for _, assignment in members))
        for metadata, assignment in members:
            topics, at = names.read(metadata)
            [version] = _VERSION.unpack_from(metadata)
            at = _skip_bytes(metadata, at)
            if version >= OWNED_VERSION:
                names.take(_read_count(metadata, at)[0])
            owned = _read_partitions(metadata, at)[0] if version >= OWNED_VERSION else {}
            yield ConsumerOfGroup(Subscription(version, topics, owned), read_assignment(assignment))
    except (StructError, ValueError) as error:
        raise MalformedSubscriptionError(str(error)) from error


def topics_of(consumers: Iterable[ConsumerOfGroup]) -> frozenset[str]:
    """Every topic that they read or own."""
    topics: set[str] = set()
    last = frozenset[str]()
    for (_, named, owned), assigned in consumers:
        if named is not last:  # mostly, all members name the same ones
            topics.update(named)
        last = named
        topics.update(owned, assigned)
    return frozenset(topics)


class _Names:
    """The names of topics in the metadata of a group's members. Those that a member names like the one before it are
    read once."""

    def __init__(self) -> None:
        self._left = MAX_TOPICS
        self._encoded: bytes | None = None
        self._topics = frozenset[str]()

    def take(self, count: int) -> None:
        """Raises ValueError if so many more are too many."""
        self._left -= count
        if self._left < 0:
            raise ValueError(f"more than {MAX_TOPICS} topics")

    def read(self, metadata: bytes) -> tuple[frozenset[str], int]:
        """The topics, and where they end. Raises struct.error or ValueError."""
        _check_size(metadata)
        if self._encoded is None or not metadata.startswith(self._encoded, _VERSION.size):
            self.take(_read_count(metadata, _VERSION.size)[0])
            _, self._topics, end = _read_topics(metadata)
            self._encoded = metadata[_VERSION.size : end]
        return self._topics, _VERSION.size + len(self._encoded)


# All of these raise struct.error or ValueError. They return the position after what they have read, too.


def _check_size(data: bytes) -> None:
    if len(data) > MAX_BYTES:
        raise ValueError(f"{len(data)} bytes")


def _read_topics(metadata: bytes) -> tuple[int, frozenset[str], int]:
    """The version and the topics of a subscription."""
    _check_size(metadata)
    [version] = _VERSION.unpack_from(metadata)
    count, at = _read_count(metadata, _VERSION.size)
    if count > MAX_TOPICS:
        raise ValueError(f"{count} topics")
    topics = []
    for _ in range(count):
        topic, at = decode_string(metadata, at)
        topics.append(topic)
    return version, frozenset(topics), at


def _assigned_count(assignment: bytes) -> int:
    """The number of topics of an assignment, which is not read."""
    return _read_count(assignment, _VERSION.size)[0] if assignment else 0


def _read_partitions(data: bytes, at: int) -> tuple[dict[str, list[int]], int]:
    """A client may name a topic several times: its partitions are those of all of them, as in Kafka."""
    count, at = _read_count(data, at)
    if count > MAX_TOPICS:
        raise ValueError(f"{count} topics")
    partitions: dict[str, list[int]] = {}
    for _ in range(count):
        topic, at = decode_string(data, at)
        length, at = _read_count(data, at)
        end = at + _COUNT.size * length
        if end > len(data):
            raise ValueError("an array that does not end")
        partitions.setdefault(topic, []).extend(unpack_from(f">{length}i", data, at))
        at = end
    return partitions, at


def _read_count(data: bytes, at: int) -> tuple[int, int]:
    count: int = _COUNT.unpack_from(data, at)[0]
    if count < 0:
        raise ValueError(f"an array of {count}")
    return count, at + _COUNT.size


def _skip_bytes(data: bytes, at: int) -> int:
    length: int = _COUNT.unpack_from(data, at)[0]
    end = at + _COUNT.size + max(length, 0)
    if length < -1 or end > len(data):
        raise ValueError("bytes that do not end")
    return end
