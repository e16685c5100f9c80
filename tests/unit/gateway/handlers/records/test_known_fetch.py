"""Both ways of a Fetch request give the same response, byte by byte, and leave the same state."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.handlers.records import known_fetch
from gateway.handlers.records.known_fetch import MAX_FRAME_BYTES
from gateway.topics.topic_names import MAX_NAME_LENGTH
from protocol.kafka.api_key import ApiKey
from protocol.kafka.codec import decode_response
from protocol.kafka.errors import ErrorCode
from protocol.kafka.fields import MAX_STRING_BYTES
from protocol.kafka.handwritten.fetch_rows import FIRST_TOPIC_ID_VERSION
from protocol.kafka.messages.records import FetchResponse
from tests.unit.gateway.handlers.both_ways import OTHER, TOPIC, Way
from tests.unit.gateway.handlers.records.fetches import (
    END,
    SOME_VERSIONS,
    VERSIONS,
    Fetches,
    batch,
    fetch,
    going_on,
    one,
    opened,
    opening,
    part,
    produce,
    topic_id,
)


@pytest.fixture
async def both(monkeypatch: pytest.MonkeyPatch, sections: dict[str, Any]) -> Fetches:
    return await opened(monkeypatch, sections)


async def test_a_first_fetch_is_not_remembered(both: Fetches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_fetch, "LEARNED_FROM", 2)
    await both.take(one(17, 0), one(17, 3), one(17, 6), taken=1)


@pytest.mark.parametrize("isolation", [0, 1])
async def test_any_version(both: Fetches, isolation: int) -> None:
    for version in VERSIONS:
        frames = [one(version, offset, isolation_level=isolation) for offset in (0, 1, 3, END - 3, END, 0)]
        await both.take(*frames, taken=len(frames) - 1 if version >= known_fetch.FIRST_VERSION else 0)


@pytest.mark.parametrize("version", SOME_VERSIONS)
async def test_a_broker_gets_no_records(both: Fetches, version: int) -> None:
    """No gateway holds a replica of another one's log."""
    who: dict[str, Any] = {"replica_id": 5} if version < 15 else {"replica_state": {"replica_id": 5}}
    frames = [one(version, offset, **who) for offset in (0, 3, END)]
    for frame in await both.take(*frames, taken=0):
        answer = decode_response(FetchResponse, version, memoryview(frame)[4:])
        codes = [row.error_code for topic in answer.responses for row in topic.partitions]
        assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.parametrize(
    "fields",
    [
        {"isolation_level": 2}, {"max_bytes": 0}, {"max_bytes": 1}, {"max_bytes": 500}, {"min_bytes": 0},
        {"min_bytes": 1 << 20}, {"max_wait_ms": 0}, {"max_wait_ms": -1}, {"rack_id": "r"}, {"session_epoch": 0},
        {"session_epoch": 5}, {"session_id": 9}, {"forgotten_topics_data": None},
    ],
    ids=str,
)  # fmt: skip
async def test_any_request(both: Fetches, fields: dict[str, Any]) -> None:
    for version in SOME_VERSIONS:
        if "forgotten_topics_data" in fields:
            name = {"topic": OTHER} if version < FIRST_TOPIC_ID_VERSION else {"topic_id": topic_id(OTHER)}
            fields = {"forgotten_topics_data": [{**name, "partitions": [0]}]}
        both.each(Way.reconnect)
        frames = [one(version, offset, **fields) for offset in (3, 0, END)]
        await both.ask(*frames, one(version, 0), one(version, 3), *frames)


@pytest.mark.parametrize(
    "row",
    [
        part(END + 1), part(-1), part(-2), part(0, index=2), part(0, index=-1), part(0, current_leader_epoch=0),
        part(0, current_leader_epoch=99), part(0, current_leader_epoch=-2), part(0, last_fetched_epoch=0),
        part(0, last_fetched_epoch=1), part(0, partition_max_bytes=0), part(0, partition_max_bytes=-1),
        part(3, partition_max_bytes=1), part(3, log_start_offset=5),
    ],
    ids=str,
)  # fmt: skip
async def test_any_row(both: Fetches, row: dict[str, int]) -> None:
    for version in (11, 12, 17):
        both.each(Way.reconnect)
        odd, other = fetch(version, {TOPIC: [row]}), fetch(version, {TOPIC: [part(0, index=1), row]})
        await both.ask(one(version, 0), odd, one(version, 3), other, odd)


async def test_several_partitions(both: Fetches) -> None:
    rows = [part(3), part(END, index=1)]
    for version in SOME_VERSIONS:
        frames = [
            fetch(version, {TOPIC: rows, OTHER: rows}), fetch(version, {OTHER: [part(0)], TOPIC: [part(6)]}),
            fetch(version, {TOPIC: [part(0), part(3), part(6, index=1)]}), fetch(version, {"unknown": [part(0)]}),
            fetch(version, {TOPIC: []}), fetch(version, {}), fetch(version, {TOPIC: [part(END), part(END, index=1)]}),
        ]  # fmt: skip
        await both.take(one(version, 0), *frames, taken=4)
        limited = [fetch(version, {TOPIC: rows, OTHER: rows}, max_bytes=size) for size in (1, 600, 900, 1_500)]
        await both.ask(*limited, *limited)


async def test_topics_that_are_named_oddly(both: Fetches) -> None:
    names = ("é" * 10, "x" * 127, "y" * 200, "", "__consumer_offsets")
    for version in (11, 12):
        await both.ask(one(version, 0), *(fetch(version, {name: [part(0)]}) for name in names), one(version, 3))


async def test_large_batches_are_not_copied_together(both: Fetches) -> None:
    await both.ask(*(produce(batch(40_000)) for _ in range(2)))
    for version in SOME_VERSIONS:
        frames = [one(version, END, max_bytes=size) for size in (1 << 20, 200_000)]
        await both.take(one(version, 0), one(version, END), fetch(version, {TOPIC: [part(END), part(0, 1)]}), taken=2)
        await both.ask(*frames, *frames)


async def test_frames_that_are_cut_off_or_too_long(both: Fetches) -> None:
    for version in (11, 17):
        whole = one(version, 0)
        for size in (*range(len(whole) - 50, len(whole), 3), len(whole) + 3):
            both.each(Way.reconnect)
            frame = (whole + bytes(3))[:size]
            await both.ask(whole, (size - 4).to_bytes(4, "big") + frame[4:])


async def test_many_partitions(both: Fetches) -> None:
    rows = [part(0, index=n) for n in range(500)]
    assert len(fetch(11, {TOPIC: rows})) < MAX_FRAME_BYTES
    await both.ask(one(11, 0), fetch(11, {TOPIC: rows}), fetch(11, {TOPIC: rows * 2}), one(11, 0))


@pytest.mark.parametrize("version", SOME_VERSIONS)
async def test_a_session(both: Fetches, version: int) -> None:
    one_changed, more = {TOPIC: [part(3)]}, {OTHER: [part(0, index=1)], TOPIC: [part(END), part(6, index=1)]}
    changes = [None, one_changed, None, more, one_changed, {TOPIC: [part(0)]}, {OTHER: [part(END, index=1)]}, None]
    frames = [going_on(version, epoch, change) for epoch, change in enumerate(changes, 1)]
    await both.take(opening(version), *frames, taken=len(frames) - 1)
    nothing_new = {TOPIC: [part(END), part(END, index=1)]}
    await both.take(going_on(version, 9, nothing_new), going_on(version, 10), taken=2)


@pytest.mark.parametrize("version", [11, 17])
async def test_a_session_of_which_partitions_are_removed_and_added(both: Fetches, version: int) -> None:
    name = {"topic": OTHER} if version < FIRST_TOPIC_ID_VERSION else {"topic_id": topic_id(OTHER)}
    await both.take(
        opening(version, rows=1), going_on(version, 1), going_on(version, 2, {TOPIC: [part(0)]}),
        going_on(version, 3, forgotten_topics_data=[{**name, "partitions": [0]}]), going_on(version, 4),
        going_on(version, 5, {TOPIC: [part(3), part(0, index=1)]}), going_on(version, 6),
        going_on(version, 7, {TOPIC: [part(END), part(END, index=1)]}), going_on(version, 8, {"unknown": [part(0)]}),
        going_on(version, 9), taken=4,
    )  # fmt: skip


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize("length", [MAX_NAME_LENGTH + 1, MAX_STRING_BYTES])
async def test_a_session_answers_each_time_what_is_no_topic(both: Fetches, version: int, length: int) -> None:
    name = "x" * length
    frames = [opening(version), going_on(version, 1, {name: [part(0)]}), going_on(version, 2), going_on(version, 3)]
    _, *answers = await both.take(*frames, taken=0)
    row = (0).to_bytes(4, "big") + ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.to_bytes(2, "big")
    for answer in answers:
        _, _, after = answer.partition(name.encode())
        assert after[1 if version == 12 else 4 :].startswith(row)


@pytest.mark.parametrize("version", [11, 12])
async def test_only_topics_are_remembered(both: Fetches, version: int) -> None:
    """A client can name any number of others, and a name may be as long as the longest request that is looked at."""
    await both.ask(one(version, 0), one(version, 3))
    handler: Any = both.straight.client.connection._pipeline._handler
    while not hasattr(handler, "_known"):
        handler = handler._handler
    led_here = getattr(handler._known, "_led_here", handler._known)
    known = led_here._known[ApiKey.Fetch]._known
    frames = [fetch(version, {f"{n}".ljust(length, "x"): [part(0)]}) for n, length in enumerate((9, 200, 16_000))]
    assert max(map(len, frames)) < MAX_FRAME_BYTES
    await both.take(*frames, one(version, 6), taken=1)
    assert {*known._topics.values()} == {TOPIC}
    assert [fetched.topic for fetched in known._known.values()] == [TOPIC]


@pytest.mark.parametrize("version", [11, 17])
async def test_sessions_that_are_not_the_clients_or_are_over(both: Fetches, version: int) -> None:
    await both.ask(opening(version), going_on(version, 1), going_on(version, 2))
    await both.ask(going_on(version, 2), going_on(version, 4), going_on(version, 3))
    await both.ask(going_on(version, 4, session_id=5_001), going_on(version, 4), going_on(version, 5))
    await both.ask(going_on(version, -1, {TOPIC: [part(0)]}), going_on(version, 6), opening(version))
    both.each(lambda way: way.scene.cluster.fetch_sessions._sessions.clear())
    await both.ask(going_on(version, 1), going_on(version, 2))


@pytest.mark.parametrize("version", [11, 17])
async def test_a_session_without_partitions(both: Fetches, version: int) -> None:
    await both.ask(opening(version, rows=0), going_on(version, 7), going_on(version, 7))
    await both.ask(going_on(version, 1), going_on(version, 1))


@pytest.mark.parametrize(("version", "other"), [(12, 13), (13, 12)])
async def test_a_session_that_changes_between_topic_ids_and_names(both: Fetches, version: int, other: int) -> None:
    await both.ask(opening(version), going_on(version, 1), going_on(version, 2))
    await both.ask(going_on(other, 3), going_on(other, 3), going_on(other, 3, {TOPIC: [part(0)]}), going_on(other, 4))
    both.taken = 0
    await both.ask(going_on(version, 3), going_on(version, 4), going_on(version, 5))
    assert both.taken >= 2, "refused requests are remembered, too, except at a single address"


async def test_a_session_of_two_connections(both: Fetches) -> None:
    await both.ask(opening(17), going_on(17, 1), going_on(17, 2))
    both.each(Way.reconnect)
    await both.take(going_on(17, 3), going_on(17, 4, {TOPIC: [part(0)]}), going_on(17, 5), taken=2)


async def test_a_session_that_another_connection_continues(both: Fetches) -> None:
    """As in Kafka, the fetch that still waits fails: it would take the news from the later fetch."""

    async def run(way: Way) -> list[bytes]:
        found = await way.answers(opening(17, max_wait_ms=0), *(going_on(17, epoch) for epoch in (1, 2)))
        earlier, way.client, producer = way.client, way.scene.connect(), way.scene.connect()
        earlier.ask(going_on(17, 3, max_wait_ms=30_000))
        await way.scene.run()
        found += await way.answers(going_on(17, 4, {TOPIC: [part(0)]}))
        producer.ask(produce(batch(), OTHER))
        await way.scene.until_answered([producer, earlier])
        found.append(b"".join(map(bytes, earlier.received)))
        return [*found, *await way.answers(going_on(17, 5, {TOPIC: [part(END)]}))]

    *_, refused, after = await both.run(run)
    assert refused[13:15] == (71).to_bytes(2, "big"), "INVALID_FETCH_SESSION_EPOCH"
    assert batch()[21:] in after
    assert both.taken >= 2
