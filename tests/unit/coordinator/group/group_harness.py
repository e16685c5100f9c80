"""A coordinator with a log in memory, whose appends succeed or fail when the test says so."""

from collections import Counter
from collections.abc import Mapping, Set
from typing import Any, Generic, TypeVar, cast

from coordinator.group.classic.group import PENDING_BYTES
from coordinator.group.config import GroupConfig
from coordinator.group.consumer.assignment import TopicInfo
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.messages import ConsumerHeartbeatRequest, ConsumerHeartbeatResponse
from coordinator.group.coordinator import GroupCoordinator
from coordinator.group.messages import (
    CommitRequest,
    EndOfTransaction,
    HeartbeatRequest,
    JoinRequest,
    JoinResponse,
    LeaveRequest,
    LeavingMember,
    OffsetToCommit,
    SyncRequest,
    SyncResponse,
    TransactionalCommitRequest,
    texts_bytes,
)
from coordinator.group.ports import GroupTopicPartition, OwnTimes
from coordinator.group.records.codec import decode_record
from coordinator.topic_regex import matching
from coordinator.topics import DeletedTopic, TopicPartition
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.memory_log import MemoryLog

Response = TypeVar("Response")
CONFIG = GroupConfig(initial_rebalance_delay_ms=0)
SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription(*topics: str) -> bytes:
    """ConsumerProtocolSubscription version 0 without user data."""
    encoded = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\x00\x00" + len(topics).to_bytes(4, "big") + encoded + b"\xff\xff\xff\xff"


RANGE = (("range", subscription("t")),)


class Parked(Generic[Response]):
    """Receives the response to one request."""

    def __init__(self) -> None:
        self.answers: list[Response] = []

    def __call__(self, response: Response) -> None:
        assert not self.answers, "answered twice"
        self.answers.append(response)

    @property
    def answer(self) -> Response:
        assert self.answers, "still parked"
        return self.answers[0]


class GroupLog(MemoryLog):
    def decoded(self) -> list[tuple[Any, Any]]:
        return [decoded for record in self.durable if (decoded := decode_record(*record)) is not None]


class MemoryTopics:
    """Topics by name; the id of "t" is sixteen times "t"."""

    def __init__(self) -> None:
        self.counts = {"t": 6, "u": 3}

        self.unknown: set[str] = set()
        self.listed = True

    def is_known(self, name: str) -> bool:
        return name not in self.unknown

    def matching(self, regex: str) -> frozenset[str] | None:
        return matching(regex, self.counts) if self.listed else None

    def find(self, name: str) -> TopicInfo | None:
        is_found = name in self.counts and name not in self.unknown
        return TopicInfo((name.encode() * 16)[:16], self.counts[name]) if is_found else None


class Harness:
    """Calls with the harness's own clock. With `auto`, every append is durable immediately after the call."""

    def __init__(
        self,
        config: GroupConfig = CONFIG,
        *,
        auto: bool = True,
        load: bool = True,
        own_times: OwnTimes = lambda group_id: None,
        log: GroupLog | None = None,
    ) -> None:
        self.now_ms = 1_000_000
        self.log = log or GroupLog()
        self.auto = auto
        self.changes: list[tuple[str, dict[TopicPartition, int | None]]] = []
        self._ids = 0
        self.topics = MemoryTopics()
        self.coordinator = GroupCoordinator(config, self.log, self._new_id, self.topics, self._changed, own_times)
        if load:
            self.load()

    def load(self) -> Set[GroupTopicPartition]:
        """The result of `finish_loading`, after all its steps."""
        steps = self.coordinator.finish_loading(self.now_ms)
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                return cast(Set[GroupTopicPartition], stop.value)

    def _new_id(self) -> str:
        self._ids += 1
        return f"id{self._ids}"

    def _changed(self, group_id: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        self.changes.append((group_id, dict(offsets)))

    def finish_all(self, error: ErrorCode = ErrorCode.NONE) -> None:
        while self.coordinator.has_work or self.log.waiting:
            while self.coordinator.has_work:
                self.coordinator.work()
            if self.log.waiting:
                self.log.finish_one(self.now_ms, error)

    def _after(self) -> None:
        while self.coordinator.has_work:
            self.coordinator.work()
        if self.auto:
            self.finish_all()
        for group in self.coordinator._groups.values():
            if isinstance(group, ConsumerGroup):
                assert group._named == Counter(member.topics for member in group.members.values())
                classic = [member.classic for member in group.members.values() if member.classic is not None]
                assert group._supported.member_count == len(classic)
                names = Counter(name for each in classic for name in {name for name, _ in each.protocols})
                assert group._supported._supporters == names
            else:
                pending = sum(PENDING_BYTES + texts_bytes(each) for each in group.pending_members)
                assert group.metadata_bytes == pending + sum(each.memory_bytes for each in group.members.values())

    def advance(self, duration_ms: int) -> None:
        """Let time pass: a tick at each deadline."""
        end_ms = self.now_ms + duration_ms
        while (deadline_ms := self.coordinator.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.coordinator.tick(self.now_ms)
            self._after()
        self.now_ms = end_ms

    def join(self, member_id: str = "", group: str = "g", **changes: Any) -> Parked[JoinResponse]:
        fields: dict[str, Any] = {
            "client_id": "c",
            "client_host": "/127.0.0.1",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            "protocols": RANGE,
        }
        parked = Parked[JoinResponse]()
        self.coordinator.join(JoinRequest(group, member_id, **(fields | changes)), self.now_ms, parked)
        self._after()
        return parked

    def sync(
        self, member_id: str, generation: int, assignments: Mapping[str, bytes] | None = None, **changes: Any
    ) -> Parked[SyncResponse]:
        parked = Parked[SyncResponse]()
        request = SyncRequest("g", generation, member_id, assignments or {}, **changes)
        self.coordinator.sync(request, self.now_ms, parked)
        self._after()
        return parked

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
        return self.coordinator.heartbeat(HeartbeatRequest("g", generation, member_id, instance_id), self.now_ms)

    def leave(self, member_id: str, instance_id: str | None = None) -> ErrorCode:
        response = self.coordinator.leave(LeaveRequest("g", [LeavingMember(member_id, instance_id)]), self.now_ms)
        self._after()
        assert response.error is ErrorCode.NONE
        return response.member_errors[0]

    def commit(
        self, offset: int = 1, topic: str = "t", partition: int = 0, group: str = "g", **changes: Any
    ) -> Parked[Mapping[TopicPartition, ErrorCode]]:
        parked = Parked[Mapping[TopicPartition, ErrorCode]]()
        offsets = {TopicPartition(topic, partition): OffsetToCommit(offset)}
        self.coordinator.commit_offsets(CommitRequest(group, **({"offsets": offsets} | changes)), self.now_ms, parked)
        self._after()
        return parked

    def commit_in_transaction(
        self, offset: int = 1, topic: str = "t", partition: int = 0, group: str = "g", **changes: Any
    ) -> Parked[Mapping[TopicPartition, ErrorCode]]:
        """The transaction coordinator accepts it."""
        parked = Parked[Mapping[TopicPartition, ErrorCode]]()
        offsets = {TopicPartition(topic, partition): OffsetToCommit(offset)}
        fields: dict[str, Any] = {"offsets": offsets, "version": 5, "producer_id": 7, "producer_epoch": 0}
        request = TransactionalCommitRequest(group, **(fields | changes))
        verification = self.coordinator.start_verification(group, request.producer_id, request.producer_epoch)
        self.coordinator.commit_in_transaction(request, verification, self.now_ms, parked)
        self._after()
        return parked

    def end_transaction(self, committed: bool = True, **changes: int) -> Parked[ErrorCode]:
        parked = Parked[ErrorCode]()
        fields = {"producer_id": 7, "producer_epoch": 0, "coordinator_epoch": 1, "transaction_version": 1}
        marker = EndOfTransaction(committed=committed, **(fields | changes))
        self.coordinator.end_transaction(marker, self.now_ms, parked)
        self._after()
        return parked

    def consumer_heartbeat(
        self, member_id: str = "", epoch: int = 0, group: str = "g", **changes: Any
    ) -> Parked[ConsumerHeartbeatResponse]:
        fields: dict[str, Any] = {"client_id": "c", "client_host": "/127.0.0.1"}
        if epoch == 0:
            fields |= {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topic_names": ["t"], "owned": {}}
        parked = Parked[ConsumerHeartbeatResponse]()
        request = ConsumerHeartbeatRequest(group, member_id, epoch, **(fields | changes))
        self.coordinator.consumer_heartbeat(request, self.now_ms, parked)
        self._after()
        return parked

    def forget(self, topic: str, topic_id: bytes, deleted_ms: int, *, finish: bool = True) -> None:
        self.coordinator.forget_topics([DeletedTopic(topic, topic_id, deleted_ms)], self.now_ms)
        if finish:
            self._after()

    def first_join(self, **changes: Any) -> JoinResponse:
        """Join an empty group, and let its initial delay pass."""
        parked = self.join(**changes)
        self.advance(CONFIG.initial_rebalance_delay_ms)
        return parked.answer

    def stable(self, size: int = 1) -> list[str]:
        """A stable group in its first generation; the leader comes first."""
        joins = [self.join() for _ in range(size)]
        self.advance(0)
        members = [parked.answer.member_id for parked in joins]
        syncs = [self.sync(member, 1, {m: m.encode() for m in members}) for member in members]
        syncs.append(self.sync(members[0], 1, {m: m.encode() for m in members}))
        assert all(parked.answer.error is ErrorCode.NONE for parked in syncs)
        return members


def reloaded(old: Harness) -> Harness:
    """A coordinator that has just loaded the records of the other one."""
    h = Harness(load=False)
    h.now_ms, h.topics.counts, h._ids = old.now_ms, old.topics.counts, old._ids
    h.log.durable = [*old.log.durable]
    for record in h.log.durable:
        h.coordinator.replay(*record)
    h.load()
    return h
