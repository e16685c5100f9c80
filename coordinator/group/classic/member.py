"""A member of a classic group, and its requests that wait for other members."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from coordinator.group.messages import JoinReply, SyncReply, metadata_bytes, texts_bytes


@dataclass(slots=True)
class ClassicMember:
    """`protocols` are (name, metadata) in the member's order of preference."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Sequence[tuple[str, bytes]]
    assignment: bytes = b""
    is_new: bool = False
    """It has joined, but is not part of a generation yet: its waiting JoinGroup can time out."""
    join_reply: JoinReply | None = None
    sync_reply: SyncReply | None = None
    counted_bytes: int = 0
    """Its part of the group's `metadata_bytes`."""

    @property
    def memory_bytes(self) -> int:
        """Of what clients chose: protocols, ids, and what the leader assigned."""
        ids = texts_bytes(self.member_id, self.group_instance_id, self.client_id, self.client_host)
        return metadata_bytes(self.protocols) + ids + len(self.assignment)

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def waits_for_coordinator(self) -> bool:
        """A waiting request shows that the member is alive: its session does not expire meanwhile."""
        return not self.is_new and (self.join_reply is not None or self.sync_reply is not None)

    def metadata(self, protocol_name: str) -> bytes:
        return next(metadata for name, metadata in self.protocols if name == protocol_name)

    def vote(self, candidates: AbstractSet[str]) -> str:
        return next(name for name, _ in self.protocols if name in candidates)
