"""Fetches that are relayed to one other gateway as bytes, and their sessions."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway import fan_out
from gateway.forwarding import fetch_relay
from gateway.forwarding.fetch_relay import FetchRelay
from gateway.handlers.records import fetch as fetch_handler
from protocol.kafka.buffers import RecordChunks
from protocol.kafka.codec import decode_request, parse_header
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import FetchRequest, FetchResponse
from tests.unit.gateway.forwarding.forwarding_scene import WAIT_S, Asked, Scene
from tests.unit.gateway.requests.test_routes import OTHERS

FETCH, VERSION, LAST = 1, 12, 17
SESSION = 4_321
TOPIC_ID = uuid.UUID(int=7)
_Topic = FetchRequest.FetchTopic
_Forgotten = FetchRequest.ForgottenTopic
_Row = FetchResponse.FetchableTopicResponse.PartitionData


@pytest.fixture(autouse=True, params=["small", "large"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same fetches as if they had very many partitions: then each partition is a slice."""
    if request.param == "large":
        monkeypatch.setattr(fetch_relay, "MANY_BYTES", 0)
        for module in (fetch_relay, fetch_handler):
            monkeypatch.setattr(module, "RESOLVED_AT_ONCE", 0)
        monkeypatch.setattr(fan_out, "SLICE_S", 0.0)
        monkeypatch.setattr(fan_out, "STEP_ITEMS", 1)
    return str(request.param)


async def fetch(
    scene: Scene, partitions: list[int], *, session: int = 0, epoch: int = -1, forgotten: tuple[int, ...] = (),
    version: int = VERSION,
) -> Asked:  # fmt: skip
    rows = [
        _Topic.FetchPartition(
            partition=each, current_leader_epoch=-1, fetch_offset=5, last_fetched_epoch=-1, log_start_offset=-1,
            partition_max_bytes=1_000,
        )
        for each in partitions
    ]  # fmt: skip
    request = FetchRequest(
        replica_id=-1, max_wait_ms=1_000, min_bytes=1, max_bytes=3_000, isolation_level=0, rack_id="",
        session_id=session, session_epoch=epoch, topics=[_Topic(topic="t", topic_id=TOPIC_ID, partitions=rows)],
        forgotten_topics_data=[_Forgotten(topic="t", topic_id=TOPIC_ID, partitions=[*forgotten])] if forgotten else [],
    )  # fmt: skip
    asked = scene.ask(FETCH, version, request)
    for _ in range(100):
        if asked.serial:  # until it is sent, or waits for the fetch before it
            await asyncio.sleep(0)
    return asked


async def sent(scene: Scene, node_id: int) -> None:
    """A gateway has been asked."""
    async with asyncio.timeout(WAIT_S):
        while node_id not in scene.links or not scene.links[node_id].sent:
            await asyncio.sleep(0.001)


def fetched(partition: int, session: int = SESSION) -> Any:
    row = _Row(
        partition_index=partition, error_code=0, high_watermark=9, last_stable_offset=9, log_start_offset=0,
        aborted_transactions=None, preferred_read_replica=-1, records=RecordChunks((b"records",), 7),
    )  # fmt: skip
    topic = FetchResponse.FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=[row])
    return FetchResponse(throttle_time_ms=0, error_code=0, session_id=session, responses=[topic])


async def in_session(scene: Scene, partition: int = 1, version: int = VERSION) -> None:
    """A session with the leader of the partition."""
    asked = await fetch(scene, [partition], epoch=0, version=version)
    scene.links[partition].answer(-1, version, fetched(partition))
    await asked.answer()


async def error(asked: Asked) -> int:
    return int((await asked.decoded()).error_code)


@pytest.mark.parametrize("version", range(4, LAST + 1))
async def test_a_fetch_from_one_leader_is_relayed_unchanged(version: int) -> None:
    scene = Scene()
    scene.names[TOPIC_ID] = "t"
    asked = await fetch(scene, [1], version=version)
    assert not asked.serial
    [sent] = scene.links[1].sent
    assert (sent[:4], sent[8:]) == (asked.frame[:4], asked.frame[8:])
    answered = scene.links[1].answer(0, version, fetched(1))
    assert (await asked.answer())[4:] == answered


@pytest.mark.parametrize("version", [7, VERSION, LAST])
async def test_a_session_is_its_leader_s(version: int) -> None:
    scene = Scene()
    scene.names[TOPIC_ID] = "t"
    await in_session(scene, version=version)
    for epoch in (1, 2):
        asked = await fetch(scene, [1], session=SESSION, epoch=epoch, version=version)
        sent = scene.links[1].sent[epoch]
        assert (sent[:4], sent[8:]) == (asked.frame[:4], asked.frame[8:])
        scene.links[1].answer(epoch, version, fetched(1))
        await asked.answer()


@pytest.mark.parametrize("partitions", [[1, 2], [0]], ids=["of several leaders", "of this gateway"])
async def test_nothing_is_kept_of_a_fetch_that_is_not_relayed(partitions: list[int]) -> None:
    """Its partitions may have any names, and the next fetch may never come."""
    scene = Scene()
    await fetch(scene, partitions, epoch=0)
    relay: FetchRelay = cast(Any, scene.forwarder)._fetch_relay
    assert not relay._asked and not relay._asked_topics


async def test_a_session_ends_if_others_need_the_room() -> None:
    """Also while its fetch is at the leader: without the names of its topics, nobody looks whether it may be read."""
    for is_in_flight in (False, True):
        scene = Scene()
        scene.relayed._most = 4
        await in_session(scene)
        asked = None
        if is_in_flight:
            asked = await fetch(scene, [1], session=SESSION, epoch=1)
        scene.relayed.keeps(lambda: None, 4)
        if asked is None:
            asked = await fetch(scene, [1], session=SESSION, epoch=1)
        else:
            scene.links[1].answer(1, VERSION, fetched(1))
        assert await error(asked) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        await in_session_anew(scene)


async def in_session_anew(scene: Scene) -> None:
    """The client begins another session."""
    count = len(scene.links[1].sent)
    asked = await fetch(scene, [1], epoch=0)
    scene.links[1].answer(count, VERSION, fetched(1, SESSION + 1))
    await asked.answer()
    asked = await fetch(scene, [1], session=SESSION + 1, epoch=1)
    scene.links[1].answer(count + 1, VERSION, fetched(1, SESSION + 1))
    assert await error(asked) == ErrorCode.NONE


async def test_nothing_of_a_session_is_kept_when_its_client_has_gone() -> None:
    scene = Scene()
    await in_session(scene)
    assert scene.relayed._count == 1
    await fetch(scene, [1], session=SESSION, epoch=1)
    scene.forwarder.close()
    await asyncio.sleep(0)
    assert scene.relayed._count == 0 and not scene.relayed._counts


async def late_answers(scene: Scene) -> None:
    """The second leader has answered a fetch too late: its records wait for the next one."""
    for position in (0, 1):  # the first answer to a full fetch has the ends of both
        asked = await fetch(scene, [1, 2])
        async with asyncio.timeout(WAIT_S):
            while not all(node in scene.links and len(scene.links[node].sent) > position for node in (1, 2)):
                await asyncio.sleep(0)
        scene.links[1].answer(position, VERSION, fetched(1))
        if position == 0:
            scene.links[2].answer(position, VERSION, fetched(2))
        await asked.answer()
    scene.links[2].answer(1, VERSION, fetched(2))
    async with asyncio.timeout(WAIT_S):
        while not scene.unread.size_bytes:
            await asyncio.sleep(0)


@pytest.mark.parametrize("partition", [1, 0], ids=["of another gateway", "of this gateway"])
async def test_late_answers_are_given_back_when_one_gateway_answers_all_fetches(partition: int) -> None:
    """Nobody fetches them any more, and the client may stay with that gateway for days."""
    scene = Scene()
    await late_answers(scene)
    scene.fleet.leaders = dict.fromkeys([1, 2], scene.fleet.leaders.get(partition))
    scene.fleet.epoch += 1
    await fetch(scene, [1, 2])
    assert scene.unread.size_bytes == 0


async def test_ends_are_asked_for_again_when_several_leaders_follow_one() -> None:
    """They do not go back to what was known when there were several before."""
    scene = Scene()
    await late_answers(scene)
    leaders, scene.fleet.leaders = scene.fleet.leaders, dict.fromkeys([1, 2], OTHERS[0])
    scene.fleet.epoch += 1
    await in_session(scene)
    scene.fleet.leaders = leaders
    scene.fleet.epoch += 1
    await fetch(scene, [1, 2])
    async with asyncio.timeout(WAIT_S):
        while len(scene.links[2].sent) < 3:
            await asyncio.sleep(0)
    frame = memoryview(scene.links[2].sent[-1])
    asked = decode_request(FetchRequest, VERSION, frame, parse_header(frame, flexible=True).body)
    assert asked.max_wait_ms == 0, "as long as its end is not known, a leader answers at once"


async def test_a_client_that_starts_over_leaves_no_session_at_its_leader() -> None:
    """Like a throttled client: it did not get the response that began the session."""
    scene = Scene()
    await in_session(scene)
    await fetch(scene, [1], epoch=0)
    frame = memoryview(scene.links[1].sent[1])
    request = decode_request(FetchRequest, VERSION, frame, parse_header(frame, flexible=True).body)
    assert (request.session_id, request.session_epoch) == (SESSION, 0)


async def test_another_leader_gets_no_session_that_it_does_not_know() -> None:
    scene = Scene()
    await in_session(scene)
    asked = await fetch(scene, [2], epoch=0)
    [sent] = scene.links[2].sent
    assert (sent[:4], sent[8:]) == (asked.frame[:4], asked.frame[8:])


async def test_a_session_ends_when_it_names_what_another_leads() -> None:
    scene = Scene()
    await in_session(scene)
    assert await error(await fetch(scene, [2], session=SESSION, epoch=1)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert await error(await fetch(scene, [1], session=SESSION, epoch=1)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    await in_session(scene)


async def test_a_session_ends_when_its_partitions_move() -> None:
    scene = Scene()
    await in_session(scene)
    scene.fleet.epoch += 1
    asked = await fetch(scene, [], session=SESSION, epoch=1)
    scene.links[1].answer(1, VERSION, fetched(1))
    assert await error(asked) == 0
    scene.fleet.epoch, scene.fleet.leaders = scene.fleet.epoch + 1, {1: OTHERS[1]}
    assert await error(await fetch(scene, [], session=SESSION, epoch=2)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_session_that_its_leader_has_ended_is_forgotten() -> None:
    """Otherwise the client could add partitions to it for ever, which stay in memory here."""
    scene = Scene()
    await in_session(scene)
    asked = await fetch(scene, [1], session=SESSION, epoch=1)
    scene.links[1].answer(1, VERSION, FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[]))
    assert await error(asked) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert await error(await fetch(scene, [1], session=SESSION, epoch=2)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(scene.links[1].sent) == 2


async def test_what_a_session_has_forgotten_may_move() -> None:
    scene = Scene()
    scene.fleet.leaders[3] = OTHERS[0]
    await in_session(scene)
    asked = await fetch(scene, [3], session=SESSION, epoch=1, forgotten=(1,))
    scene.links[1].answer(1, VERSION, fetched(3))
    await asked.answer()
    scene.fleet.epoch, scene.fleet.leaders = 2, {1: OTHERS[1], 3: OTHERS[0]}
    await fetch(scene, [], session=SESSION, epoch=2)
    assert len(scene.links[1].sent) == 3


async def test_a_session_is_lost_with_its_leader() -> None:
    scene = Scene()
    await in_session(scene)
    asked = await fetch(scene, [1], session=SESSION, epoch=1)
    scene.links[1].lose()
    assert await error(asked) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_topic_id_that_is_not_known_here_is_looked_up_first() -> None:
    scene, known = Scene(), asyncio.Event()

    async def get_by_id(_topic_id: uuid.UUID) -> Any:
        await known.wait()
        return SimpleNamespace(name="t")

    topics: Any = scene.cluster.topics
    topics.get_by_id = get_by_id
    asked = await fetch(scene, [1], version=LAST)
    assert asked.serial
    assert scene.links == {}
    known.set()
    await sent(scene, 1)


@pytest.mark.parametrize("unread", [0, 1 << 40])
async def test_what_several_lead_is_asked_of_each(unread: int) -> None:
    scene = Scene()
    scene.unread.size_bytes = unread
    asked = await fetch(scene, [1, 2])
    while scene.links.keys() != {1, 2}:
        await asyncio.sleep(0)
    for number in (1, 2):
        frame = memoryview(scene.links[number].sent[0])
        request = decode_request(FetchRequest, VERSION, frame, parse_header(frame, flexible=True).body)
        assert [row.partition for topic in request.topics for row in topic.partitions] == [number]
        assert request.max_bytes == (1 if unread else 1_500)
        scene.links[number].answer(0, VERSION, fetched(number))
    response = await asked.decoded()
    answered = [row for topic in response.responses for row in topic.partitions]
    rows = {row.partition_index: b"".join(row.records.chunks) for row in answered}
    assert rows == {1: b"records", 2: b"records"}


async def test_one_fetch_after_the_other() -> None:
    scene = Scene()
    first, second = await fetch(scene, [1]), await fetch(scene, [1])
    assert second.serial
    assert len(scene.links[1].sent) == 1
    scene.links[1].answer(0, VERSION, fetched(1))
    await first.answer()
    while second.serial:
        await asyncio.sleep(0)
    assert len(scene.links[1].sent) == 2


async def test_while_responses_are_unread_only_one_batch_is_requested() -> None:
    scene = Scene()
    scene.unread.size_bytes = 1 << 40
    asked = await fetch(scene, [1])
    [sent] = scene.links[1].sent
    assert len(sent) == len(asked.frame)
    assert (3_000).to_bytes(4, "big") in asked.frame
    assert (3_000).to_bytes(4, "big") not in sent
