"""Consumer groups with one member: subscribing, committing, administration."""

from __future__ import annotations

from typing import Any

from tests.clients.lab import Lab, expect, numbered, values

FEATURE = "groups"


def subscribe(lab: Lab) -> Any:
    """subscribe, read all partitions, commit; go on from there"""
    topic, group = lab.topic(3), lab.name("g")
    lab.witness.produce(topic, numbered(30, 3))
    member = lab.another()
    member.join(group, topic)
    expect(values(member.poll(30, 3)["records"]), values(numbered(30)))
    member.call("commit")
    member.call("leave")
    expect([lab.witness.call("committed", group=group, topic=topic, partition=each) for each in range(3)], [10] * 3)
    lab.witness.produce(topic, numbered(9, 3, "later"))
    member = lab.another()
    member.join(group, topic)
    expect(values(member.poll(9, 3)["records"]), values(numbered(9, 3, "later")))
    member.call("leave")


def leave_without_commit(lab: Lab) -> Any:
    """what is not committed comes again"""
    topic, group = lab.topic(), lab.name("g")
    lab.witness.produce(topic, numbered(10))
    for _ in range(2):
        member = lab.another()
        member.join(group, topic)
        expect(values(member.poll(10, 1)["records"]), values(numbered(10)))
        member.call("leave")


def two_topics(lab: Lab) -> Any:
    """two topics in one subscription"""
    topics = [lab.topic(2, "one"), lab.topic(1, "two")]
    for topic in topics:
        lab.witness.produce(topic, numbered(10))
    member = lab.another()
    member.join(lab.name("g"), *topics)
    found = member.poll(20, 3)
    expect(len(found["records"]), 20)
    member.call("leave")


def committed_offsets(lab: Lab) -> Any:
    """offsets committed without being a member, read back"""
    topic, group = lab.topic(2), lab.name("g")
    lab.client.call("set_offset", group=group, topic=topic, partition=1, offset=17)
    found = [lab.client.call("committed", group=group, topic=topic, partition=each) for each in (0, 1)]
    expect(found, [None, 17])
    expect(lab.witness.call("committed", group=group, topic=topic, partition=1), 17)


def start_at_a_reset_offset(lab: Lab) -> Any:
    """a group starts where its offset was set by another client"""
    topic, group = lab.topic(), lab.name("g")
    lab.witness.produce(topic, numbered(10))
    lab.witness.call("set_offset", group=group, topic=topic, partition=0, offset=7)
    member = lab.another()
    member.join(group, topic)
    expect(values(member.poll(3, 1)["records"]), ["v7", "v8", "v9"])
    member.call("leave")


def describe(lab: Lab) -> Any:
    """describe and list groups"""
    topic, group = lab.topic(), lab.name("g")
    member = lab.another()
    member.join(group, topic)
    member.poll(0, 1)
    active = lab.client.call("describe_group", group=group)
    listed = lab.client.call("groups", prefix=lab.prefix)
    member.call("leave")
    expect((active["members"], listed), (1, [group]))
    return active


def delete(lab: Lab) -> Any:
    """delete a group; one with members is refused"""
    topic, group = lab.topic(), lab.name("g")
    lab.witness.produce(topic, numbered(3))
    member = lab.another()
    member.join(group, topic)
    member.poll(3, 1)
    member.call("commit")
    refused = lab.client.error("delete_group", group=group)
    member.call("leave")
    lab.client.call("delete_group", group=group)
    expect(lab.witness.call("committed", group=group, topic=topic, partition=0), None)
    return refused


def commit_of_a_stranger(lab: Lab) -> Any:
    """who is no member cannot commit while a group has members"""
    topic, group = lab.topic(), lab.name("g")
    member = lab.another()
    member.join(group, topic)
    member.poll(0, 1)
    refused = lab.client.error("set_offset", group=group, topic=topic, partition=0, offset=1)
    member.call("leave")
    return refused
