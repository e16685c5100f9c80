"""Requests that name many things are answered in slices; one that is named again and again is refused."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from gateway import fan_out
from gateway.handlers.groups import leave_group
from gateway.handlers.table import APIS
from gateway.pulsar.admin.topics import PartitionedTopic
from gateway.requests.repeated import MAX_TIMES, answer_each, look_up_each
from protocol.kafka.codec import decode_response, encode_request
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.cluster import DescribeConfigsRequest
from protocol.kafka.messages.groups import (
    ConsumerGroupDescribeRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    LeaveGroupRequest,
)
from protocol.kafka.messages.message import Message
from protocol.kafka.messages.records import DescribeProducersRequest
from protocol.kafka.messages.transactions import DescribeTransactionsRequest
from tests.bench.inside.broker import FakeAdminTopics
from tests.bench.inside.scene import Scene

MANY = 3_000
TOPIC = 2
_Topic = DescribeProducersRequest.TopicRequest
_Resource = DescribeConfigsRequest.DescribeConfigsResource
REQUESTS: list[tuple[Message, int, str, str]] = [
    (DescribeGroupsRequest(groups=["g"] * MANY), 5, "groups", "error_code"),
    (ConsumerGroupDescribeRequest(group_ids=["g"] * MANY), 0, "groups", "error_code"),
    (DescribeTransactionsRequest(transactional_ids=["t"] * MANY), 0, "transaction_states", "error_code"),
    (
        DescribeProducersRequest(topics=[_Topic(name="t", partition_indexes=[0] * MANY)]),
        0, "topics.partitions", "error_code",
    ),
    (
        DescribeConfigsRequest(resources=[_Resource(resource_type=TOPIC, resource_name="t")] * MANY),
        4, "results", "error_code",
    ),
]  # fmt: skip


async def answered(scene: Scene, request: Message, version: int) -> Any:
    client = scene.connect()
    client.ask(b"".join(encode_request(type(request), version, 1, "client", request)))
    await scene.until_answered([client])
    api = next(api for api in APIS.values() if api.request is type(request))
    return decode_response(api.response, version, memoryview(b"".join(map(bytes, client.received)))[4:])


@pytest.mark.parametrize(("request_", "version", "path", "field"), REQUESTS, ids=lambda each: type(each).__name__)
async def test_what_is_named_too_often_is_refused(request_: Message, version: int, path: str, field: str) -> None:
    scene = Scene()
    scene.add_topic("t")
    await scene.lead_groups()
    rows: Any = await answered(scene, request_, version)
    for name in path.split("."):
        rows = getattr(rows[0] if isinstance(rows, list) else rows, name)
    refused = [getattr(row, field) == ErrorCode.INVALID_REQUEST for row in rows]
    assert refused == [False] * MAX_TIMES + [True] * (MANY - MAX_TIMES)


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (FindCoordinatorRequest(key_type=0, coordinator_keys=[f"g{number}" for number in range(MANY)]), 4),
        (DescribeGroupsRequest(groups=[f"g{number}" for number in range(MANY)]), 5),
        (ConsumerGroupDescribeRequest(group_ids=[f"g{number}" for number in range(MANY)]), 0),
        (DescribeTransactionsRequest(transactional_ids=[f"t{number}" for number in range(MANY)]), 0),
        (
            LeaveGroupRequest(
                group_id="g", members=[LeaveGroupRequest.MemberIdentity(member_id=f"m{n}") for n in range(MANY)]
            ),
            4,
        ),
    ],
    ids=lambda each: type(each).__name__,
)
async def test_others_have_their_turns(request_: Message, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "SLICE_S", 0)  # a turn for each step
    scene = Scene()
    await scene.lead_groups()
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count_turns())
    await answered(scene, request_, version)
    counting.cancel()
    steps = MANY / leave_group.AT_ONCE if isinstance(request_, LeaveGroupRequest) else MANY
    assert turns >= steps


async def test_configurations_of_topics_are_looked_up_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """User interfaces ask for those of all topics; each needs a request to Pulsar."""
    monkeypatch.setattr(fan_out, "SLICE_S", 60.0)
    scene, reading, most = Scene(), 0, 0
    for number in range(100):
        scene.add_topic(f"t{number}")
    partitioned = FakeAdminTopics.partitioned

    async def slowly(own: FakeAdminTopics, topic: str) -> PartitionedTopic:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        await asyncio.sleep(0)
        reading -= 1
        return await partitioned(own, topic)

    monkeypatch.setattr(FakeAdminTopics, "partitioned", slowly)
    resources = [_Resource(resource_type=TOPIC, resource_name=f"t{number}") for number in range(100)]
    response = await answered(scene, DescribeConfigsRequest(resources=resources), 4)
    assert [row.resource_name for row in response.results] == [each.resource_name for each in resources]
    assert most > 4


async def test_each_thing_is_looked_up_once() -> None:
    asked: Counter[str] = Counter()

    async def look_up(name: str) -> str:
        asked[name] += 1
        return name.upper()

    names = ["a"] * (MAX_TIMES + 2) + ["b"]
    rows = await look_up_each(names, look_up, lambda name: "refused")
    assert rows == ["A"] * MAX_TIMES + ["refused"] * 2 + ["B"]
    assert asked == {"a": 1, "b": 1}
    assert await answer_each([], str.upper, str.lower) == []
