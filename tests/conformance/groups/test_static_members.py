"""Static members (KIP-345) that start again in each phase of a rebalance, and what their predecessors still get."""

from __future__ import annotations

import pytest

from tests.conformance.conversation import Conversation, case
from tests.conformance.groups.test_groups import METADATA, new_group
from tests.conformance.groups.test_rebalances import REBALANCE_IN_PROGRESS, STATIC_SINCE, Member, state_of

FENCED_INSTANCE_ID = 82
OTHER_METADATA = METADATA.replace(b"t", b"u")
VERSIONS = (STATIC_SINCE, 8, 9)
"""The leader may skip the assignment since version 9."""


def started_again(member: Member) -> Member:
    assert member.instance is not None
    return Member(member.conversation, member.version, member.group, f"{member.name} again", member.instance)


def joining(conversation: Conversation, version: int) -> tuple[Member, Member]:
    """Both members have joined, and the first one leads; nobody has an assignment."""
    group = new_group(conversation)
    first, second = (Member(conversation, version, group, name, instance=name) for name in ("first", "second"))
    first.join()
    first.sync()
    second.ask_to_join()
    first.hears(REBALANCE_IN_PROGRESS)
    first.join()
    second.joined()
    return first, second


def stable(conversation: Conversation, version: int) -> tuple[Member, Member]:
    first, second = joining(conversation, version)
    second.ask_to_sync()
    first.sync()
    second.synced()
    return first, second


def what_is_left_for(old: Member, topic: str) -> None:
    """Of the member that was replaced. It also forgets its instance id in the end."""
    old.beats()
    old.commits(topic)
    old.sync()
    old.leaves()
    old.join()
    old.generation += 1
    old.beats()
    old.instance = None
    old.beats()
    old.commits(topic)
    old.leaves()


def all_join(*members: Member) -> None:
    for member in members:
        member.ask_to_join()
    for member in members:
        member.joined()


def all_sync(*members: Member) -> None:
    for member in members:
        member.ask_to_sync()
    for member in members:
        member.synced()


@case("JoinGroup", VERSIONS)
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("leads", [False, True])
def test_while_members_join(conversation: Conversation, version: int, waits: bool, leads: bool) -> None:
    topic = conversation.topic("groups")
    first, second = stable(conversation, version)
    old, other = (first, second) if leads else (second, first)
    third = Member(conversation, version, first.group, "third", instance="third")
    third.ask_to_join()
    old.hears(REBALANCE_IN_PROGRESS)
    if waits:
        old.ask_to_join()
    again = started_again(old)
    again.ask_to_join()
    if waits:
        old.joined()
    old.hears(FENCED_INSTANCE_ID)
    what_is_left_for(old, topic)
    state_of(conversation, first.group)
    other.ask_to_join()
    for member in (other, again, third):
        member.joined()
    all_sync(other, again, third)
    for member in (other, again, third):
        member.beats()
    state_of(conversation, first.group)


@case("JoinGroup", VERSIONS)
@pytest.mark.parametrize(("waits", "leads"), [(False, False), (False, True), (True, False)])
def test_while_the_leader_assigns(conversation: Conversation, version: int, waits: bool, leads: bool) -> None:
    """A SyncGroup of the leader would end the phase."""
    topic = conversation.topic("groups")
    first, second = joining(conversation, version)
    old, other = (first, second) if leads else (second, first)
    if waits:
        old.ask_to_sync()
        other.beats()
    again = started_again(old)
    again.ask_to_join()
    if waits:
        old.synced()
    old.hears(FENCED_INSTANCE_ID)
    what_is_left_for(old, topic)
    other.hears(REBALANCE_IN_PROGRESS)
    other.commits(topic)
    other.sync()
    other.ask_to_join()
    other.joined()
    again.joined()
    all_sync(other, again)
    state_of(conversation, first.group)


@case("JoinGroup", VERSIONS)
@pytest.mark.parametrize("leads", [False, True])
def test_in_a_stable_group(conversation: Conversation, version: int, leads: bool) -> None:
    """Without a rebalance. The leader that started again leads the next one."""
    topic = conversation.topic("groups")
    first, second = stable(conversation, version)
    old, other = (first, second) if leads else (second, first)
    again = started_again(old)
    again.join(metadata=OTHER_METADATA)
    state_of(conversation, first.group)
    what_is_left_for(old, topic)
    other.beats()
    again.beats()
    again.sync()
    again.commits(topic)
    state_of(conversation, first.group)
    if leads:
        other.leaves()
        again.hears(REBALANCE_IN_PROGRESS)
    else:
        other.ask_to_join(metadata=OTHER_METADATA)
        again.hears(REBALANCE_IN_PROGRESS)
    again.ask_to_join()
    again.joined()
    if not leads:
        other.joined()
    state_of(conversation, first.group)


@case("JoinGroup", VERSIONS)
@pytest.mark.parametrize("protocol", ["other", "range other", "other range", ""])
def test_with_other_protocols(conversation: Conversation, version: int, protocol: str) -> None:
    """The group's one may change: then there is a rebalance."""
    group = new_group(conversation)
    member = Member(conversation, version, group, "first", instance="first")
    member.join(protocol="range other")
    member.sync()
    again = started_again(member)
    again.join(protocol=protocol)
    state_of(conversation, group)
    member.beats()
    again.beats()
    again.sync(**({"protocol_name": "other"} if protocol.startswith("other") else {}))
    state_of(conversation, group)


@case("JoinGroup", VERSIONS)
@pytest.mark.parametrize("is_first", [False, True])
def test_with_the_id_that_it_had(conversation: Conversation, version: int, is_first: bool) -> None:
    """A member id that is known belongs to one instance."""
    first, second = stable(conversation, version)
    other = started_again(second)
    other.member_id = first.member_id if is_first else second.member_id
    other.ask_to_join()
    if is_first:
        other.joined()
        other.beats()
        other.leaves()
    else:
        other.joined()
    first.beats()
    second.beats()
    nobody = Member(conversation, version, first.group, "nobody", instance="nobody")
    nobody.member_id = first.member_id
    nobody.generation = first.generation
    nobody.join()
    nobody.beats()
    nobody.leaves()
    state_of(conversation, first.group)


@case("JoinGroup", VERSIONS)
def test_removed_by_its_instance_id_while_it_joins(conversation: Conversation, version: int) -> None:
    first, second = stable(conversation, version)
    third = Member(conversation, version, first.group, "third", instance="third")
    third.ask_to_join()
    second.hears(REBALANCE_IN_PROGRESS)
    second.ask_to_join()
    admin = started_again(second)
    admin.beats()  # the JoinGroup has arrived by then, or the member leaves before it
    admin.leaves(by_instance=True)
    second.joined()
    first.join()
    third.joined()
    all_sync(third, first)
    second.beats()
    state_of(conversation, first.group)
