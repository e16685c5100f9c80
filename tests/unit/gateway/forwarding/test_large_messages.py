"""Large requests for several leaders: split in slices; encoded, decoded and merged in threads. Here all are large."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gateway.forwarding import large_messages
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import DescribeProducersRequest, DescribeProducersResponse
from tests.unit.gateway.forwarding.forwarding_scene import Asked, FakeLink, Scene

DESCRIBE_PRODUCERS, VERSION = 61, 0
WAIT_S = 10
_Topic = DescribeProducersResponse.TopicResponse


@pytest.fixture(autouse=True)
def in_threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the functions that ran in a thread."""
    names: list[str] = []
    to_thread = asyncio.to_thread

    async def run(work: Callable[..., Any], *arguments: Any) -> Any:
        names.append(work.__name__)
        return await to_thread(work, *arguments)

    monkeypatch.setattr(asyncio, "to_thread", run)
    monkeypatch.setattr(large_messages, "LARGE_ROWS", 0)
    monkeypatch.setattr(large_messages, "LARGE_ANSWER_BYTES", 0)
    return names


def describe(scene: Scene, *partitions: int) -> Asked:
    topic = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[*partitions])
    return scene.ask(DESCRIBE_PRODUCERS, VERSION, DescribeProducersRequest(topics=[topic]))


def described(*partitions: int) -> DescribeProducersResponse:
    rows = [_Topic.PartitionResponse(partition_index=each, active_producers=[]) for each in partitions]
    return DescribeProducersResponse(topics=[_Topic(name="t", partitions=rows)])


async def link_with_share(scene: Scene, node_id: int) -> FakeLink:
    async with asyncio.timeout(WAIT_S):
        while node_id not in scene.links or not scene.links[node_id].sent:
            await asyncio.sleep(0.001)
    return scene.links[node_id]


async def codes(asked: Asked) -> dict[int, int]:
    response = await asked.decoded()
    return {row.partition_index: row.error_code for topic in response.topics for row in topic.partitions}


async def test_shares_are_encoded_and_answers_are_merged_in_threads(in_threads: list[str]) -> None:
    scene = Scene()
    asked = describe(scene, 1, 2)
    assert asked.serial
    for number in (1, 2):
        (await link_with_share(scene, number)).answer(0, VERSION, described(number))
    assert await codes(asked) == {1: 0, 2: 0}
    assert sorted(in_threads) == ["_frame", "_frame", "decode_response", "decode_response", "merge"]


async def test_a_request_for_one_leader_goes_on_as_it_came(in_threads: list[str]) -> None:
    scene = Scene()
    asked = describe(scene, 1, 1)
    link = await link_with_share(scene, 1)
    assert link.sent[0][8:] == asked.frame[8:]
    link.answer(0, VERSION, described(1))
    assert await codes(asked) == {1: 0}
    assert in_threads == []


async def test_a_leader_that_is_lost_before_its_share_is_sent() -> None:
    scene = Scene()
    asked = describe(scene, 1, 2)
    async with asyncio.timeout(WAIT_S):
        while 1 not in scene.links:
            await asyncio.sleep(0)
    scene.links[1].lose()
    (await link_with_share(scene, 2)).answer(0, VERSION, described(2))
    assert await codes(asked) == {1: ErrorCode.NOT_LEADER_OR_FOLLOWER, 2: 0}


async def test_an_answer_that_cannot_be_read_is_none() -> None:
    scene = Scene()
    asked = describe(scene, 1, 2)
    (await link_with_share(scene, 1))._waiting.popitem()[1](bytearray(b"\0\0\0\1\0"))
    (await link_with_share(scene, 2)).answer(0, VERSION, described(2))
    assert await codes(asked) == {1: ErrorCode.NOT_LEADER_OR_FOLLOWER, 2: 0}


async def test_a_request_fails_with_a_defect_that_its_answer_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    asked = describe(scene, 1, 2)

    def fails(*_: object) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr(large_messages, "decode_response", fails)
    for number in (1, 2):
        (await link_with_share(scene, number)).answer(0, VERSION, described(number))
    with pytest.raises(RuntimeError):
        async with asyncio.timeout(WAIT_S):
            await asked.decoded()
