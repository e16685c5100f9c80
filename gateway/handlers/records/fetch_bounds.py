"""What a fetch may hold, and for how long."""

from __future__ import annotations

from gateway.fetching.delayed_fetch import MAX_WAIT_MS
from gateway.requests.call import LARGE_FRAME_BYTES, Call
from gateway.requests.cluster import Cluster
from protocol.kafka.messages.records import FetchRequest

WHOLE_FIRST_BATCH_VERSION = 3
LARGE_PARTITIONS = 2_000
"""About as many as a request of LARGE_FRAME_BYTES names. In a session (KIP-227), a request need not name them."""
LARGE_WAIT_MS = 1_000
"""A large fetch waits no longer, because it holds memory, also such in which other requests would be decoded. Its
client gets what there is, and asks again; in a session, it names only changes then."""


def max_bytes(call: Call[FetchRequest]) -> int:
    """The maximum size of the records in the response, except for its first batch."""
    asked_bytes = call.request.max_bytes if call.version >= WHOLE_FIRST_BATCH_VERSION else 2**31 - 1
    return min(asked_bytes, call.cluster.config.limits.max_fetch_bytes)


def min_bytes(call: Call[FetchRequest]) -> int:
    """The fetch waits for this size of the records. As in Kafka, it is not more than the response may contain."""
    return min(call.request.min_bytes, max_bytes(call))


def is_room_for_answers(cluster: Cluster) -> bool:
    """If not, a fetch gets one batch, until clients have read their answers."""
    return cluster.unread.size_bytes <= cluster.config.limits.fetch_budget_bytes


def max_wait_ms(call: Call[FetchRequest], partitions: int) -> int:
    """How long the fetch of this number of partitions may wait for min_bytes; not below zero."""
    if call.client.has_ended:
        return 0
    is_large = partitions > LARGE_PARTITIONS or (call.frame is not None and len(call.frame) > LARGE_FRAME_BYTES)
    return min(max(0, call.request.max_wait_ms), LARGE_WAIT_MS if is_large else MAX_WAIT_MS)
