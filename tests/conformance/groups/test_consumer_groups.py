"""Groups of the consumer protocol (KIP-848): ConsumerGroupHeartbeat (68), ConsumerGroupDescribe (69), and the responses
of the older group APIs to their members and about them."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

from tests.conformance.conversation import READY_WITHIN_S, Conversation, case
from tests.conformance.groups import test_groups as classic
from tests.conformance.groups.test_groups import new_group

PARTITIONS = 6
JOIN, LEAVE, LEAVE_STATIC = 0, -1, -2


def beat(conversation: Conversation, version: int, group: str, member: str, epoch: int, **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"group_id": group, "member_id": member, "member_epoch": epoch}
    return conversation.when_loaded("ConsumerGroupHeartbeat", version, **(fields | more))


def join(
    conversation: Conversation, version: int, group: str, member: str, topics: list[str], **more: Any
) -> dict[str, Any]:
    """The first heartbeat of a member, with all required fields."""
    fields: dict[str, Any] = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": topics, "topic_partitions": []}
    return beat(conversation, version, group, member, JOIN, **(fields | more))


def report(conversation: Conversation, version: int, group: str, answer: dict[str, Any]) -> dict[str, Any]:
    """The next heartbeat: the member owns exactly what it was assigned."""
    owned = answer["assignment"]["topic_partitions"]
    return beat(conversation, version, group, answer["member_id"], answer["member_epoch"], topic_partitions=owned)


def describe(conversation: Conversation, *groups: str) -> None:
    conversation.call("ConsumerGroupDescribe", 0, group_ids=list(groups), include_authorized_operations=True)


def topic_of(conversation: Conversation, name: str = "consumer-groups") -> str:
    is_new = not conversation.has_topic(name)
    topic = conversation.topic(name, partitions=PARTITIONS)
    conversation.topic_id(name)
    if is_new:
        await_assignment(conversation, topic)
    return topic


def await_assignment(conversation: Conversation, topic: str) -> None:
    """Not compared. Kafka's coordinator hears of a new topic later than its leader, and raises the group epoch."""
    group, member = new_group(conversation), {"member_id": "m", "topic_partitions": []}
    fields = {"group_id": group, "rebalance_timeout_ms": 30_000, "subscribed_topic_names": [topic], **member}
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        answer = conversation.client.call("ConsumerGroupHeartbeat", 0, member_epoch=JOIN, **fields)
        if answer["error_code"] == 0 and answer["assignment"]["topic_partitions"]:
            break
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)
    conversation.client.call("ConsumerGroupHeartbeat", 0, member_epoch=LEAVE, **fields)


@case("ConsumerGroupHeartbeat")
@pytest.mark.parametrize("assignor", [None, "uniform", "range"])
def test_two_members(conversation: Conversation, version: int, assignor: str | None) -> None:
    group, topic = new_group(conversation), topic_of(conversation)
    first = join(conversation, version, group, "m1", [topic], server_assignor=assignor)
    describe(conversation, group)
    beat(conversation, version, group, "m1", first["member_epoch"])
    second = join(conversation, version, group, "m2", [topic], server_assignor=assignor)
    describe(conversation, group)
    revoked = beat(conversation, version, group, "m1", first["member_epoch"])
    beat(conversation, version, group, "m2", second["member_epoch"])
    report(conversation, version, group, revoked)
    beat(conversation, version, group, "m2", second["member_epoch"])
    describe(conversation, group)
    beat(conversation, version, group, "m2", LEAVE)
    beat(conversation, version, group, "m1", second["member_epoch"])
    describe(conversation, group)
    beat(conversation, version, group, "m1", LEAVE)
    describe(conversation, group)
    conversation.call("DeleteGroups", 2, groups_names=[group])
    describe(conversation, group)


@case("ConsumerGroupHeartbeat")
@pytest.mark.parametrize(
    "fields",
    [
        {"group_id": ""},
        {"group_id": " "},
        {"instance_id": ""},
        {"instance_id": " \t"},
        {"rack_id": ""},
        {"rack_id": "\x00"},
        {"rack_id": "\xa0"},
        {"rebalance_timeout_ms": -1},
        {"subscribed_topic_names": []},
        {"subscribed_topic_names": None},
        {"topic_partitions": None},
        {"topic_partitions": [{"topic_id": uuid.UUID(int=5), "partitions": [0]}]},
        {"server_assignor": "sticky"},
        {"server_assignor": ""},
        {"member_epoch": 3},
        {"member_epoch": LEAVE},
        {"member_epoch": LEAVE_STATIC},
        {"member_epoch": LEAVE_STATIC, "instance_id": "i1"},
        {"member_epoch": -3},
        {"member_epoch": 3, "member_id": ""},
        {"member_epoch": LEAVE, "member_id": ""},
        {"member_epoch": LEAVE, "member_id": " "},
        {"member_epoch": LEAVE_STATIC, "member_id": " ", "instance_id": "i1"},
        {"member_epoch": 3, "member_id": "\n"},
        {"member_id": " "},
    ],
    ids=repr,
)
def test_refused_first_heartbeat(conversation: Conversation, version: int, fields: dict[str, Any]) -> None:
    group, topic = new_group(conversation), topic_of(conversation)
    asked = {"group_id": group, "member_id": "m1"} | fields
    join(conversation, version, asked.pop("group_id"), asked.pop("member_id"), [topic], **asked)
    conversation.call("DescribeGroups", 5, groups=[group], include_authorized_operations=False)
    describe(conversation, group)


@case("ConsumerGroupHeartbeat")
@pytest.mark.parametrize(
    "fields",
    [
        {"member_epoch": 3},
        {"member_epoch": -3},
        {"member_id": "m2"},
        {"member_id": "m2", "member_epoch": LEAVE},
        {"member_id": "m2", "member_epoch": LEAVE_STATIC, "instance_id": "i2"},
        {"member_epoch": LEAVE_STATIC, "instance_id": "i2"},
        {"instance_id": "i2"},
        {"instance_id": ""},
        {"server_assignor": "sticky"},
        {"server_assignor": "range"},
        {"subscribed_topic_names": []},
        {"subscribed_topic_names": ["nowhere"]},
        {"topic_partitions": []},
        {"topic_partitions": [{"topic_id": uuid.UUID(int=5), "partitions": [0]}]},
        {"rack_id": "r1"},
        {"rebalance_timeout_ms": 1},
        {"rebalance_timeout_ms": 0},
        {"member_epoch": JOIN},
        {"member_epoch": JOIN, "rebalance_timeout_ms": 1, "subscribed_topic_names": ["t"], "topic_partitions": []},
    ],
    ids=repr,
)
def test_next_heartbeat(conversation: Conversation, version: int, fields: dict[str, Any]) -> None:
    group, topic = new_group(conversation), topic_of(conversation)
    joined = join(conversation, version, group, "m1", [topic])
    asked = {"group_id": group, "member_id": "m1", "member_epoch": joined["member_epoch"]} | fields
    conversation.call("ConsumerGroupHeartbeat", version, **asked)
    describe(conversation, group)


@case("ConsumerGroupHeartbeat")
def test_generated_member_id(conversation: Conversation, version: int) -> None:
    group, topic = new_group(conversation), topic_of(conversation)
    joined = join(conversation, version, group, "", [topic])
    conversation.answers[-1]["ConsumerGroupHeartbeat"]["member_id"] = bool(joined["member_id"])


@case("ConsumerGroupHeartbeat")
def test_previous_epoch(conversation: Conversation, version: int) -> None:
    """After a lost response. A member that claims other partitions than its assignment is fenced."""
    group, topic = new_group(conversation), topic_of(conversation)
    first = join(conversation, version, group, "m1", [topic])
    join(conversation, version, group, "m2", [topic])
    revoked = beat(conversation, version, group, "m1", first["member_epoch"])
    report(conversation, version, group, revoked)
    claims: list[Any] = [None, [], *(each["assignment"]["topic_partitions"] for each in (revoked, first))]
    for owned in claims:
        beat(conversation, version, group, "m1", first["member_epoch"], topic_partitions=owned)
    describe(conversation, group)


@case("ConsumerGroupHeartbeat")
def test_static_member(conversation: Conversation, version: int) -> None:
    group, topic = new_group(conversation), topic_of(conversation)
    joined = join(conversation, version, group, "m1", [topic], instance_id="i1")
    join(conversation, version, group, "m2", [topic], instance_id="i1")
    beat(conversation, version, group, "m1", joined["member_epoch"])
    beat(conversation, version, group, "m2", joined["member_epoch"], instance_id="i1")
    beat(conversation, version, group, "m1", LEAVE_STATIC, instance_id="i1")
    describe(conversation, group)
    beat(conversation, version, group, "m1", joined["member_epoch"], instance_id="i1")
    join(conversation, version, group, "m2", [topic], instance_id="i1")
    describe(conversation, group)
    beat(conversation, version, group, "m1", joined["member_epoch"], instance_id="i1")
    beat(conversation, version, group, "m2", LEAVE, instance_id="i1")
    describe(conversation, group)


@case("ConsumerGroupHeartbeat")
def test_static_member_that_comes_back_with_other_topics(conversation: Conversation, version: int) -> None:
    group, topic = new_group(conversation), topic_of(conversation)
    other = topic_of(conversation, "consumer-groups-too")
    join(conversation, version, group, "m1", [topic], instance_id="i1")
    beat(conversation, version, group, "m1", LEAVE_STATIC, instance_id="i1")
    join(conversation, version, group, "m2", [other], instance_id="i1")
    describe(conversation, group)


@case("ConsumerGroupHeartbeat")
def test_subscription_of_topics_that_are_not_there(conversation: Conversation, version: int) -> None:
    group, topic = new_group(conversation), topic_of(conversation)
    names = [topic, "nowhere", "not a name", "", "a" * 300]
    joined = join(conversation, version, group, "m1", names)
    describe(conversation, group)
    beat(conversation, version, group, "m1", joined["member_epoch"], subscribed_topic_names=["nowhere"])
    describe(conversation, group)


@case("ConsumerGroupHeartbeat")
def test_members_that_read_different_topics(conversation: Conversation, version: int) -> None:
    group, topic = new_group(conversation), topic_of(conversation)
    other = topic_of(conversation, "consumer-groups-too")
    join(conversation, version, group, "m1", [topic])
    join(conversation, version, group, "m2", [other])
    describe(conversation, group)


@case("ConsumerGroupDescribe")
def test_describe_what_is_no_consumer_group(conversation: Conversation, version: int) -> None:
    group = new_group(conversation)
    classic.join(conversation, 3, group)
    for groups in ([group], ["nothing-of-the-kind"], []):
        conversation.call("ConsumerGroupDescribe", version, group_ids=groups, include_authorized_operations=False)


@case("DescribeGroups")
def test_described_as_a_classic_group(conversation: Conversation, version: int) -> None:
    group, topic = new_group(conversation), topic_of(conversation)
    join(conversation, 0, group, "m1", [topic])
    classic.describe(conversation, version, group)


def list_ours(conversation: Conversation, version: int, group: str, **filters: list[str]) -> None:
    answer = conversation.client.call("ListGroups", version, **filters)
    ours = [{**row, "group_id": "<ours>"} for row in answer["groups"] if row["group_id"] == group]
    conversation.say({"error": answer["error_code"], "groups": ours})


@case("ListGroups")
def test_listed(conversation: Conversation, version: int) -> None:
    group, topic = new_group(conversation), topic_of(conversation)
    join(conversation, 0, group, "m1", [topic])
    for states in ([], ["Stable"], ["stable", "Empty"], ["Assigning"], ["Empty"]) if version >= 4 else ():
        no_types: dict[str, list[str]] = {"types_filter": []} if version >= 5 else {}
        list_ours(conversation, version, group, states_filter=states, **no_types)
    for types in (["consumer"], ["Consumer"], ["classic"], ["consumer", "classic"]) if version >= 5 else ():
        list_ours(conversation, version, group, states_filter=[], types_filter=types)
    if version < 4:
        list_ours(conversation, version, group)


@case("DeleteGroups")
def test_not_deleted_while_it_has_members(conversation: Conversation, version: int) -> None:
    group, topic = new_group(conversation), topic_of(conversation)
    join(conversation, 0, group, "m1", [topic])
    conversation.call("DeleteGroups", version, groups_names=[group])
    beat(conversation, 0, group, "m1", LEAVE)
    conversation.call("DeleteGroups", version, groups_names=[group])
    describe(conversation, group)


@case("OffsetCommit")
def test_commit(conversation: Conversation, version: int) -> None:
    group, topic = new_group(conversation), topic_of(conversation)
    joined = join(conversation, 0, group, "m1", [topic])
    epoch = joined["member_epoch"]
    for member, number in (("m1", epoch), ("m1", epoch + 1), ("m1", epoch - 1), ("m1", -1), ("m2", epoch), ("", -1)):
        own: dict[str, Any] = {"generation_id_or_member_epoch": number, "member_id": member} if version else {}
        classic.commit(conversation, version, group, topic, **own)
    classic.fetch(conversation, 8, group, [topic])
    beat(conversation, 0, group, "m1", LEAVE)
    classic.commit(conversation, version, group, topic)
    classic.fetch(conversation, 8, group, [topic])


@case("OffsetFetch", [9])
def test_fetch(conversation: Conversation, version: int) -> None:
    group, topic = new_group(conversation), topic_of(conversation)
    epoch = join(conversation, 0, group, "m1", [topic])["member_epoch"]
    classic.commit(conversation, 9, group, topic, generation_id_or_member_epoch=epoch, member_id="m1")
    for member, number in (("m1", epoch), ("m1", epoch + 1), ("m1", -1), ("m2", epoch), ("", -1), (None, -1)):
        topics = [{"name": topic, "partition_indexes": [0]}]
        asked = {"group_id": group, "topics": topics, "member_id": member, "member_epoch": number}
        conversation.call("OffsetFetch", version, groups=[asked], require_stable=False)


@case("OffsetDelete")
def test_delete_offsets(conversation: Conversation, version: int) -> None:
    group, topic = new_group(conversation), topic_of(conversation)
    other = topic_of(conversation, "consumer-groups-too")
    epoch = join(conversation, 0, group, "m1", [topic])["member_epoch"]
    for name in (topic, other):
        classic.commit(conversation, 9, group, name, generation_id_or_member_epoch=epoch, member_id="m1")
    rows = [{"name": name, "partitions": [{"partition_index": 0}]} for name in (topic, other)]
    conversation.call("OffsetDelete", version, group_id=group, topics=rows)
    classic.fetch(conversation, 8, group, [topic, other])


@case("ConsumerGroupHeartbeat")
def test_classic_members_of_a_consumer_group(conversation: Conversation, version: int) -> None:
    """Requests that they may still send; joining is another case."""
    group, topic = new_group(conversation), topic_of(conversation)
    epoch = join(conversation, version, group, "m1", [topic])["member_epoch"]
    classic.heartbeat(conversation, 4, group, "m1", epoch)
    classic.sync(conversation, 5, group, "m1", epoch)
    classic.leave(conversation, 5, group, "m1")
    describe(conversation, group)


@case("JoinGroup", [3])
def test_classic_consumer_joins_a_consumer_group(conversation: Conversation, version: int) -> None:
    group, topic = new_group(conversation), topic_of(conversation)
    join(conversation, 0, group, "m1", [topic])
    classic.join(conversation, version, group)


@case("JoinGroup")
def test_classic_member_joins_a_consumer_group(conversation: Conversation, version: int) -> None:
    group, topic = new_group(conversation), topic_of(conversation)
    join(conversation, 0, group, "m1", [topic])
    classic.join(conversation, version, group, protocol_type="connect")
    describe(conversation, group)


@case("ConsumerGroupHeartbeat")
def test_consumer_member_joins_a_classic_group(conversation: Conversation, version: int) -> None:
    group, topic = new_group(conversation), topic_of(conversation)
    classic.join(conversation, 3, group)
    join(conversation, version, group, "m1", [topic])
    beat(conversation, version, group, "m1", 1)
    beat(conversation, version, group, "m1", LEAVE)


@case("ConsumerGroupHeartbeat")
def test_an_empty_group_changes_its_protocol(conversation: Conversation, version: int) -> None:
    """The offsets stay."""
    group, topic = new_group(conversation), topic_of(conversation)
    classic.commit(conversation, 9, group, topic)
    join(conversation, version, group, "m1", [topic])
    classic.fetch(conversation, 8, group, [topic])
    beat(conversation, version, group, "m1", LEAVE)
    describe(conversation, group)
    joined = classic.join(conversation, 3, group)
    classic.sync(conversation, 3, group, joined["member_id"], joined["generation_id"])
    classic.describe(conversation, 5, group)
    classic.fetch(conversation, 8, group, [topic])
    classic.leave(conversation, 5, group, joined["member_id"])
    join(conversation, version, group, "m1", [topic])


@case("ConsumerGroupDescribe")
def test_describe_odd_groups(conversation: Conversation, version: int) -> None:
    new_group(conversation)
    for ids in ([""], ["none"], ["none", "none"], ["", ""], []):
        conversation.call("ConsumerGroupDescribe", version, group_ids=ids, include_authorized_operations=True)
