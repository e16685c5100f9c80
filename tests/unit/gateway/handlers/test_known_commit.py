"""Both ways of an OffsetCommit request give the same response, byte by byte, and store the same offsets."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

from gateway.coordination.partition.clock import WallClock
from gateway.dispatch import Dispatcher
from gateway.handlers.groups.known_commit import MAX_FRAME_BYTES, KnownCommits
from gateway.requests.policy import AllAllowed
from protocol.kafka.acl import AclOperation, ResourceType
from protocol.kafka.handwritten.offset_commit_request import FIRST_VERSION
from protocol.pulsar.pulsar_commands_pb2 import ServerError
from tests.support.raw_client import encode_request
from tests.unit.gateway.handlers.both_ways import OTHER, TOPIC, BothWays, Way

VERSIONS = range(10)
SOME_VERSIONS = (6, 7, 8, 9)
MISSING = "missing"


def commit(version: int, rows: Mapping[str, Mapping[int, int]], *, metadata: str | None = "", **fields: Any) -> bytes:
    """`rows` are offsets by topic and partition."""
    topics = [
        {"name": name, "partitions": [
            {"partition_index": index, "committed_offset": offset, "committed_leader_epoch": offset % 3 - 1,
             "committed_metadata": metadata, "commit_timestamp": -1} for index, offset in offsets.items()]}
        for name, offsets in rows.items()
    ]  # fmt: skip
    request = {
        "group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None,
        "retention_time_ms": -1, "topics": topics, **fields,
    }  # fmt: skip
    payload: bytes = encode_request("OffsetCommit", version, request, correlation_id=77, client_id="c")
    return len(payload).to_bytes(4, "big") + payload


def one(version: int, offset: int, **fields: Any) -> bytes:
    return commit(version, {TOPIC: {0: offset}}, **fields)


class Commits(BothWays):
    async def take(self, *frames: bytes, taken: int) -> list[bytes]:
        """The responses; `taken` of the requests took the fast path."""
        self.taken = 0
        found = await self.ask(*frames)
        assert self.taken == taken
        return found


@pytest.fixture
async def both(monkeypatch: pytest.MonkeyPatch, sections: dict[str, Any]) -> Commits:
    """They lead the groups, and know the topics."""
    monkeypatch.setattr(WallClock, "now_ms", lambda _: 1_700_000_000_000)
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)
    ways = Commits(monkeypatch, KnownCommits, sections)
    for way in (ways.general, ways.straight):
        for name in (TOPIC, OTHER):
            way.scene.add_topic(name, 2)
        await way.scene.lead_groups()
        way.reconnect()
    await ways.ask(commit(2, {TOPIC: {0: 1}, OTHER: {0: 1}}))
    ways.taken = 0
    return ways


async def test_any_version(both: Commits) -> None:
    for version in VERSIONS:
        both.each(Way.reconnect)
        frames = [one(version, offset) for offset in (1, 2, 300, 2**40, 0, -1, -2)]
        await both.take(*frames, taken=len(frames) - 2 if version >= FIRST_VERSION else 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"metadata": None}, {"metadata": "é" * 200}, {"metadata": "x" * 5_000}, {"group_id": ""},
        {"group_id": "é" * 70}, {"generation_id_or_member_epoch": 3}, {"member_id": "m"},
        {"member_id": "m", "generation_id_or_member_epoch": 0}, {"group_instance_id": "i"}, {"topics": []},
    ],
    ids=str,
)  # fmt: skip
async def test_any_request(both: Commits, fields: dict[str, Any]) -> None:
    for version in SOME_VERSIONS:
        both.each(Way.reconnect)
        await both.ask(*(one(version, offset, **fields) for offset in range(4)), one(version, 5), one(version, 6))


async def test_several_partitions(both: Commits) -> None:
    for version in SOME_VERSIONS:
        rows = [{TOPIC: {0: n, 1: n + 1}, OTHER: {1: 5}} for n in range(4)]
        both.each(Way.reconnect)
        await both.take(*(commit(version, each) for each in rows), taken=2)
        odd: list[dict[str, dict[int, int]]] = [
            {TOPIC: {0: 1, 2: 1}}, {TOPIC: {-1: 1}}, {MISSING: {0: 1}}, {TOPIC: {}}, {TOPIC: {}, OTHER: {0: 7}}
        ]  # fmt: skip
        for each in odd:
            await both.ask(*(commit(version, each) for _ in range(3)))


async def test_requests_in_turns(both: Commits) -> None:
    first, *firsts = (one(8, offset) for offset in range(4))
    second, *seconds = (commit(8, {OTHER: {0: offset, 1: offset}}) for offset in range(4))
    await both.take(first, *firsts[:2], second, firsts[2], *seconds, taken=4)


async def test_requests_that_are_cut_off_or_large(both: Commits) -> None:
    whole = one(8, 5)
    for size in (*range(len(whole) - 30, len(whole), 2), len(whole) + 2):
        both.each(Way.reconnect)
        frame = (whole + bytes(2))[:size]
        await both.ask(whole, whole, (size - 4).to_bytes(4, "big") + frame[4:])
    large = one(8, 1, metadata="x" * MAX_FRAME_BYTES)
    both.each(Way.reconnect)
    await both.take(large, large, large, taken=0)


async def test_several_in_flight(both: Commits) -> None:
    await both.ask(one(8, 1), one(8, 2))
    [answers] = await both.take(b"".join(one(8, offset) for offset in range(5)), taken=5)
    assert len(answers) == 5 * len((await both.ask(one(8, 9)))[0])


async def test_offsets_that_cannot_be_stored(both: Commits) -> None:
    await both.ask(one(8, 1), one(8, 2))
    both.each(lambda way: setattr(way.broker, "error", ServerError.PersistenceError))
    await both.take(one(8, 3), one(8, 4), taken=2)


async def test_a_coordinator_that_moves(both: Commits) -> None:
    await both.ask(one(8, 1), one(8, 2))
    for way in (both.general, both.straight):
        way.scene.cluster.groups.partitions[0]._resign()
    await both.take(one(8, 3), one(8, 4), taken=2)


async def test_topics_that_are_looked_up_again_or_deleted(both: Commits) -> None:
    await both.ask(one(8, 1), one(8, 2))
    both.each(Way.configure)
    await both.take(one(8, 3), taken=1)
    both.each(lambda way: way.scene.cluster.topics._forget(TOPIC))
    await both.take(one(8, 4), one(8, 5), taken=0)
    await both.take(one(8, 6), taken=1)


async def test_rights_count_at_once(both: Commits, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = {"g", TOPIC}

    class Some(AllAllowed):
        def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
            return name in allowed

    monkeypatch.setattr(Dispatcher, "_policy", lambda *_: Some())
    both.each(Way.reconnect)
    await both.take(one(8, 1), one(8, 2), one(8, 3), taken=1)
    for name in ("g", TOPIC):
        allowed.discard(name)
        await both.take(one(8, 4), taken=0)
        allowed.add(name)
    await both.take(one(8, 5), taken=1)
