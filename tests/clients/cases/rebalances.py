"""Groups whose members join, leave and die, and whose topics change."""

from __future__ import annotations

from typing import Any

from tests.clients.lab import Client, Lab, expect, numbered, poll_together, values

FEATURE = "rebalances"
SHORT_SESSION_MS = 6_000
LONG_SESSION_MS = 45_000
"""Longer than the start of a client on a busy machine."""
STAYS_MS = 3_000


def two_members(lab: Lab) -> Any:
    """two members share four partitions; each record once"""
    topic, members = _pair(lab)
    _each_record_once(lab, topic, members)
    _leave(members)


def one_leaves(lab: Lab) -> Any:
    """one leaves, the other has it all"""
    topic, (first, second) = _pair(lab)
    second.call("leave")
    expect(len(first.poll(0, 4)["assigned"]), 4)
    lab.witness.produce(topic, numbered(20, 4))
    expect(values(first.poll(20)["records"]), values(numbered(20)))
    first.call("leave")


def one_is_killed(lab: Lab) -> Any:
    """one is killed, the other has it all after the session timeout"""
    topic, (first, second) = _pair(lab, session_timeout_ms=SHORT_SESSION_MS)
    second.kill()
    expect(len(first.poll(0, 4)["assigned"]), 4)
    lab.witness.produce(topic, numbered(20, 4))
    expect(values(first.poll(20)["records"]), values(numbered(20)))
    first.call("leave")


def new_partitions(lab: Lab) -> Any:
    """new partitions are noticed"""
    topic = lab.topic(1)
    member = lab.another()
    member.join(lab.name("g"), topic)
    member.poll(0, 1)
    lab.witness.call("add_partitions", topic=topic, partitions=3)
    expect(len(member.poll(0, 3)["assigned"]), 3)
    lab.witness.produce(topic, numbered(30, 3))
    expect(values(member.poll(30)["records"]), values(numbered(30)))
    member.call("leave")


def pattern(lab: Lab) -> Any:
    """topics by pattern, also later ones"""
    lab.topic(1, "one")
    lab.topic(1, "two")
    member = lab.another()
    member.join(lab.name("g"), pattern=f"{lab.prefix}-.*")
    expect(len(member.poll(0, 2)["assigned"]), 2)
    lab.topic(2, "three")
    expect(len(member.poll(0, 4)["assigned"]), 4)
    member.call("leave")


def cooperative(lab: Lab) -> Any:
    """cooperative-sticky"""
    topic, members = _pair(lab, assignor="cooperative-sticky")
    _each_record_once(lab, topic, members)
    _leave(members)


def static_members(lab: Lab) -> Any:
    """static members: a restart moves nothing"""
    topic, group = lab.topic(4), lab.name("g")
    first, second = lab.another(), lab.another()
    static = {"session_timeout_ms": LONG_SESSION_MS}
    first.join(group, topic, instance_id="first", **static)
    second.join(group, topic, instance_id="second", **static)
    before = poll_together((first, {"assigned": 2}), (second, {"assigned": 2}))
    second.close()
    expect(first.poll(0, 4, STAYS_MS)["assigned"], before[0]["assigned"])
    again = lab.another()
    again.join(group, topic, instance_id="second", **static)
    after = poll_together((first, {"assigned": 2}), (again, {"assigned": 2}))
    expect([each["assigned"] for each in after], [each["assigned"] for each in before])


def consumer_protocol(lab: Lab) -> Any:
    """group.protocol=consumer (KIP-848): two members share four partitions"""
    topic, members = _pair(lab, protocol="consumer")
    _each_record_once(lab, topic, members)
    _leave(members)


def _pair(lab: Lab, **options: Any) -> tuple[str, tuple[Client, Client]]:
    """Two members with two partitions each."""
    topic, group = lab.topic(4), lab.name("g")
    first, second = lab.another(), lab.another()
    first.join(group, topic, **options)
    expect(len(first.poll(0, 4)["assigned"]), 4)
    second.join(group, topic, **options)
    answers = poll_together((first, {"assigned": 2}), (second, {"assigned": 2}))
    shares = [tuple(partition) for answer in answers for partition in answer["assigned"]]
    expect(sorted(shares), [(topic, partition) for partition in range(4)])
    return topic, (first, second)


def _each_record_once(lab: Lab, topic: str, members: tuple[Client, Client]) -> None:
    lab.witness.produce(topic, numbered(40, 4))
    answers = poll_together(*((member, {"count": 20}) for member in members))
    expect(values([each for answer in answers for each in answer["records"]]), values(numbered(40)))


def _leave(members: tuple[Client, Client]) -> None:
    for member in members:
        member.call("leave")
