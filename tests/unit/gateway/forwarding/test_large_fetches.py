"""Fetches of very many partitions at a single address: others have their turn. Here each partition is a slice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gateway import fan_out
from gateway.forwarding import asked_fetches, fetch_relay, forwarded_fetch, large_messages
from gateway.handlers.records import fetch as fetch_handler
from protocol.kafka.buffers import RecordChunks
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import FetchRequest, FetchResponse
from tests.unit.gateway.forwarding.forwarding_scene import WAIT_S, Asked, FakeRights, Scene
from tests.unit.gateway.requests.test_routes import OTHERS

FETCH, VERSION, PARTITIONS = 1, 12, 40
SESSION = 4_321
_Topic = FetchRequest.FetchTopic
_Row = FetchResponse.FetchableTopicResponse.PartitionData


@pytest.fixture(autouse=True)
def slices_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (fetch_handler, asked_fetches, forwarded_fetch, fetch_relay):
        monkeypatch.setattr(module, "RESOLVED_AT_ONCE", 10)
    monkeypatch.setattr(fetch_relay, "MANY_BYTES", 40)
    monkeypatch.setattr(fan_out, "SLICE_S", 0.0)
    monkeypatch.setattr(fan_out, "STEP_ITEMS", 1)


def scene_of(*leaders: int, rights: FakeRights | None = None) -> Scene:
    """PARTITIONS partitions, of these gateways in turn."""
    scene = Scene(rights)
    scene.fleet.leaders = {number: OTHERS[leaders[number % len(leaders)] - 1] for number in range(PARTITIONS)}
    return scene


def fetch(scene: Scene, *, session: int = 0, epoch: int = -1, topics: int = 1, named: bool = True) -> Asked:
    each = PARTITIONS // topics
    rows = [
        _Topic(topic=f"t{topic}", partitions=[
            _Topic.FetchPartition(
                partition=topic * each + number, current_leader_epoch=-1, fetch_offset=5, last_fetched_epoch=-1,
                log_start_offset=-1, partition_max_bytes=1_000,
            )
            for number in range(each)
        ])
        for topic in range(topics)
    ]  # fmt: skip
    request = FetchRequest(
        replica_id=-1, max_wait_ms=60_000, min_bytes=1, max_bytes=3_000, isolation_level=0, rack_id="",
        session_id=session, session_epoch=epoch, topics=rows if named else [], forgotten_topics_data=[],
    )  # fmt: skip
    return scene.ask(FETCH, VERSION, request)


def fetched(scene: Scene, node_id: int, records: bytes = b"records", session: int = 0) -> Any:
    rows = [
        _Row(
            partition_index=number, error_code=0, high_watermark=9, last_stable_offset=9, log_start_offset=0,
            aborted_transactions=None, preferred_read_replica=-1, records=RecordChunks((records,), len(records)),
        )
        for number, leader in scene.fleet.leaders.items()
        if leader is OTHERS[node_id - 1]
    ]  # fmt: skip
    topic = FetchResponse.FetchableTopicResponse(topic="t0", partitions=rows)
    return FetchResponse(throttle_time_ms=0, error_code=0, session_id=session, responses=[topic])


def is_sent(scene: Scene, node_id: int, count: int = 1) -> bool:
    return node_id in scene.links and len(scene.links[node_id].sent) >= count


async def turns_until(reached: Callable[[], object]) -> int:
    turns = 0
    async with asyncio.timeout(WAIT_S):
        while not reached():
            turns += 1
            await asyncio.sleep(0)
    return turns


async def test_a_fetch_from_several_leaders() -> None:
    scene = scene_of(1, 2)
    asked = fetch(scene)
    turns = await turns_until(lambda: is_sent(scene, 1) and is_sent(scene, 2))
    assert turns > 6.5 * PARTITIONS, "names, one leader?, the session, leaders, what is outdated, what to ask, requests"
    task = asyncio.ensure_future(asked.response())
    scene.links[1].answer(0, VERSION, fetched(scene, 1))
    scene.links[2].answer(0, VERSION, fetched(scene, 2))
    turns = await turns_until(task.done)
    assert turns > 2.5 * PARTITIONS, "rows, the look at them, and the answer"
    answer = await asked.decoded()
    assert [len(topic.partitions) for topic in answer.responses] == [PARTITIONS]
    assert scene.unread.size_bytes == 0


async def test_the_rows_of_an_answer_are_taken_in_slices() -> None:
    scene = scene_of(1, 2)
    fetch(scene)
    await turns_until(lambda: is_sent(scene, 1) and is_sent(scene, 2))
    in_flight = scene.forwarder._fetches._asked.asked  # type: ignore[attr-defined]
    scene.links[1].answer(0, VERSION, fetched(scene, 1, records=b""))
    await turns_until(lambda: len(in_flight) < PARTITIONS)
    assert await turns_until(lambda: len(in_flight) <= PARTITIONS // 2) >= PARTITIONS // 2 - 1


async def test_a_fetch_from_one_leader() -> None:
    scene = scene_of(1)
    asked = fetch(scene, topics=4)
    turns = await turns_until(lambda: is_sent(scene, 1))
    assert turns > 2.5 * PARTITIONS, "their names, their topics, and their leaders"
    assert scene.links[1].sent[0][8:] == asked.frame[8:]


async def test_a_session_whose_fleet_changes() -> None:
    scene = scene_of(1)
    asked = fetch(scene, epoch=0)
    await turns_until(lambda: is_sent(scene, 1))
    scene.links[1].answer(0, VERSION, fetched(scene, 1, session=SESSION))
    await asked.answer()
    scene.fleet.epoch += 1
    fetch(scene, session=SESSION, epoch=1, named=False)
    assert await turns_until(lambda: is_sent(scene, 1, 2)) > PARTITIONS
    scene.fleet.epoch += 1
    scene.fleet.leaders[PARTITIONS - 1] = OTHERS[1]
    scene.forwarder._relayed_fetch.forget()  # type: ignore[attr-defined]
    refused = fetch(scene, session=SESSION, epoch=2, named=False)
    assert (await refused.decoded()).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_the_fleet_changes_between_two_slices() -> None:
    """The first partitions were looked up before: all of them are looked up again."""
    scene = scene_of(1)
    fetch(scene)
    await turns_until(lambda: len(scene.forwarder._leaders._known) > PARTITIONS // 2)  # type: ignore[attr-defined]
    assert not scene.links
    scene.fleet.leaders[0] = OTHERS[1]
    scene.fleet.epoch += 1
    await turns_until(lambda: is_sent(scene, 1) and is_sent(scene, 2))


async def test_the_fleet_changes_while_the_first_fetch_of_a_session_is_in_flight() -> None:
    scene = scene_of(1)
    asked = fetch(scene, epoch=0)
    await turns_until(lambda: is_sent(scene, 1))
    scene.fleet.leaders[0] = OTHERS[1]
    scene.fleet.epoch += 1
    scene.links[1].answer(0, VERSION, fetched(scene, 1, session=SESSION))
    await asked.answer()
    refused = fetch(scene, session=SESSION, epoch=1, named=False)
    assert (await refused.decoded()).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_rights_are_asked_again_in_slices() -> None:
    rights = FakeRights()
    scene = scene_of(1, rights=rights)
    asked = fetch(scene, topics=PARTITIONS)
    await turns_until(lambda: is_sent(scene, 1))
    task = asyncio.ensure_future(asked.response())
    rights.deny("t7")
    scene.links[1].answer(0, VERSION, fetched(scene, 1))
    await turns_until(task.done)
    assert (await asked.decoded()).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_client_that_disconnects_ends_the_work_and_frees_the_records() -> None:
    scene, tasks = scene_of(1, 2), asyncio.all_tasks()
    asked = fetch(scene)
    await turns_until(lambda: is_sent(scene, 1) and is_sent(scene, 2))
    task = asyncio.ensure_future(asked.response())
    scene.links[1].answer(0, VERSION, fetched(scene, 1))
    await turns_until(lambda: scene.unread.size_bytes)
    scene.forwarder.close()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await turns_until(lambda: asyncio.all_tasks() == tasks)
    assert scene.unread.size_bytes == 0


async def test_shares_are_encoded_and_their_answers_decoded_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    names, to_thread = list[str](), asyncio.to_thread

    async def run(work: Callable[..., Any], *arguments: Any) -> Any:
        names.append(work.__name__)
        return await to_thread(work, *arguments)

    monkeypatch.setattr(asyncio, "to_thread", run)
    monkeypatch.setattr(large_messages, "LARGE_ROWS", PARTITIONS // 2 - 1)
    monkeypatch.setattr(large_messages, "LARGE_ANSWER_BYTES", 0)
    scene = scene_of(1, 2)
    asked = fetch(scene)
    await turns_until(lambda: is_sent(scene, 1) and is_sent(scene, 2))
    scene.links[1].answer(0, VERSION, fetched(scene, 1))
    scene.links[2].answer(0, VERSION, fetched(scene, 2))
    assert (await asked.decoded()).error_code == 0
    assert sorted(names)[:3] == ["_frame", "_frame", "decode_response"]
    names.clear()
    monkeypatch.setattr(large_messages, "LARGE_ROWS", PARTITIONS)
    scene = scene_of(1, 2)
    asked = fetch(scene)
    await turns_until(lambda: is_sent(scene, 1) and is_sent(scene, 2))
    scene.links[1].answer(0, VERSION, fetched(scene, 1))
    scene.links[2].answer(0, VERSION, fetched(scene, 2))
    assert (await asked.decoded()).error_code == 0
    assert names == [], "records alone take no time"
