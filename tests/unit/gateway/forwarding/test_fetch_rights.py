"""Rights of clients whose fetches are relayed, or asked of several leaders."""

from __future__ import annotations

import asyncio

import pytest

from protocol.kafka.errors import ErrorCode
from tests.unit.gateway.forwarding import test_fetch_relay
from tests.unit.gateway.forwarding.forwarding_scene import Asked, FakeRights, Scene
from tests.unit.gateway.forwarding.test_fetch_relay import (
    LAST,
    SESSION,
    TOPIC_ID,
    VERSION,
    error,
    fetch,
    fetched,
    in_session,
)

size = test_fetch_relay.size
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def codes(asked: Asked) -> dict[int, int]:
    """Error codes by partition; no partition has records."""
    response = await asked.decoded()
    rows = [row for topic in response.responses for row in topic.partitions]
    assert not any(row.records and row.records.size_bytes for row in rows)
    return {row.partition_index: row.error_code for row in rows}


@pytest.mark.parametrize("version", [4, 11, VERSION, LAST])
async def test_a_fetch_of_permitted_partitions_is_relayed_unchanged(version: int) -> None:
    scene = Scene(FakeRights())
    scene.names[TOPIC_ID] = "t"
    asked = await fetch(scene, [1], version=version)
    [sent] = scene.links[1].sent
    assert (sent[:4], sent[8:]) == (asked.frame[:4], asked.frame[8:])
    answered = scene.links[1].answer(0, version, fetched(1))
    assert (await asked.answer())[4:] == answered


@pytest.mark.parametrize("version", [4, 11, VERSION, LAST])
async def test_what_the_client_may_not_read_is_not_requested(version: int) -> None:
    rights = FakeRights()
    scene = Scene(rights)
    scene.names[TOPIC_ID] = "t"
    rights.deny("t")
    assert await codes(await fetch(scene, [1], version=version)) == {1: DENIED}
    assert scene.links == {}


@pytest.mark.parametrize("version", [4, 11, VERSION, LAST])
async def test_a_right_is_lost_while_a_fetch_waits_at_the_leader(version: int) -> None:
    rights = FakeRights()
    scene = Scene(rights)
    scene.names[TOPIC_ID] = "t"
    waiting = await fetch(scene, [1], version=version)
    rights.deny("t")
    scene.links[1].answer(0, version, fetched(1))
    assert await codes(waiting) == {}
    assert (await waiting.decoded()).error_code == (0 if version < 7 else ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert await codes(await fetch(scene, [1], version=version)) == {1: DENIED}


@pytest.mark.parametrize("version", [VERSION, LAST])
@pytest.mark.parametrize("waits", [True, False])
async def test_a_right_is_lost_within_a_session(version: int, waits: bool) -> None:
    rights = FakeRights()
    scene = Scene(rights)
    scene.names[TOPIC_ID] = "t"
    await in_session(scene, version=version)
    if waits:
        asked = await fetch(scene, [], session=SESSION, epoch=1, version=version)
        rights.deny("t")
        scene.links[1].answer(1, version, fetched(1))
    else:
        rights.deny("t")
        asked = await fetch(scene, [], session=SESSION, epoch=1, version=version)
    assert await error(asked) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert await codes(asked) == {}
    assert await codes(await fetch(scene, [1], epoch=0, version=version)) == {1: DENIED}
    assert len(scene.links[1].sent) == 1 + waits


async def test_a_right_is_lost_while_several_leaders_are_asked() -> None:
    rights = FakeRights()
    scene = Scene(rights)
    asked = await fetch(scene, [1, 2])
    while scene.links.keys() != {1, 2}:
        await asyncio.sleep(0)
    rights.deny("t")
    for number in (1, 2):
        scene.links[number].answer(0, VERSION, fetched(number))
    assert await codes(asked) == {1: DENIED, 2: DENIED}
