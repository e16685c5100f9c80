"""Random histories of one consumer group (KIP-848): clients that follow the protocol, lost responses, a log that is
slow and fails, coordinators that change and do not know the topics yet. No two clients ever own a partition; without
further faults, all partitions are assigned."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coordinator.group.config import GroupConfig
from coordinator.group.consumer.assignment import Assignment, TopicIdPartition, partitions_of
from coordinator.group.consumer.messages import ConsumerHeartbeatResponse
from coordinator.topic_regex import matching
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import REBALANCE_MS, Harness, Parked

CLIENTS = st.integers(0, 3)
FAILURES = [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS]
REJOIN = {
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
}
SESSION_MS = GroupConfig().consumer_session_timeout_ms


class Client:
    """A consumer that owns its assignment, and releases partitions immediately when they are no longer assigned."""

    def __init__(self, number: int) -> None:
        self.member_id = f"m{number}"
        self.instance_id = f"i{number}" if number == 0 else None
        self.incarnation = 0
        self.topics = ["t"]
        self.regex = ""
        self.parked: Parked[ConsumerHeartbeatResponse] | None = None
        self.abandon()

    def abandon(self) -> None:
        """Rejoin without partitions, like a new process with a new id."""
        self.epoch = 0
        self.owned: Assignment = {}
        self.tell_all = True
        self.heard_ms = -1
        self.incarnation += 1

    @property
    def current_id(self) -> str:
        return f"{self.member_id}.{self.incarnation}"

    def believe(self, answer: ConsumerHeartbeatResponse) -> None:
        if answer.error in REJOIN:
            self.abandon()
        elif answer.error is not ErrorCode.NONE:
            self.tell_all = True
        else:
            self.epoch = answer.member_epoch
            self.tell_all = answer.assignment is not None  # to report what it owns now
            if answer.assignment is not None:
                self.owned = answer.assignment


class ConsumerGroupLife(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.h = Harness(auto=False)
        self.clients = [Client(number) for number in range(4)]
        self.parked: list[Parked[Any]] = []
        self.epoch_seen = 0

    @rule(n=CLIENTS)
    def heartbeat(self, n: int) -> None:
        client = self.clients[n]
        if client.parked is not None:
            return
        fields: dict[str, Any] = {}
        if client.tell_all:
            fields = {
                "rebalance_timeout_ms": REBALANCE_MS,
                "subscribed_topic_names": client.topics,
                "subscribed_topic_regex": client.regex,
                "has_own_id": True,
                "owned": client.owned,
            }
        client.tell_all = False
        client.parked = self.h.consumer_heartbeat(
            client.current_id, client.epoch, instance_id=client.instance_id, **fields
        )
        self.parked.append(client.parked)
        self.answers_are_believed()

    @rule()
    def everyone_heartbeats(self) -> None:
        for n in range(len(self.clients)):
            self.heartbeat(n)
        self.log_answers(ErrorCode.NONE)

    @rule(n=CLIENTS, topics=st.sampled_from([["t"], ["t", "u"], ["u"], []]), regex=st.sampled_from(["", "", "u", ".*"]))
    def subscribe(self, n: int, topics: list[str], regex: str) -> None:
        client = self.clients[n]
        client.topics, client.regex, client.tell_all = topics, regex, True

    @rule(n=CLIENTS)
    def leave(self, n: int) -> None:
        client = self.clients[n]
        if client.epoch > 0 and client.parked is None:
            self.parked.append(self.h.consumer_heartbeat(client.current_id, -1, instance_id=client.instance_id))
            client.abandon()

    @rule()
    def restart_the_static_one(self) -> None:
        client = self.clients[0]
        if client.epoch > 0 and client.parked is None:
            self.parked.append(self.h.consumer_heartbeat(client.current_id, -2, instance_id=client.instance_id))
            client.abandon()

    @rule(n=CLIENTS)
    def answer_is_lost(self, n: int) -> None:
        client = self.clients[n]
        client.parked, client.tell_all = None, True

    @rule(counts=st.sampled_from([{"t": 6, "u": 3}, {"t": 8, "u": 3}, {"t": 8}]))
    def topics_change(self, counts: dict[str, int]) -> None:
        self.h.topics.counts = dict(counts)
        self.h.coordinator.topics_changed(["t", "u"])

    @rule()
    def topics_are_looked_up(self) -> None:
        self.h.topics.unknown, self.h.topics.listed = set(), True

    @rule(duration_ms=st.sampled_from([1_000, SESSION_MS // 2, SESSION_MS]))
    def time_passes(self, duration_ms: int) -> None:
        """A member that is silent for a session releases its partitions, as consumers do (max.poll.interval.ms)."""
        self.h.advance(duration_ms)
        members = {m.member_id for m in self.h.coordinator.describe_consumer_group("g").members}
        for client in self.clients:
            if client.current_id not in members and client.epoch > 0:
                client.parked = None
                client.abandon()

    @rule(error=st.sampled_from([ErrorCode.NONE] * 4 + FAILURES))
    def log_answers(self, error: ErrorCode) -> None:
        while self.h.log.waiting:
            self.h.log.finish_one(self.h.now_ms, error)
        self.answers_are_believed()

    @rule(error=st.sampled_from([ErrorCode.NONE] * 2 + FAILURES))
    def log_answers_once(self, error: ErrorCode) -> None:
        if self.h.log.waiting:
            self.h.log.finish_one(self.h.now_ms, error)
        self.answers_are_believed()

    @rule()
    def coordinator_moves(self) -> None:
        old = self.h
        old.coordinator.resign(old.now_ms)
        old.finish_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert all(parked.answers for parked in self.parked)
        self.h = Harness(auto=False, load=False)
        self.h.now_ms, self.h.log.durable, self.h.topics.counts = old.now_ms, old.log.durable, old.topics.counts
        self.h.topics.unknown, self.h.topics.listed = {"t", "u"}, False
        for record in old.log.durable:
            self.h.coordinator.replay(*record)
        self.h.load()
        self.epoch_seen = 0
        self.answers_are_believed()

    @invariant()
    def answers_are_believed(self) -> None:
        for client in self.clients:
            if client.parked is not None and client.parked.answers:
                answer, client.parked = client.parked.answer, None
                client.believe(answer)

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        """Among members. A client that is no longer a member learns it from its next heartbeat."""
        members = {m.member_id for m in self.h.coordinator.describe_consumer_group("g").members}
        owned: list[TopicIdPartition] = []
        for client in self.clients:
            if client.current_id in members:
                owned += partitions_of(client.owned)
        assert len(owned) == len(set(owned))

    @invariant()
    def no_partition_is_held_twice(self) -> None:
        group = self.h.coordinator.describe_consumer_group("g")
        kept: Any = self.h.coordinator._groups.get("g")
        held = [partition for member in (kept.members.values() if kept else ()) for partition in member.held()]
        assert len(group.members) == (len(kept.members) if kept else 0)
        assert len(held) == len(set(held))
        targets = [partition for member in group.members for partition in partitions_of(member.target)]
        assert len(targets) == len(set(targets))

    @invariant()
    def epochs_only_grow(self) -> None:
        group = self.h.coordinator.describe_consumer_group("g")
        assert group.epoch >= max(self.epoch_seen, group.assignment_epoch)
        assert all(member.epoch <= group.epoch for member in group.members)
        self.epoch_seen = group.epoch

    def teardown(self) -> None:
        if not hasattr(self, "h"):
            return
        self.topics_are_looked_up()
        self.h.coordinator.topics_changed(["t", "u"])
        self.time_passes(2 * SESSION_MS)
        for _ in range(12):
            self.everyone_heartbeats()
        assert all(parked.answers for parked in self.parked)
        group = self.h.coordinator.describe_consumer_group("g")
        assert group.state == "Stable"
        read = {topic for client in self.clients for topic in (*client.topics, *matching(client.regex, ["t", "u"]))}
        wanted = read & self.h.topics.counts.keys()
        owned = [partition for client in self.clients for partition in partitions_of(client.owned)]
        assert len(owned) == sum(self.h.topics.counts[topic] for topic in wanted)


ConsumerGroupLife.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestConsumerGroupLife = ConsumerGroupLife.TestCase
