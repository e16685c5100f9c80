"""Random histories of one classic group, with a log that is slow and sometimes fails, and coordinators that change.

The clients are correct, but they may act on old responses. The guarantees are invariants.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coordinator.group.config import GroupConfig
from coordinator.group.messages import FetchOffsetsRequest, JoinResponse, SyncResponse
from coordinator.group.records.group_metadata import GroupMetadataValue
from coordinator.group.records.offset_commit import OffsetCommitValue
from coordinator.topics import TopicPartition
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import REBALANCE_MS, SESSION_MS, Harness, Parked, subscription

T0 = TopicPartition("t", 0)
PARTITIONS = range(4)
MAX_SIZE = 3
CLIENTS = st.integers(0, 3)
FAILURES = [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR]


class Client:
    """One consumer: what it believes, and its request in flight."""

    def __init__(self, number: int) -> None:
        self.instance_id = f"i{number}" if number < 2 else None
        self.modern = number % 2 == 0
        self.member_id = ""
        self.generation = -1
        self.members: list[str] = []  # the members of a leader's JoinGroup response
        self.must_join = True
        self.must_sync = False
        self.join: Parked[JoinResponse] | None = None
        self.sync: Parked[SyncResponse] | None = None

    def forget(self) -> None:
        self.member_id, self.generation, self.members = "", -1, []
        self.must_join, self.must_sync = True, False

    @property
    def waits(self) -> bool:
        return any(parked is not None and not parked.answers for parked in (self.join, self.sync))


class GroupLife(RuleBasedStateMachine):
    @initialize(delay_ms=st.sampled_from([0, 3_000]))
    def start(self, delay_ms: int) -> None:
        self.config = GroupConfig(initial_rebalance_delay_ms=delay_ms, max_size=MAX_SIZE)
        self.h = Harness(self.config, auto=False)
        self.clients = [Client(number) for number in range(4)]
        self.parked: list[Parked[Any]] = []
        self.commits: list[tuple[int, Parked[Any]]] = []
        self.durable_offset = -1
        self.syncs = 0
        self.generation_seen = 0
        self.assignments: dict[int, list[list[int]]] = {}

    # --- What clients do

    @rule(n=CLIENTS, topics=st.sampled_from([("t",), ("t", "u")]))
    def join(self, n: int, topics: tuple[str, ...]) -> None:
        client = self.clients[n]
        client.join = self.h.join(
            client.member_id,
            group_instance_id=client.instance_id,
            require_member_id=client.modern and client.instance_id is None,
            can_skip_assignment=client.modern,
            protocols=[("range", subscription(*topics))],
        )
        self.parked.append(client.join)

    @rule(n=CLIENTS)
    def sync(self, n: int) -> None:
        client = self.clients[n]
        self.syncs += 1  # a leader that assigns again assigns differently
        owners = {
            member: bytes(PARTITIONS)[(i + self.syncs) % len(client.members) :: len(client.members)]
            for i, member in enumerate(client.members)
        }
        client.sync = self.h.sync(client.member_id, client.generation, owners, group_instance_id=client.instance_id)
        self.parked.append(client.sync)

    @rule(n=CLIENTS)
    def heartbeat(self, n: int) -> None:
        client = self.clients[n]
        error = self.h.heartbeat(client.member_id, client.generation, client.instance_id)
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.ILLEGAL_GENERATION):
            client.forget()
        elif error is ErrorCode.REBALANCE_IN_PROGRESS:
            client.must_join = True

    @rule(first=CLIENTS, count=st.integers(1, 3), error=st.sampled_from([ErrorCode.NONE] * 5 + FAILURES))
    def round(self, first: int, count: int, error: ErrorCode) -> None:
        """Some clients send their next request, time passes, the log answers."""
        for n in range(first, first + count):
            client = self.clients[n % len(self.clients)]
            if client.waits:
                continue
            if client.must_join:
                self.join(n % len(self.clients), ("t",))
            elif client.must_sync:
                self.sync(n % len(self.clients))
            else:
                self.heartbeat(n % len(self.clients))
            self.answers_are_believed()
        self.h.advance(self.config.initial_rebalance_delay_ms)
        self.log_answers(error)

    @rule(n=CLIENTS)
    def leave(self, n: int) -> None:
        """Preferably one whose request waits, as when an administrator removes it."""
        waiting = [client for client in self.clients if client.waits and client.member_id]
        client = (waiting or self.clients)[n % len(waiting or self.clients)]
        self.h.leave(client.member_id, client.instance_id)
        client.forget()

    @rule(n=CLIENTS, offset=st.integers(0, 99), age=st.integers(0, 1))
    def commit(self, n: int, offset: int, age: int) -> None:
        """With an age, the commit was sent before the client's last rebalance."""
        client = self.clients[n]
        generation = client.generation - age if client.generation > 0 else client.generation
        current = self.generation_now()
        parked = self.h.commit(
            offset,
            member_id=client.member_id,
            generation=generation,
            group_instance_id=client.instance_id,
        )
        if parked.answers:
            assert parked.answer[T0] is not ErrorCode.NONE
        else:
            members = [member.member_id for member in self.described().members]
            assert (generation == current and client.member_id in members) or not members
        self.parked.append(parked)
        self.commits.append((offset, parked))

    @rule(n=CLIENTS)
    def crash(self, n: int) -> None:
        """The process dies with its waiting requests. A static member returns with its instance id."""
        client = self.clients[n]
        client.forget()
        client.join = client.sync = None

    # --- What the world does

    @rule(duration_ms=st.sampled_from([1, 1_000, 3_000, SESSION_MS // 2, SESSION_MS, REBALANCE_MS]))
    def time_passes(self, duration_ms: int) -> None:
        self.h.advance(duration_ms)

    @rule(error=st.sampled_from([ErrorCode.NONE] * 5 + FAILURES))
    def log_answers(self, error: ErrorCode) -> None:
        if self.h.log.waiting:
            self.finish_append(error)

    def finish_append(self, error: ErrorCode) -> None:
        before = len(self.h.log.durable)
        self.h.log.finish_one(self.h.now_ms, error)
        for _, value in self.h.log.decoded()[before:]:
            if isinstance(value, OffsetCommitValue):
                self.durable_offset = value.offset

    @rule()
    def coordinator_moves(self) -> None:
        """The old one is fenced: appends that its log has not stored will fail."""
        old = self.h
        old.coordinator.resign(old.now_ms)
        old.finish_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert all(parked.answers for parked in self.parked), "resigned without an answer"
        self.h = Harness(self.config, auto=False, load=False)
        self.h._ids, self.h.now_ms, self.h.log.durable = old._ids, old.now_ms, old.log.durable
        for record in old.log.durable:
            self.h.coordinator.replay(*record)
        self.h.load()
        self.generation_seen = 0

    # --- What must hold

    def described(self) -> Any:
        return self.h.coordinator.describe_group("g")

    def generation_now(self) -> int:
        group: Any = self.h.coordinator._groups.get("g")
        return 0 if group is None else group.generation

    @invariant()
    def answers_are_believed(self) -> None:
        for client in self.clients:
            if client.join is not None and client.join.answers:
                self.believe_join(client, client.join.answer)
                client.join = None
            if client.sync is not None and client.sync.answers:
                self.believe_sync(client, client.sync.answer)
                client.sync = None

    def believe_join(self, client: Client, answer: JoinResponse) -> None:
        if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
        elif answer.error is ErrorCode.NONE:
            client.member_id, client.generation = answer.member_id, answer.generation
            client.members = [m.member_id for m in answer.members]
            assert len(client.members) <= MAX_SIZE
            client.must_join, client.must_sync = False, True
        else:
            client.forget()

    def believe_sync(self, client: Client, answer: SyncResponse) -> None:
        client.must_sync = False
        if answer.error is ErrorCode.NONE:
            stored = self.stored_assignments().get(client.generation, [])
            assert list(answer.assignment) in stored, "an assignment that is not durable"
        else:
            client.must_join = True

    def stored_assignments(self) -> dict[int, list[list[int]]]:
        """For each generation in the log, the partitions of its members."""
        return {
            value.generation: [list(member.assignment) for member in value.members]
            for _, value in self.h.log.decoded()
            if isinstance(value, GroupMetadataValue)
        }

    @invariant()
    def a_generation_has_one_assignment(self) -> None:
        now = self.stored_assignments()
        group: Any = self.h.coordinator._groups.get("g")
        for generation, assignments in self.assignments.items():
            assert now.get(generation) == assignments
        self.assignments = now
        if group is not None and group.state.value == "Stable":
            members = [list(member.assignment) for member in group.members.values()]
            assert members == now[group.generation]

    @invariant()
    def no_partition_has_two_owners_in_a_generation(self) -> None:
        for value in (v for _, v in self.h.log.decoded() if isinstance(v, GroupMetadataValue)):
            owned = [partition for member in value.members for partition in member.assignment]
            assert len(owned) == len(set(owned))

    @invariant()
    def generations_only_grow(self) -> None:
        now = self.generation_now()
        assert now >= self.generation_seen or not self.described().members
        self.generation_seen = now

    @invariant()
    def offsets_move_only_by_durable_commits(self) -> None:
        fetched = self.h.coordinator.fetch_offsets(FetchOffsetsRequest("g", [T0])).offsets[T0]
        assert fetched.offset == self.durable_offset

    @invariant()
    def acknowledged_commits_were_written(self) -> None:
        written = [value.offset for _, value in self.h.log.decoded() if isinstance(value, OffsetCommitValue)]
        accepted = [offset for offset, p in self.commits if p.answers and p.answer[T0] is ErrorCode.NONE]
        assert accepted == list(written[: len(accepted)])

    @invariant()
    def states_agree_with_parked_requests(self) -> None:
        group: Any = self.h.coordinator._groups.get("g")
        if group is None:
            return
        joining = [m for m in group.members.values() if m.join_reply is not None]
        assert group.joining_count == len(joining)
        assert group.pending_sync <= group.members.keys()
        assert not group.pending_members.keys() & group.members.keys()
        assert (group.leader_id in group.members) == bool(group.members)
        if group.state.value == "Stable":
            assert all(m.sync_reply is None for m in group.members.values())
        if group.state.value == "CompletingRebalance":
            assert not joining

    def teardown(self) -> None:
        """After a long time without new requests, every request is answered, and the group is empty."""
        if not hasattr(self, "h"):
            return
        for _ in range(4):
            while self.h.log.waiting:
                self.finish_append(ErrorCode.NONE)
            self.h.advance(10 * REBALANCE_MS)
        assert all(parked.answers for parked in self.parked)
        assert not self.described().members


GroupLife.TestCase.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
TestGroupLife = GroupLife.TestCase
