"""Gateways join, leave, die and return; the partitions that each one leads."""

import pytest

from coordinator.fleet.messages import (
    NO_TRANSACTIONS,
    Address,
    Deletion,
    Eviction,
    Goodbye,
    Heartbeat,
    LogPosition,
    MalformedMessageError,
    Member,
    MemberState,
    Snapshot,
    decode_message,
    decode_without_snapshot,
    encode_message,
)
from coordinator.fleet.roster import Roster
from coordinator.fleet.times import FleetTimes
from tests.unit.coordinator.fleet.fleet_harness import KEYS, LEDGER_ID, TIMES, World


def epochs(world: World) -> set[int]:
    return {gateway.membership.roster.epoch for gateway in world.gateways}


def test_alone_it_leads_everything_at_once() -> None:
    world = World()
    only = world.start("a")
    only.step(0)
    assert only.leads(0) == set(KEYS)
    assert (only.membership.member.node_id, only.membership.roster.epoch) == (0, 0)


def test_two_share_and_agree() -> None:
    world = World()
    for instance in ("a", "b", "c"):
        world.start(instance)
    world.run(1_000)
    world.check_one_leader_each()
    assert all(gateway.leads(world.now_ms) for gateway in world.gateways)
    assert {gateway.membership.member.node_id for gateway in world.gateways} == {0, 1, 2}
    assert epochs(world) == {2}


def test_the_fleet_serves_what_each_member_does() -> None:
    world = World()
    new = world.start("new", transaction_version=2)
    old = world.start("old", transaction_version=1)
    world.run(1_000)
    assert {each.membership.roster.transaction_version for each in world.gateways} == {1}
    old.membership.leave(world.now_ms)
    world.run(100)
    assert new.membership.roster.transaction_version == 1  # it may still lead
    world.log.append(old.membership.goodbye())
    world.kill(old)
    world.run(1_000)
    assert new.membership.roster.transaction_version == 2


def test_a_member_of_before_transactions_says_nothing_of_them() -> None:
    world = World()
    world.start("new", transaction_version=2)
    world.run(1_000)
    snapshot = world.log[len(world.log) - 1].snapshot
    assert snapshot is not None
    known = snapshot.members[0].member
    fields = known.model_dump(by_alias=True)
    del fields["transaction_version"]
    assert Member.model_validate(fields).transaction_version == NO_TRANSACTIONS


def test_a_newcomer_waits_until_the_old_leader_has_let_go() -> None:
    world = World()
    old = world.start("a")
    old.step(0)
    new = world.start("b")
    new.read(0)
    new.tick(0)
    new.deliver()
    new.read(0)
    assert new.membership.is_member
    assert not new.leads(0)
    gains = {key for key in KEYS if new.membership.is_placed_here(key)}
    old.read(0)
    assert not old.leads(0) & gains
    new.read(0)
    assert not new.leads(0)
    old.drain(0)
    old.tick(0)
    old.deliver()
    new.read(0)
    assert new.leads(0) == gains


def test_the_dead_are_replaced_after_their_lease() -> None:
    world = World()
    dead, living = world.start("a"), world.start("b")
    world.run(2_000)
    world.kill(dead)
    world.run(TIMES.lease_ms - TIMES.heartbeat_ms)
    assert len(living.leads(world.now_ms)) < len(KEYS)
    world.run(TIMES.dead_after_ms - TIMES.lease_ms + TIMES.heartbeat_ms)
    assert living.leads(world.now_ms) == set(KEYS)


def test_a_lease_counts_from_the_sending() -> None:
    """Not from the time when the heartbeat is read back: others may have read it much earlier."""
    world = World()
    slow, other = world.start("a"), world.start("b")
    world.run(1_000)
    slow.paused = True
    sent_ms = world.now_ms = world.now_ms + TIMES.heartbeat_ms
    slow.tick(sent_ms)
    slow.deliver()
    world.run(TIMES.lease_ms - 100)
    slow.read(world.now_ms)
    assert slow.membership.holds_lease(world.now_ms)
    world.now_ms = sent_ms + TIMES.lease_ms
    assert not slow.membership.holds_lease(world.now_ms)
    assert other.membership.holds_lease(world.now_ms)


def test_a_suspended_gateway_leads_nothing_and_joins_again() -> None:
    world = World()
    sleeper, living = world.start("a"), world.start("b")
    world.run(2_000)
    node_id = sleeper.membership.member.node_id
    sleeper.paused = True
    world.run(5_000)
    assert not sleeper.leads(world.now_ms), "by its own clock, before it has read anything"
    assert living.leads(world.now_ms) == set(KEYS)
    sleeper.paused = False
    world.run(1_000)
    world.check_one_leader_each()
    assert sleeper.membership.member.node_id == node_id


def test_a_pause_of_all_evicts_no_member() -> None:
    world = World()
    for instance in ("a", "b"):
        world.start(instance)
    world.run(2_000)
    world.now_ms += 60_000
    assert not any(world.leaders().values())
    world.run(500)
    world.check_one_leader_each()
    assert epochs(world) == {1}


def test_it_hands_over_before_it_leaves() -> None:
    world = World()
    leaving, staying = world.start("a"), world.start("b")
    world.run(1_000)
    leaving.membership.leave(world.now_ms)
    assert not leaving.membership.handed_over
    world.run(300)
    assert leaving.membership.handed_over
    assert staying.leads(world.now_ms) == set(KEYS)
    assert leaving.membership.roster.eligible == [staying.membership.member]
    world.log.append(leaving.membership.goodbye())
    world.run(1_000)
    assert not leaving.membership.is_member
    assert len(staying.membership.roster.members) == 1


def test_the_last_one_keeps_what_it_has_until_it_goes() -> None:
    world = World()
    only = world.start("a")
    world.run(1_000)
    only.membership.leave(world.now_ms)
    world.run(200)
    assert only.membership.handed_over
    assert only.leads(world.now_ms) == set(KEYS)


def test_a_restart_with_the_same_address_is_a_member_at_once() -> None:
    world = World()
    first = world.start("a")
    world.run(1_000)
    world.kill(first)
    second = world.start("a")
    world.run(100)
    assert second.leads(world.now_ms) == set(KEYS)
    assert second.membership.member.node_id == first.membership.member.node_id
    first.read(world.now_ms)
    assert first.membership.node_id_taken_by == second.membership.member


def test_a_node_id_belongs_to_one() -> None:
    world = World()
    holder = world.start("a", node_id=5)
    world.run(1_000)
    intruder = world.start("b", node_id=5)
    world.run(2_000)
    assert intruder.membership.node_id_taken_by == holder.membership.member
    assert holder.leads(world.now_ms) == set(KEYS)


def test_a_dead_ones_node_id_is_free_again() -> None:
    world = World()
    dead = world.start("a", node_id=5)
    world.run(1_000)
    world.kill(dead)
    heir = world.start("b", node_id=5)
    world.run(2_000)
    assert not heir.membership.is_member
    world.run(2_000)
    assert heir.membership.node_id_taken_by is None
    assert heir.leads(world.now_ms) == set(KEYS)


def test_members_that_join_at_the_same_time_get_different_ids() -> None:
    world = World()
    gateways = [world.start(instance) for instance in "abcd"]
    for gateway in gateways:
        gateway.tick(0)
    for gateway in gateways:
        gateway.deliver()
    world.run(1_000)
    assert {gateway.membership.member.node_id for gateway in gateways} == {0, 1, 2, 3}
    world.check_one_leader_each()


def test_an_eviction_behind_a_heartbeat_is_void() -> None:
    world = World()
    slow, judge = world.start("a"), world.start("b")
    world.run(1_000)
    slow.paused = True
    world.run(TIMES.dead_after_ms - TIMES.heartbeat_ms)
    slow.tick(world.now_ms)
    slow.deliver()
    world.now_ms += 2 * TIMES.heartbeat_ms
    judge.tick(world.now_ms)  # before it reads the heartbeat
    judge.deliver()
    judge.read(world.now_ms)
    assert slow.membership.member.node_id in judge.membership.roster.members


def test_messages_about_topics_change_no_member() -> None:
    world = World()
    only = world.start("a")
    world.run(1_000)
    before = only.membership.roster.snapshot()
    world.log.append(Deletion(topics=("t",), snapshot=before))
    only.read(world.now_ms)
    assert only.membership.roster.snapshot() == before.model_copy(
        update={"position": LogPosition(LEDGER_ID, len(world.log) - 1)}
    )


def test_epochs_go_on_over_an_empty_fleet() -> None:
    world = World()
    for expected in (0, 2, 4):
        gateway = world.start(f"instance {expected}")
        world.run(1_000)
        assert gateway.membership.roster.epoch == expected
        world.log.append(gateway.membership.goodbye())
        world.kill(gateway)


@pytest.mark.parametrize(
    ("times", "named"),
    [
        (FleetTimes(500, 1_499, 9_000, 20_000), "heartbeat_ms"),
        (FleetTimes(500, 2_000, 2_199, 20_000), "dead_after_ms"),
    ],
)
def test_times_that_contradict(times: FleetTimes, named: str) -> None:
    assert named in (times.contradiction() or "")


def test_times_that_agree() -> None:
    assert FleetTimes(500, 1_500, 1_650, 20_000).contradiction() is None


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"{}", b'{"kind":"heartbeat"}', b'{"kind":"?"}'])
def test_what_no_gateway_wrote(data: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        decode_message(data)


@pytest.mark.parametrize("named", ["snapshot", ',"snapshot":{"epoch":'])
def test_news_are_messages_without_their_snapshots(named: str) -> None:
    """Whatever the names of listeners and racks are."""
    address = Address(host=named, port=1)
    member = Member(
        node_id=1, incarnation="a", instance="", addresses={"": address, named: address}, rack=named, lease_ms=1,
        started_ms=0,
    )  # fmt: skip
    state = MemberState(member=member, sequence=7, drained_epoch=3, leaving=True)
    snapshot = Snapshot(epoch=4, position=LogPosition(1, 2), members=(state,), evicted=("b",))
    for message in (
        Heartbeat(state=state, joining=True, snapshot=snapshot),
        Goodbye(node_id=1, incarnation="a", snapshot=snapshot),
        Eviction(node_id=1, incarnation="a", sequence=7, snapshot=snapshot),
        Deletion(topics=(named,), topic_ids={named: "00" * 16}, deleted_ms=5, snapshot=snapshot),
    ):
        assert decode_without_snapshot(encode_message(message)) == message.model_copy(update={"snapshot": None})
        assert decode_message(encode_message(message)) == message


def test_messages_with_another_form_of_snapshot_are_read() -> None:
    world = World()
    world.start("a").step(0)
    news = decode_without_snapshot(world.log.entries[0].replace(b'"snapshot":{', b'"snapshot": {'))
    assert isinstance(news, Heartbeat)
    assert news.snapshot is not None


def test_fields_of_a_later_version_are_passed_over() -> None:
    world = World()
    world.start("a").step(0)
    changed = world.log.entries[0].replace(b'{"kind"', b'{"more":[1],"kind"')
    assert isinstance(decode_message(changed), Heartbeat)


def test_the_log_keeps_the_name_that_older_gateways_read() -> None:
    member = Member(node_id=1, incarnation="a", instance="", addresses={}, lease_ms=1, started_ms=0)
    state = MemberState(member=member, sequence=1, drained_epoch=3)
    data = encode_message(Heartbeat(state=state, snapshot=Snapshot(epoch=0, position=None, members=())))
    assert b'"settled_epoch":3' in data
    assert decode_message(data) == Heartbeat(state=state, snapshot=Snapshot(epoch=0, position=None, members=()))


def test_what_a_member_serves_is_learnt_from_itself() -> None:
    """A snapshot of an older gateway does not have it. A member that began with the snapshot reads it from heartbeats.
    """
    member = Member(
        node_id=1, incarnation="a", instance="a", addresses={}, clusters=("acme/*",), lease_ms=1_000, started_ms=0
    )
    forgotten = member.model_copy(update={"clusters": ()})
    state = MemberState(member=forgotten, sequence=1, drained_epoch=1)
    roster = Roster(Snapshot(epoch=1, position=None, members=(state,)))
    before = roster.revision
    for sequence in (2, 3):
        heard = MemberState(member=member, sequence=sequence, drained_epoch=1)
        roster.apply(LogPosition(1, sequence), Heartbeat(state=heard, snapshot=roster.snapshot()))
    assert roster.eligible[0].serves("acme/orders") and not forgotten.serves("acme/orders")
    assert roster.revision == before + 1 and roster.epoch == 1
