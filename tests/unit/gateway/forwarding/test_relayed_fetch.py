"""A fetch that one other gateway answers, and a client that sends nothing more, or has gone."""

from __future__ import annotations

import asyncio

import pytest

from gateway.forwarding import relayed_fetch
from protocol.kafka.codec import decode_request, is_flexible, parse_header
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import FetchRequest, FetchResponse
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.forwarding.forwarding_scene import Asked, Scene

FETCH, VERSION, MAX_WAIT_MS = 1, 11, 600_000
_Topic = FetchRequest.FetchTopic


@pytest.fixture(autouse=True)
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relayed_fetch, "GRACE_S", 0)


def fetch(scene: Scene) -> Asked:
    row = _Topic.FetchPartition(partition=1, current_leader_epoch=-1, fetch_offset=5, partition_max_bytes=1_000)
    request = FetchRequest(
        replica_id=-1, max_wait_ms=MAX_WAIT_MS, min_bytes=1, max_bytes=3_000, isolation_level=0, rack_id="",
        session_id=0, session_epoch=-1, topics=[_Topic(topic="t", partitions=[row])], forgotten_topics_data=[],
    )  # fmt: skip
    return scene.ask(FETCH, VERSION, request)


def max_wait_ms(frame: bytes) -> int:
    view = memoryview(frame)
    body = parse_header(view, flexible=is_flexible(FetchRequest, VERSION)).body
    return decode_request(FetchRequest, VERSION, view, body).max_wait_ms


def nothing() -> FetchResponse:
    return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=[])


async def let_timers_run() -> None:
    await asyncio.sleep(0.001)
    await let_callbacks_run()


async def test_the_leader_is_left_while_the_fetch_waits() -> None:
    """It then ends the fetch, and all that it holds. The next request uses another link."""
    scene = Scene()
    asked = fetch(scene)
    await asked.reply.prepared()
    assert max_wait_ms(scene.links[1].sent[0]) == MAX_WAIT_MS
    await let_timers_run()
    assert not scene.links[1].lost
    scene.client.ends()
    await let_timers_run()
    assert scene.links[1].lost
    [topic] = (await asked.decoded()).responses
    assert [row.error_code for row in topic.partitions] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert not scene.client.waits


async def test_the_leader_answers_in_time() -> None:
    scene = Scene()
    asked = fetch(scene)
    await asked.reply.prepared()
    scene.client.ends()
    scene.links[1].answer(0, VERSION, nothing())
    await let_timers_run()
    assert not scene.links[1].lost and not scene.client.waits
    assert not (await asked.decoded()).error_code


async def test_the_leader_does_not_wait_for_records_when_the_client_has_ended_before() -> None:
    scene = Scene()
    scene.client.ends()
    asked = fetch(scene)
    await asked.reply.prepared()
    assert max_wait_ms(scene.links[1].sent[0]) == 0
    scene.links[1].answer(0, VERSION, nothing())
    await asked.decoded()


async def test_a_client_that_has_disconnected() -> None:
    scene = Scene()
    asked = fetch(scene)
    await asked.reply.prepared()
    scene.client.ends()
    scene.forwarder.close()
    await let_timers_run()
    assert not scene.client.waits
