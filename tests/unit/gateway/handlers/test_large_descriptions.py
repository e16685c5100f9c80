"""Descriptions of groups: a small request must not have an answer of gigabytes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator.group.messages import DescribedConsumer, DescribedConsumerGroup, DescribedGroup, DescribedMember
from gateway import fan_out
from gateway.authorization import groups
from gateway.handlers.groups import consumer_group_describe, describe_groups
from gateway.requests import repeated
from gateway.requests.policy import ALL_ALLOWED
from gateway.requests.reply import Reply
from protocol.kafka.codec import encode_response
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.groups import ConsumerGroupDescribeResponse, DescribeGroupsResponse

NONE, LATER, REFUSED = ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.INVALID_REQUEST
GROUP_BYTES = 1_000


class Groups:
    """Each name begins with the group's size: how often it has GROUP_BYTES."""

    def __init__(self) -> None:
        self.described: list[str] = []

    def run(self, group_id: str, ask: Any) -> Any:
        return ask(self, 0)

    def describe_group(self, group_id: str) -> DescribedGroup:
        self.described.append(group_id)
        data = b"x" * (GROUP_BYTES * int(group_id[0]) // 2)
        member = DescribedMember("m", None, "c", "/h", data, data)
        return DescribedGroup(NONE, group_id, "Stable", members=[member])

    def describe_consumer_group(self, group_id: str) -> DescribedConsumerGroup:
        self.described.append(group_id)
        members = [consumer(f"m{each}", "t" * 96) for each in range(int(group_id[0]) * GROUP_BYTES // 100)]
        return DescribedConsumerGroup(NONE, group_id, "Stable", members=members)


def consumer(member_id: str, *topics: str) -> DescribedConsumer:
    names = frozenset(topics)
    return DescribedConsumer(member_id, None, None, 1, "c", "/h", names, None, {}, {}, is_classic=False)


async def errors(asked: Groups, handler: Any, names: list[str]) -> list[int]:
    call: Any = SimpleNamespace(
        request=SimpleNamespace(group_ids=names, groups=names, include_authorized_operations=False), version=5,
        cluster=SimpleNamespace(groups=asked), context=SimpleNamespace(policy=ALL_ALLOWED),
        count_error=lambda code: None,
    )  # fmt: skip
    response = await handler.handle(call)
    assert [row.group_id for row in response.groups] == names
    return [row.error_code for row in response.groups]


@pytest.mark.parametrize(("handler", "limit"), [(describe_groups, 3_900), (consumer_group_describe, 5_000)])
async def test_an_answer_has_a_bound(handler: Any, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated, "MAX_ANSWER_BYTES", limit)
    coordinator = Groups()
    found = await errors(coordinator, handler, ["1a", "1b", "1c", "1d", "1e", "1a"])
    assert found == [NONE] * 3 + [LATER] * 2 + [REFUSED]
    assert coordinator.described == ["1a", "1b", "1c", "1d"], "when the answer is full, no other group is looked at"
    assert await errors(coordinator, handler, ["1d", "1e"]) == [NONE] * 2, "the client asks again"
    assert await errors(coordinator, handler, ["1a"] * 5) == [NONE] * 3 + [REFUSED] * 2
    assert await errors(coordinator, handler, ["9a", "1a"]) == [REFUSED, NONE], "it has no room even alone"


async def test_equal_subscriptions_are_listed_and_encoded_once() -> None:
    topics = [f"t{number}" for number in range(3)]
    members = [consumer("a", *topics), consumer("b", *reversed(topics)), consumer("c", "t1")]
    group = DescribedConsumerGroup(NONE, "g", "Stable", members=members)
    call: Any = SimpleNamespace(
        request=SimpleNamespace(group_ids=["g"], include_authorized_operations=False), version=1,
        cluster=SimpleNamespace(groups=SimpleNamespace(run=lambda group_id, ask: group)),
        context=SimpleNamespace(policy=ALL_ALLOWED), count_error=lambda code: None,
    )  # fmt: skip
    response = await consumer_group_describe.handle(call)
    first, second, third = (member.subscribed_topic_names for member in response.groups[0].members)
    assert first is second and [first, third] == [topics, ["t1"]]
    encoded = b"".join(encode_response(ConsumerGroupDescribeResponse, 1, 7, response))
    for member in response.groups[0].members:
        member.subscribed_topic_names = list(member.subscribed_topic_names)
    assert encoded == b"".join(encode_response(ConsumerGroupDescribeResponse, 1, 7, response))


@pytest.mark.parametrize(("handler", "kind"), [
    (describe_groups, DescribeGroupsResponse), (consumer_group_describe, ConsumerGroupDescribeResponse),
])  # fmt: skip
async def test_sizes_are_estimated(handler: Any, kind: Any) -> None:
    """Within a third, so that the bound is one."""
    call: Any = SimpleNamespace(
        request=SimpleNamespace(group_ids=["9"], groups=["9"], include_authorized_operations=False), version=1,
        cluster=SimpleNamespace(groups=Groups()), context=SimpleNamespace(policy=ALL_ALLOWED),
        count_error=lambda code: None,
    )  # fmt: skip
    response = await handler.handle(call)
    size_bytes = len(b"".join(encode_response(kind, 1, 7, response)))
    described = Groups().describe_consumer_group("9") if handler is consumer_group_describe else response.groups[0]
    assert size_bytes * 2 / 3 < handler._bytes_of(described) < size_bytes * 4 / 3


async def test_rights_to_the_topics_of_members_are_looked_up_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "SLICE_S", 0.0)
    kind = ConsumerGroupDescribeResponse.DescribedGroup
    empty = kind.Member.Assignment()
    member = partial(kind.Member, assignment=empty, target_assignment=empty)
    members = [member(subscribed_topic_names=[f"t{number}"]) for number in range(40)]
    answer = ConsumerGroupDescribeResponse(groups=[kind(group_id="g", members=members)])
    call: Any = SimpleNamespace(request=None, context=SimpleNamespace(policy=ALL_ALLOWED))
    call.asking = lambda request: call
    task = asyncio.create_task(groups._topics_of_groups(call, lambda asked: Reply(answer)).result())
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > len(members)
    assert task.result().groups == answer.groups  # type: ignore[union-attr]


async def test_assignments_of_very_many_topics_are_described_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single member may have tens of thousands of topics, each of which is a row, twice."""
    monkeypatch.setattr(fan_out, "SLICE_S", 0.0)
    names = {number.to_bytes(16, "big"): f"t{number}" for number in range(1_000)}
    assigned = {topic_id: {2, 1} for topic_id in names}
    member = replace(consumer("m"), assigned=assigned, target=assigned)
    group = DescribedConsumerGroup(NONE, "g", "Stable", members=[member], topic_names=names)
    call: Any = SimpleNamespace(
        request=SimpleNamespace(group_ids=["g", "g"], include_authorized_operations=False), version=1,
        cluster=SimpleNamespace(groups=SimpleNamespace(run=lambda group_id, ask: group)),
        context=SimpleNamespace(policy=ALL_ALLOWED), count_error=lambda code: None,
    )  # fmt: skip
    task, turns = asyncio.create_task(consumer_group_describe.handle(call)), 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 2 * len(names) / fan_out.STEP_ITEMS
    first, second = task.result().groups
    assert first is second
    assert [(row.topic_name, row.partitions) for row in first.members[0].target_assignment.topic_partitions] == [
        (name, [1, 2]) for name in names.values()
    ]
