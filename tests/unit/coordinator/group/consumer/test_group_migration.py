"""Applications move from the classic to the consumer protocol and back, member by member, while they read (KIP-848)."""

from dataclasses import replace
from typing import Any

import pytest

from coordinator.group.messages import MAX_MEMBER_BYTES, FetchOffsetsRequest
from coordinator.group.records import consumer_group as records
from coordinator.group.records.codec import decode_record, encode_record
from coordinator.group.subscription import read_assignment, write_assignment
from coordinator.topics import TopicPartition
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import (
    CONFIG,
    REBALANCE_MS,
    SESSION_MS,
    Harness,
    Parked,
    reloaded,
    subscription,
)

T0 = TopicPartition("t", 0)
T_ID = b"t" * 16
PARTITIONS = range(6)


class Classic:
    """A consumer of the classic protocol like Java's: cooperative, or eager, which releases all partitions before it
    joins."""

    def __init__(self, h: Harness, *, eager: bool = False, instance_id: str | None = None) -> None:
        self.h, self.eager, self.instance_id = h, eager, instance_id
        self.member_id = ""
        self.generation = -1
        self.owned: list[int] = []
        self.must_join = True

    @property
    def protocols(self) -> list[tuple[str, bytes]]:
        numbers = b"".join(number.to_bytes(4, "big") for number in self.owned)
        owned = b"\0\0\0\1\0\1t" + len(self.owned).to_bytes(4, "big") + numbers if self.owned else b"\0\0\0\0"
        return [("range" if self.eager else "sticky", b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff" + owned)]

    def send_join(self) -> Parked[Any]:
        if self.eager:
            self.owned = []
        return self.h.join(self.member_id, protocols=self.protocols, group_instance_id=self.instance_id)

    def joined(self, parked: Parked[Any]) -> None:
        answer = parked.answer
        if answer.error is ErrorCode.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation
            self.must_join = False
        elif answer.error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    def sync(self, assignments: dict[str, bytes] | None = None) -> Parked[Any]:
        return self.h.sync(
            self.member_id, self.generation, assignments, group_instance_id=self.instance_id,
            protocol_type="consumer", protocol_name=self.protocols[0][0],
        )  # fmt: skip

    def synced(self, parked: Parked[Any]) -> None:
        answer = parked.answer
        self.must_join = answer.error is not ErrorCode.NONE
        if not self.must_join:
            assigned = list(read_assignment(answer.assignment).get("t", []))
            # Revoked partitions are released immediately, and the member joins again.
            self.must_join = not set(self.owned) <= set(assigned)
            self.owned = assigned

    def step(self) -> None:
        if self.must_join:
            self.joined(self.send_join())
            if not self.must_join:
                self.synced(self.sync())
            return
        error = self.h.heartbeat(self.member_id, self.generation, self.instance_id)
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.must_join = error is not ErrorCode.NONE


class Modern:
    """A consumer of the consumer protocol."""

    def __init__(self, h: Harness, member_id: str, **fields: Any) -> None:
        self.h, self.member_id, self.fields = h, member_id, fields
        self.epoch = 0
        self.owned: list[int] = []

    def step(self) -> None:
        owned = {T_ID: set(self.owned)} if self.owned else {}
        fields = self.fields if self.epoch == 0 else {"instance_id": self.fields.get("instance_id")}
        answer = self.h.consumer_heartbeat(self.member_id, self.epoch, owned=owned, **fields).answer
        assert answer.error is ErrorCode.NONE, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = sorted(answer.assignment.get(T_ID, ()))

    def leave(self) -> None:
        assert self.h.consumer_heartbeat(self.member_id, -1).answer.error is ErrorCode.NONE


def classic_group(h: Harness, size: int, *, eager: bool = False) -> list[Classic]:
    """A stable group with all partitions assigned."""
    members = [Classic(h, eager=eager) for _ in range(size)]
    share_out(h, members)
    return members


def share_out(h: Harness, members: list[Classic]) -> None:
    """A rebalance of the classic protocol; one of the members is the leader."""
    joins = [member.send_join() for member in members]
    h.advance(0)
    for member, parked in zip(members, joins, strict=True):
        member.joined(parked)
    shares = {m.member_id: write_assignment(1, {"t": PARTITIONS[n :: len(members)]}) for n, m in enumerate(members)}
    leader = joins[0].answer.leader_id
    members.sort(key=lambda member: member.member_id != leader)
    syncs = [member.sync(shares) for member in members]
    for member, parked in zip(members, syncs, strict=True):
        member.owned = []
        member.synced(parked)


def heartbeat_until_assigned(*members: Classic | Modern) -> None:
    """Heartbeats until all partitions are assigned. No partition has two readers at any time."""
    for _ in range(20):
        for member in members:
            member.step()
            owned = [number for each in members for number in each.owned]
            assert len(owned) == len(set(owned)), "read by two"
    assert sorted(owned) == [*PARTITIONS]
    assert all(member.owned for member in members)


@pytest.mark.parametrize("eager", [False, True])
def test_a_rolling_upgrade_and_the_way_back(eager: bool) -> None:
    h = Harness()
    first, second = classic_group(h, 2, eager=eager)
    h.commit(7, member_id=first.member_id, generation=first.generation)
    modern = Modern(h, "m1")
    heartbeat_until_assigned(modern, first, second)
    described = h.coordinator.describe_consumer_group("g")
    assert (described.state, len(described.members)) == ("Stable", 3)
    assert [group.group_type for group in h.coordinator.list_groups().groups] == ["consumer"]
    h.leave(first.member_id)
    other = Modern(h, "m2")
    heartbeat_until_assigned(modern, other, second)
    h.leave(second.member_id)
    heartbeat_until_assigned(modern, other)
    back = Classic(h, eager=eager)
    heartbeat_until_assigned(modern, other, back)
    modern.leave()
    heartbeat_until_assigned(other, back)
    other.leave()
    assert [group.group_type for group in h.coordinator.list_groups().groups] == ["classic"]
    assert h.heartbeat(back.member_id, back.generation) is not ErrorCode.NONE
    share_out(h, [back])
    assert back.owned == [*PARTITIONS]
    assert h.coordinator.fetch_offsets(FetchOffsetsRequest("g")).offsets[T0].offset == 7
    again = reloaded(h)
    assert [group.group_type for group in again.coordinator.list_groups().groups] == ["classic"]
    assert again.heartbeat(back.member_id, back.generation) is ErrorCode.NONE


def test_a_coordinator_that_takes_over_continues() -> None:
    h = Harness()
    first, second = classic_group(h, 2)
    modern = Modern(h, "m1")
    for member in (modern, first, modern, second):
        member.step()
    h = reloaded(h)
    for each in (first, second, modern):
        each.h = h
    heartbeat_until_assigned(modern, first, second)
    modern.leave()
    h = reloaded(h)
    for each in (first, second):
        each.h = h
    assert h.heartbeat(first.member_id, first.generation) in (ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION)
    assert {m.member_id for m in h.coordinator.describe_group("g").members} == {first.member_id, second.member_id}


def test_what_a_member_owns_counts_before_the_topics_were_looked_up() -> None:
    h = Harness()
    [classic] = classic_group(h, 1)
    modern = Modern(h, "m1")
    modern.step()
    h = reloaded(h)
    h.topics.unknown = {"t"}
    classic.h = modern.h = h
    classic.step()
    classic.joined(classic.send_join())
    modern.step()
    assert classic.owned == [*PARTITIONS] and not modern.owned
    classic.synced(classic.sync())
    heartbeat_until_assigned(modern, classic)


def test_an_upgraded_group_is_what_its_records_say() -> None:
    h = Harness()
    first, second = Classic(h, instance_id="i0"), Classic(h)
    share_out(h, [first, second])
    Modern(h, "m1").step()
    groups = [each.coordinator._groups["g"] for each in (h, reloaded(h))]
    upgraded, loaded = (
        {name: value for name, value in vars(group).items() if name not in ("writer", "offsets", "topics_are_current")}
        for group in groups
    )
    assert first.member_id in upgraded["members"] and upgraded["holders"]
    assert upgraded == loaded


def test_static_members_keep_their_place() -> None:
    h = Harness()
    first, second = Classic(h, instance_id="i0"), Classic(h, instance_id="i1")
    share_out(h, [first, second])
    owned = first.owned
    modern = Modern(h, "m1", instance_id="i0")
    modern.step()
    heartbeat_until_assigned(modern, second)
    assert modern.owned == owned, "nothing moves"
    assert h.heartbeat(first.member_id, first.generation, "i0") is ErrorCode.FENCED_INSTANCE_ID
    back = Classic(h, instance_id="i0")
    heartbeat_until_assigned(back, second)
    assert back.owned == owned


@pytest.mark.parametrize("alone", [False, True])
def test_a_static_member_that_comes_back_as_a_classic_one_can_be_the_last(alone: bool) -> None:
    """Nothing moves, as in Kafka."""
    h = Harness()
    modern, others = Modern(h, "m1", instance_id="i1"), [] if alone else [Classic(h)]
    heartbeat_until_assigned(modern, *others)
    h.consumer_heartbeat("m1", -2, instance_id="i1")
    back = Classic(h, instance_id="i1")
    back.step()
    assert [group.group_type for group in h.coordinator.list_groups().groups] == ["classic"]
    assert back.owned == modern.owned
    again = reloaded(h)
    for each in (back, *others):
        assert again.heartbeat(each.member_id, each.generation, each.instance_id) is ErrorCode.NONE
    assert len(again.coordinator.describe_group("g").members) == 1 + len(others)


def test_the_last_static_member_comes_back_as_a_classic_one_while_partitions_move() -> None:
    h = Harness()
    modern, other = Modern(h, "m1", instance_id="i1"), Classic(h)
    modern.step()
    other.step()
    h.consumer_heartbeat("m1", -2, instance_id="i1")
    back = Classic(h, instance_id="i1")
    back.joined(back.send_join())
    assert [group.state for group in h.coordinator.list_groups().groups] == ["PreparingRebalance"]
    share_out(h, [back, other])
    assert sorted([*back.owned, *other.owned]) == [*PARTITIONS]


def test_a_member_that_does_not_rejoin_in_time_is_removed() -> None:
    h = Harness()
    first, second = classic_group(h, 2)
    modern = Modern(h, "m1")
    modern.step()
    assert h.heartbeat(first.member_id, first.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(REBALANCE_MS // 5_000):
        second.step()
        modern.step()
        h.advance(5_000)
        h.heartbeat(first.member_id, first.generation)
    second.step()
    assert h.heartbeat(first.member_id, first.generation) is ErrorCode.UNKNOWN_MEMBER_ID
    heartbeat_until_assigned(modern, second)


def test_a_classic_member_that_is_silent_is_out_after_its_own_session() -> None:
    h = Harness()
    first, second = classic_group(h, 2)
    modern = Modern(h, "m1")
    heartbeat_until_assigned(modern, first, second)
    h.advance(SESSION_MS)
    assert h.heartbeat(first.member_id, first.generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert {m.member_id for m in h.coordinator.describe_consumer_group("g").members} == {"m1"}


def test_what_members_own_counts_when_their_rebalance_was_cut_short() -> None:
    """Cooperative members keep reading during a rebalance."""
    h = Harness()
    first, second = classic_group(h, 2)
    members = (first, second, Classic(h))
    for member, parked in [(each, each.send_join()) for each in members[::-1]]:
        member.joined(parked)
    h.leave(members[2].member_id)
    modern = Modern(h, "m1")
    modern.step()
    assert len(first.owned + second.owned) == len(PARTITIONS) and not modern.owned
    heartbeat_until_assigned(modern, first, second)


def test_requests_that_were_parked_are_answered() -> None:
    h = Harness()
    [first] = classic_group(h, 1)
    newcomer = h.join(protocols=Classic(h).protocols)
    assert not newcomer.answers
    Modern(h, "m1").step()
    assert newcomer.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert h.join(first.member_id, protocols=first.protocols).answer.error is ErrorCode.NONE


def test_topics_that_are_not_known_yet_put_it_off() -> None:
    h = Harness()
    [first] = classic_group(h, 1)
    h.topics.unknown = {"t"}
    assert h.coordinator.classic_topics("g") == {"t"}
    assert h.consumer_heartbeat("m1").answer.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert h.heartbeat(first.member_id, first.generation) is ErrorCode.NONE, "it is a classic group still"
    h.topics.unknown = set()
    heartbeat_until_assigned(Modern(h, "m1"), first)


def test_no_member_is_larger_than_a_record() -> None:
    """The log would refuse it, and everything else of the group."""
    protocols = [("range", subscription("t")), ("other", bytes(MAX_MEMBER_BYTES))]
    h = Harness()
    h.consumer_heartbeat("m1")
    assert h.join(protocols=protocols).answer.error is ErrorCode.INVALID_REQUEST
    h = Harness()
    h.first_join(protocols=protocols)
    assert h.consumer_heartbeat("m1").answer.error is ErrorCode.GROUP_ID_NOT_FOUND


def test_commits_go_by_the_members_protocol() -> None:
    h = Harness()
    [first] = classic_group(h, 1)
    modern = Modern(h, "m1")
    heartbeat_until_assigned(modern, first)
    for member, generation, version, expected in (
        (first.member_id, first.generation, 8, ErrorCode.NONE),
        (first.member_id, first.generation - 1, 8, ErrorCode.ILLEGAL_GENERATION),
        ("m1", modern.epoch, 9, ErrorCode.NONE),
        ("m1", modern.epoch, 8, ErrorCode.UNSUPPORTED_VERSION),
        ("m1", modern.epoch - 1, 9, ErrorCode.STALE_MEMBER_EPOCH),
    ):
        parked = h.commit(7, member_id=member, generation=generation, version=version)
        assert parked.answer[T0] is expected


def test_a_group_that_may_not_go_back_stays_a_consumer_group() -> None:
    h = Harness(replace(CONFIG, online_downgrade=False))
    [first] = classic_group(h, 1)
    modern = Modern(h, "m1")
    heartbeat_until_assigned(modern, first)
    modern.leave()
    heartbeat_until_assigned(first)
    assert [group.group_type for group in h.coordinator.list_groups().groups] == ["consumer"]


def test_a_classic_member_is_stored_as_kafka_does() -> None:
    """The bytes are what Apache Kafka 3.9.2 wrote for this member."""
    written = bytes.fromhex(
        "000002690002630b2f3132372e302e302e31030274027501000493e008756e69666f726d"
        "010012010000afc8020672616e6765040102030000"
    )
    classic = records.ClassicMemberMetadata(45_000, [records.ClassicProtocol("range", b"\1\2\3", [])], [])
    value = records.ConsumerGroupMemberMetadataValue(
        "i", None, "c", "/127.0.0.1", ["t", "u"], "", 300_000, "uniform", classic
    )
    record = encode_record(records.ConsumerGroupMemberMetadataKey("g", "m"), value)
    assert record.value == written
    assert decode_record(record.key, written) == (records.ConsumerGroupMemberMetadataKey("g", "m"), value)
