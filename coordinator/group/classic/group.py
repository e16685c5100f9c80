"""A classic group as data: members, leader, common protocols, state. `ClassicProtocol` serves its members."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from coordinator.group.classic.member import ClassicMember
from coordinator.group.classic.states import PREVIOUS_STATES, ClassicGroupState
from coordinator.group.group import Group, GroupType
from coordinator.group.messages import (
    UNKNOWN_MEMBER_ID,
    DescribedGroup,
    DescribedMember,
    JoinedMember,
    JoinReply,
    JoinResponse,
    SyncReply,
    SyncRequest,
    SyncResponse,
    TransactionalCommitRequest,
    texts_bytes,
)
from coordinator.group.offsets.group_offsets import OffsetExpirationCondition
from coordinator.group.records.codec import encode_record
from coordinator.group.records.group_metadata import GroupMetadataKey
from coordinator.group.subscription import (
    CONSUMER_PROTOCOL_TYPE,
    ConsumerOfGroup,
    MalformedSubscriptionError,
    read_consumers,
    subscribed_topics,
    topics_of,
)
from coordinator.group.supported_protocols import SupportedProtocols, names_of
from coordinator.log import Record
from coordinator.slices import SliceCounter, Steps
from protocol.kafka.errors import ErrorCode

PENDING_BYTES = 500
"""What a member that has only got an id takes besides the id: a timer, above all."""


@dataclass
class InitialDelay:
    """An empty group waits for its first members: `delay_ms` longer for each further member that joins."""

    delay_ms: int
    remaining_ms: int
    member_added: bool = False


class ClassicGroup(Group):
    """Members keep their order of arrival, so that a leader's successor is the oldest member."""

    type: Literal[GroupType.CLASSIC] = GroupType.CLASSIC

    def __init__(self, group_id: str, now_ms: int) -> None:
        super().__init__(group_id)
        self.state = ClassicGroupState.EMPTY
        self.state_timestamp_ms: int | None = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}  # group.instance.id -> member id
        # session timeouts by member ids (KIP-394) whose members have yet to join
        self.pending_members: dict[str, int] = {}
        self.pending_sync: set[str] = set()
        self.subscribed_topics: frozenset[str] | None = None  # None: not known
        self.initial_delay: InitialDelay | None = None  # while the first members join
        self.stores_assignment = False  # the leader's assignment is being written to the log
        self._supported = SupportedProtocols()
        self._joining = 0
        self._metadata_bytes = 0
        self.version = 0  # increases with each change of what members have sent, or were assigned

    # --- Members

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._supported.add(member.protocols)
        self._count(member)
        self.drop_pending(member.member_id)

    def add_pending(self, member_id: str, session_timeout_ms: int) -> None:
        self.pending_members[member_id] = session_timeout_ms
        self._metadata_bytes += PENDING_BYTES + texts_bytes(member_id)

    def drop_pending(self, member_id: str) -> None:
        if self.pending_members.pop(member_id, None) is not None:
            self._metadata_bytes -= PENDING_BYTES + texts_bytes(member_id)

    def remove(self, member_id: str) -> None:
        """The member's waiting requests must have been answered."""
        self.drop_pending(member_id)
        self.pending_sync.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._supported.remove(member.protocols)
        self.version += 1
        self._metadata_bytes -= member.counted_bytes
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def update(
        self,
        member: ClassicMember,
        protocols: Sequence[tuple[str, bytes]],
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> None:
        self._supported.remove(member.protocols)
        member.protocols = protocols
        self._supported.add(protocols)
        self._count(member)
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms

    def _count(self, member: ClassicMember) -> None:
        self.version += 1
        before, member.counted_bytes = member.counted_bytes, member.memory_bytes
        self._metadata_bytes += member.counted_bytes - before

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Members that are not in it get none."""
        self.version += 1
        for member in self.members.values():
            before, member.assignment = member.assignment, assignments.get(member.member_id, b"")
            growth = len(member.assignment) - len(before)
            member.counted_bytes += growth
            self._metadata_bytes += growth

    def assigned_growth(self, request: SyncRequest) -> int:
        """How many more bytes are assigned to the members once this request is processed."""
        assigns = self.state is ClassicGroupState.COMPLETING_REBALANCE and request.member_id == self.leader_id
        if not assigns or request.generation != self.generation or self.stores_assignment:
            return 0
        assigned, members = request.assignments, self.members.values()
        return sum(len(assigned.get(each.member_id, b"")) - len(each.assignment) for each in members)

    def rename_static(self, member: ClassicMember, new_member_id: str) -> None:
        """A static member that restarted continues with a new id, in its old place."""
        old_member_id = member.member_id
        member.member_id = new_member_id
        self._count(member)
        self.members = {m.member_id: m for m in self.members.values()}
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        if old_member_id in self.pending_sync:
            self.pending_sync.remove(old_member_id)
            self.pending_sync.add(new_member_id)
        assert member.group_instance_id is not None
        self.static_members[member.group_instance_id] = new_member_id

    def member_error(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Whether the sender is a member, and is not fenced by another one with its instance id."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is not None and current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # --- Requests that wait for other members

    @property
    def joining_count(self) -> int:
        return self._joining

    @property
    def all_have_joined(self) -> bool:
        return self._joining == len(self.members) and not self.pending_members

    def await_join(self, member: ClassicMember, reply: JoinReply) -> None:
        """Answer an earlier JoinGroup of the member that still waits: this one replaces it."""
        self.answer_join(member, JoinResponse(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        member.join_reply = reply
        self._joining += 1

    def answer_join(self, member: ClassicMember, response: JoinResponse) -> None:
        reply, member.join_reply = member.join_reply, None
        if reply is not None:
            self._joining -= 1
            reply(response)

    def await_sync(self, member: ClassicMember, reply: SyncReply) -> None:
        self.answer_sync(member, SyncResponse(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_reply = reply

    def answer_sync(self, member: ClassicMember, response: SyncResponse) -> bool:
        """Whether there was a request to answer."""
        reply, member.sync_reply = member.sync_reply, None
        if reply is not None:
            reply(response)
        return reply is not None

    def answer_all(self, error: ErrorCode) -> Steps:
        counter = SliceCounter()
        for member in self.members.values():
            if member.join_reply is not None:
                self.answer_join(member, JoinResponse(error, member.member_id))
            if member.sync_reply is not None:
                self.answer_sync(member, SyncResponse(error))
            if counter.is_full(1):
                yield

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicGroupState.EMPTY

    @property
    def metadata_bytes(self) -> int:
        return self._metadata_bytes

    @property
    def state_name(self) -> str:
        return self.state.value

    def die(self, now_ms: int) -> None:
        self.transition_to(ClassicGroupState.DEAD, now_ms)

    # --- Protocols and generations

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supports(self, protocol_type: str, protocols: Sequence[tuple[str, bytes]]) -> bool:
        """Whether a member with these protocols could be a member of this group. All members may have left again."""
        if len(names_of(protocols)) < len(protocols):  # it would count twice among those that support a protocol
            return False
        if self.state is ClassicGroupState.EMPTY:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and self._supported.have_common(protocols)

    def select_protocol(self) -> str:
        """Of the protocols that all members support, the one that most members prefer."""
        candidates = self._supported.by_all()
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def transition_to(self, state: ClassicGroupState, now_ms: int) -> None:
        assert self.state in PREVIOUS_STATES[state], f"{self.group_id}: {self.state} to {state}"
        self.state = state
        self.state_timestamp_ms = now_ms

    def start_generation(self, now_ms: int) -> None:
        """All expected members have joined. Without any, the group is empty."""
        self.generation += 1
        self.version += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.refresh_subscribed_topics()
        self.pending_sync.clear()
        self.stores_assignment = False
        self.transition_to(ClassicGroupState.COMPLETING_REBALANCE if self.members else ClassicGroupState.EMPTY, now_ms)

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has rejoined, else choose a member that has; False if there is none."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_reply is None:
            joined = next((m for m in self.members.values() if m.join_reply is not None), None)
            if joined is None:
                return False
            self.leader_id = joined.member_id
        return True

    def refresh_subscribed_topics(self) -> None:
        self.subscribed_topics = None
        if self.protocol_type == CONSUMER_PROTOCOL_TYPE and (not self.members or self.protocol_name is not None):
            self.subscribed_topics = subscribed_topics(
                member.metadata(self.protocol_name or "") for member in self.members.values()
            )

    def each_consumer(self) -> Iterator[tuple[str, ConsumerOfGroup]]:
        """What each member reads. Raises MalformedSubscriptionError if they are not consumers, or their topics are too
        many."""
        if self.members and self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise MalformedSubscriptionError(f"members of the type {self.protocol_type}")
        found = read_consumers([(each.protocols[0][1], each.assignment) for each in self.members.values()])
        return zip(self.members, found, strict=True)

    def consumer_topics(self) -> frozenset[str] | None:
        try:
            return topics_of(consumer for _, consumer in self.each_consumer())
        except MalformedSubscriptionError:
            return None

    def topics_changed(self, names: Collection[str]) -> None:
        """The members themselves watch the topics."""

    def is_subscribed_to_topic(self, topic: str) -> bool:
        if self.state is ClassicGroupState.EMPTY:
            return False
        return self.subscribed_topics is None or topic in self.subscribed_topics

    def transactional_commit_error(self, request: TransactionalCommitRequest) -> ErrorCode:
        """Allowed in every state of the group: the offsets do not count yet."""
        is_anonymous = request.member_id == UNKNOWN_MEMBER_ID and request.group_instance_id is None
        if request.generation < 0 and (self.is_empty or is_anonymous):
            return ErrorCode.NONE
        error = self.member_error(request.member_id, request.group_instance_id)
        if not error and request.generation != self.generation:
            error = ErrorCode.ILLEGAL_GENERATION
        return error

    def offset_delete_error(self) -> ErrorCode:
        """Offsets of a group with members can be deleted only if the topics of its members are known."""
        deletable = self.state is ClassicGroupState.EMPTY or self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return ErrorCode.NONE if deletable else ErrorCode.NON_EMPTY_GROUP

    def offset_expiration_condition(self) -> OffsetExpirationCondition | None:
        """The condition under which offsets expire (KIP-211); None: they do not."""
        if self.protocol_type is None:  # of a simple consumer
            return OffsetExpirationCondition()
        if self.state is ClassicGroupState.EMPTY:
            return OffsetExpirationCondition(since_ms=self.state_timestamp_ms)
        if self.state is ClassicGroupState.STABLE and self.subscribed_topics is not None:
            return OffsetExpirationCondition(subscribed_topics=self.subscribed_topics)
        return None

    # --- Answers

    def join_response(self, member_id: str) -> JoinResponse:
        """The current generation, as the member's JoinGroup response."""
        return JoinResponse(
            ErrorCode.NONE,
            member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.leader_id or "",
            self.joined_members() if member_id == self.leader_id else (),
        )

    def joined_members(self) -> list[JoinedMember]:
        assert self.protocol_name is not None
        return [
            JoinedMember(m.member_id, m.group_instance_id, m.metadata(self.protocol_name))
            for m in self.members.values()
        ]

    def sync_response(self, member: ClassicMember) -> SyncResponse:
        return SyncResponse(ErrorCode.NONE, member.assignment, self.protocol_type, self.protocol_name)

    def tombstones(self) -> Iterator[Record]:
        """A group that never had a generation was never written."""
        if self.generation > 0:
            yield encode_record(GroupMetadataKey(self.group_id), None)

    def describe(self) -> DescribedGroup:
        """Metadata is shown only in a stable group; assignments until members get others, as in Kafka."""
        stable = self.state is ClassicGroupState.STABLE and self.protocol_name is not None
        protocol = self.protocol_name if stable else None
        members = [
            DescribedMember(
                m.member_id,
                m.group_instance_id,
                m.client_id,
                m.client_host,
                m.metadata(protocol) if protocol is not None else b"",
                m.assignment,
            )
            for m in self.members.values()
        ]
        return DescribedGroup(
            ErrorCode.NONE, self.group_id, self.state.value, self.protocol_type or "", protocol or "", members
        )
