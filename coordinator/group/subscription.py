"""Topics that a classic consumer's metadata names, for OffsetDelete and offset expiry (KIP-211, KIP-496).

Only the part that every version of ConsumerProtocolSubscription starts with is read:
int16 version | [string] topics | bytes user data.
"""

from collections.abc import Iterable

from construct import ConstructError, Int16sb, Int32sb, Struct

from coordinator.group.record_fields import STRING, Lengthed, array

CONSUMER_PROTOCOL_TYPE = "consumer"

_SUBSCRIPTION = Struct(
    version=Int16sb,
    topics=array(STRING),
    user_data=Lengthed(Int32sb, 0, text=False, nullable=True),
)


def subscribed_topics(metadata_of_members: Iterable[bytes]) -> frozenset[str] | None:
    """The union of the members' topics; None if any member's metadata is not a consumer's."""
    topics: set[str] = set()
    for metadata in metadata_of_members:
        try:
            topics.update(_SUBSCRIPTION.parse(metadata).topics)
        except (ConstructError, UnicodeDecodeError):
            return None
    return frozenset(topics)
