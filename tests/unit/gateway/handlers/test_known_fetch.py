"""Both ways of a Fetch request give the same response, byte by byte, and leave the same state."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any
from unittest.mock import Mock

import pytest

from gateway.config import FORWARDING_LISTENER, Config
from gateway.dispatch import Dispatcher
from gateway.handlers.records import known_fetch
from gateway.handlers.records.known_fetch import MAX_FRAME_BYTES, KnownFetches
from gateway.log.reading import receipt_lookup
from gateway.network.connection import KafkaConnection
from gateway.requests.context import Listener
from gateway.requests.policy import AllAllowed
from gateway.topics.topic import topic_id as stored_id
from protocol.kafka.acl import AclOperation, ResourceType
from protocol.kafka.handwritten.fetch_rows import FIRST_TOPIC_ID_VERSION, FIRST_VERSION
from protocol.kafka.records import Record, encode_batch
from tests.bench.inside.scene import FakeClient
from tests.support.raw_client import encode_request
from tests.unit.gateway.handlers.both_ways import OTHER, TOPIC, BothWays, Way

VERSIONS = range(4, 19)
SOME_VERSIONS = (9, 11, 12, 13, 17)
SESSION_AT = 4 + 4 + 1 + 4 + 2
"""The position of the session id in responses of flexible versions, which includes their length."""
BATCHES = 4
"""The number of batches in each log; each has three records."""
END = 3 * BATCHES
WAIT_MS = 20


def batch(size_bytes: int = 70, **fields: Any) -> bytes:
    return bytes(encode_batch([Record(n, 1_000 + n, b"k", b"v" * size_bytes) for n in range(3)], **fields))


def framed(api: str, version: int, fields: dict[str, Any]) -> bytes:
    payload: bytes = encode_request(api, version, fields, correlation_id=77, client_id="c")
    return len(payload).to_bytes(4, "big") + payload


def produce(records: bytes, topic: str = TOPIC, index: int = 0) -> bytes:
    rows = [{"name": topic, "partition_data": [{"index": index, "records": records}]}]
    return framed("Produce", 7, {"transactional_id": None, "acks": -1, "timeout_ms": 30_000, "topic_data": rows})


def part(offset: int, index: int = 0, **fields: int) -> dict[str, int]:
    row = {"partition": index, "current_leader_epoch": -1, "fetch_offset": offset, "last_fetched_epoch": -1}
    return {**row, "log_start_offset": -1, "partition_max_bytes": 1 << 20, **fields}


def topic_id(name: str) -> uuid.UUID:
    return stored_id(None, f"persistent://{Config().pulsar.full_namespace}/{name}")


def fetch(version: int, topics: Mapping[str, Sequence[dict[str, int]]], **fields: Any) -> bytes:
    rows = [
        {**({"topic": name} if version < FIRST_TOPIC_ID_VERSION else {"topic_id": topic_id(name)}), "partitions": parts}
        for name, parts in topics.items()
    ]
    request = {
        "replica_id": -1, "max_wait_ms": WAIT_MS, "min_bytes": 1, "max_bytes": 50 << 20, "isolation_level": 0,
        "session_id": 0, "session_epoch": -1, "topics": rows, "forgotten_topics_data": [], "rack_id": "", **fields,
    }  # fmt: skip
    return framed("Fetch", version, request)


def one(version: int, offset: int, **fields: Any) -> bytes:
    """A fetch of one partition without a session."""
    return fetch(version, {TOPIC: [part(offset)]}, **fields)


class Fetches(BothWays):
    """Compares the state of both gateways, too."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ids: Iterator[int] = count(5_000)
        monkeypatch.setattr(known_fetch, "LEARNED_FROM", 1)
        monkeypatch.setattr(secrets, "randbits", lambda _bits: next(self._ids))
        super().__init__(monkeypatch, KnownFetches)

    async def run(self, run: Callable[[Way], Any]) -> list[bytes]:
        async def compared(way: Way) -> list[bytes]:
            self._ids = count(5_000)
            found: list[bytes] = await run(way)
            return [*found, repr(state(way)).encode()]

        return (await super().run(compared))[:-1]

    async def take(self, *frames: bytes, taken: int) -> list[bytes]:
        """The responses; `taken` of the requests took the fast path."""
        self.taken = 0
        found = await self.ask(*frames)
        assert self.taken == taken
        return found


def state(way: Way) -> object:
    cluster, metrics = way.scene.cluster, way.scene.cluster.metrics
    requests = {key: sum(each._buckets) for key, each in metrics._by_api.items()}
    sessions = [
        (session.session_id, session.epoch, [
            (part.key, part.offset, part.max_bytes, part.leader_epoch, part.fetched_epoch, part.answered_watermark,
             part.answered_start) for part in session.partitions.values()])
        for session in cluster.fetch_sessions._sessions.values()
    ]  # fmt: skip
    waiting = [bool(log.waiters) for _, log in cluster.logs.all_open()]
    counts = (metrics.cache_hits.value, metrics.cache_misses.value, metrics.in_flight.value, metrics.bytes_out.value)
    errors = [sample for family in metrics._errors.collect() for sample in family.samples if "total" in sample.name]
    return requests, sessions, waiting, counts, [(each.labels, each.value) for each in errors]


@pytest.fixture
async def both(monkeypatch: pytest.MonkeyPatch) -> Fetches:
    """Their logs are open, and have records in memory."""
    monkeypatch.setattr(receipt_lookup, "LOOK_UP_AFTER_S", 0)  # the broker delivers no entries
    ways = Fetches(monkeypatch)
    for way in (ways.general, ways.straight):
        for name in (TOPIC, OTHER):
            way.scene.add_topic(name, 2)
        way.reconnect()
    await ways.ask(*(produce(batch(), topic, n) for topic in (TOPIC, OTHER) for n in (0, 1) for _ in range(BATCHES)))
    ways.taken = 0
    return ways


async def test_a_first_fetch_is_not_remembered(both: Fetches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_fetch, "LEARNED_FROM", 2)
    await both.take(one(17, 0), one(17, 3), one(17, 6), taken=1)


@pytest.mark.parametrize("isolation", [0, 1])
async def test_any_version(both: Fetches, isolation: int) -> None:
    for version in VERSIONS:
        frames = [one(version, offset, isolation_level=isolation) for offset in (0, 1, 3, END - 3, END, 0)]
        await both.take(*frames, taken=len(frames) - 1 if version >= FIRST_VERSION else 0)


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


# Sessions


def opening(version: int, rows: int = 2, **fields: Any) -> bytes:
    topics = {topic: [part(END, index=n) for n in range(rows)] for topic in (TOPIC, OTHER)}
    return fetch(version, topics, session_epoch=0, **fields)


def going_on(version: int, epoch: int, topics: dict[str, Any] | None = None, **fields: Any) -> bytes:
    return fetch(version, topics or {}, **{"session_id": 5_000, "session_epoch": epoch, **fields})


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
    await both.take(going_on(version, 3), going_on(version, 4), going_on(version, 5), taken=2)


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


# Waiting


async def waits(
    both: Fetches, version: int, event: Callable[[Way], Any], *, taken: int = 1, offset: int = END, **fields: Any
) -> bytes:
    """The response to a fetch that waits until the event."""

    async def run(way: Way) -> list[bytes]:
        found = await way.answers(one(version, 0, max_wait_ms=30_000, **fields))
        producer, consumer = way.scene.connect(), way.client
        consumer.ask(one(version, offset, max_wait_ms=30_000, **fields))
        await way.scene.run()
        assert not consumer.received
        outcome = event(way)
        if isinstance(outcome, bytes):
            producer.ask(outcome)
            await way.scene.until_answered([producer])
            producer.received.clear()
        await way.scene.until_answered([consumer])
        found.append(b"".join(map(bytes, consumer.received)))
        consumer.received.clear()
        return [*found, *([b"closed"] if consumer.closed else [])]

    both.taken = 0
    *_, answer = await both.run(run)
    assert both.taken == taken
    return answer


@pytest.mark.parametrize("version", SOME_VERSIONS)
async def test_a_fetch_waits_for_records(both: Fetches, version: int) -> None:
    data = batch()
    assert data[21:] in await waits(both, version, lambda _way: produce(data))


async def test_a_fetch_waits_until_its_time_is_over(both: Fetches) -> None:
    await both.take(*(one(17, END) for _ in range(3)), one(17, 0, min_bytes=1 << 20), taken=2)
    await both.take(opening(17, max_wait_ms=0), *(going_on(17, epoch) for epoch in (1, 2, 3)), taken=2)


async def test_a_fetch_waits_for_enough_records(both: Fetches) -> None:
    data = batch(300)
    found = await waits(both, 12, lambda _way: produce(data), offset=END - 3, min_bytes=1_000)
    assert data[21:] in found
    assert len(found) > 2 * len(batch())


async def test_a_fetch_waits_for_no_more_than_its_answer_may_have(both: Fetches) -> None:
    """As in Kafka: otherwise it would wait for max_wait although all that it may get is there."""

    async def run(way: Way) -> list[bytes]:
        found = []
        for _ in range(2):
            way.client.ask(one(17, 0, min_bytes=1 << 20, max_bytes=len(batch()), max_wait_ms=30_000))
            await way.scene.run()
            found.append(b"".join(map(bytes, way.client.received)))
            way.client.received.clear()
        return found

    assert all(await both.run(run))
    assert both.taken == 1


async def test_a_session_waits(both: Fetches) -> None:
    """For both batches: which one comes first, or whether they come together, depends on this machine."""
    until_both: dict[str, Any] = {"max_wait_ms": 60_000, "min_bytes": 2 * len(batch())}

    async def run(way: Way) -> list[bytes]:
        opened = opening(17, max_wait_ms=0)
        found = await way.answers(opened, *(going_on(17, epoch, {TOPIC: [part(0)]}, **until_both) for epoch in (1, 2)))
        way.client.ask(going_on(17, 3, {TOPIC: [part(END)]}, **until_both))
        await way.scene.run()
        producer = way.scene.connect()
        for topic, index in ((OTHER, 1), (TOPIC, 0)):
            producer.ask(produce(batch(), topic, index))
        await way.scene.until_answered([producer, way.client])
        found.append(b"".join(map(bytes, way.client.received)))
        way.client.received.clear()
        more = {OTHER: [part(END + 3, 1)], TOPIC: [part(0)]}
        return [*found, *await way.answers(going_on(17, 4, more, **until_both), going_on(17, 5, **until_both))]

    await both.run(run)
    assert both.taken >= 4


@pytest.mark.parametrize("version", [11, 17])
async def test_a_log_that_is_closed_meanwhile(both: Fetches, version: int) -> None:
    await waits(both, version, lambda way: way.log().start_closing())


async def test_a_topic_that_is_deleted_meanwhile(both: Fetches) -> None:
    def delete(way: Way) -> None:
        way.scene.cluster.topics._gone(TOPIC)

    assert b"\0\6" in await waits(both, 17, delete)


def move(way: Way) -> None:
    """Another gateway leads all partitions."""
    way.scene.fleet.leads = lambda *_: False  # type: ignore[method-assign]
    for listener in way.scene.fleet._listeners:
        listener.leaders_changed()


async def test_a_partition_that_moves(both: Fetches) -> None:
    assert b"\0\6" in await waits(both, 17, move)
    await both.take(one(17, 0), one(17, END), taken=0)


async def test_a_partition_that_moves_between_fetches(both: Fetches) -> None:
    await both.take(opening(17), going_on(17, 1), going_on(17, 2), taken=1)
    both.each(move)
    await both.take(going_on(17, 3), going_on(17, 4), taken=0)


async def test_a_topic_that_is_looked_up_again(both: Fetches) -> None:
    def look_up(way: Way) -> bytes:
        way.configure()
        return produce(batch())

    await waits(both, 17, look_up)
    both.each(Way.configure)
    await both.take(one(17, 0), one(17, 3), taken=1)
    both.each(lambda way: way.configure(retention_ms="1"))
    await both.take(one(17, 0), one(17, 3), taken=1)


async def test_a_log_start_that_moves(both: Fetches) -> None:
    def delete_records(way: Way) -> None:
        way.log().start.offset = END
        way.log().waiters.wake()

    await waits(both, 12, delete_records, offset=END - 3, min_bytes=1_000)
    await both.ask(one(12, 0), one(12, END), one(12, END))


class Some(AllAllowed):
    """Allows the topics that are listed at that moment."""

    def __init__(self) -> None:
        self.topics = {TOPIC, OTHER}

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        return name in self.topics


async def test_rights_count_at_once(both: Fetches, monkeypatch: pytest.MonkeyPatch) -> None:
    some = Some()
    monkeypatch.setattr(Dispatcher, "_policy", lambda *_: some)
    both.each(Way.reconnect)
    frames = [one(17, 0), fetch(17, {TOPIC: [part(0)], OTHER: [part(0)]}), one(17, 3)]
    await both.take(*frames, taken=2)
    some.topics.discard(OTHER)
    await both.take(*frames, taken=2)
    some.topics.clear()
    await both.take(*frames, taken=0)


async def test_rights_that_are_withdrawn_meanwhile(both: Fetches, monkeypatch: pytest.MonkeyPatch) -> None:
    some = Some()
    monkeypatch.setattr(Dispatcher, "_policy", lambda *_: some)
    both.each(Way.reconnect)

    def withdraw(_way: Way) -> bytes:
        some.topics.clear()
        return produce(batch(), OTHER)

    async def run(way: Way) -> list[bytes]:
        some.topics.update((TOPIC, OTHER))
        producer = way.scene.connect()
        found = await way.answers(one(17, 0))
        way.client.ask(one(17, END, max_wait_ms=30_000))
        producer.ask(produce(batch()))
        await way.scene.run(1)
        some.topics.clear()
        await way.scene.until_answered([way.client, producer])
        found.append(b"".join(map(bytes, way.client.received)))
        way.client.received.clear()
        return found

    found = await both.run(run)
    assert (29).to_bytes(2, "big") in found[-1]


async def test_while_clients_do_not_read_their_answers(both: Fetches) -> None:
    await both.take(one(17, 0), one(17, 3), taken=1)
    both.each(lambda way: setattr(way.scene.cluster.unread, "size_bytes", 1 << 40))
    await both.take(one(17, 0), one(17, 3), taken=0)


async def test_a_client_that_disconnects_leaves_nothing(both: Fetches) -> None:
    async def run(way: Way) -> list[bytes]:
        found = await way.answers(one(17, 0))
        way.client.ask(one(17, END, max_wait_ms=30_000))
        await way.scene.run()
        assert way.log().waiters
        way.client.close()
        await way.scene.run()
        assert not way.log().waiters
        return found

    await both.run(run)
    both.each(Way.reconnect)
    await both.ask(one(17, 0))


async def test_later_requests_wait_for_the_answer(both: Fetches) -> None:
    async def run(way: Way) -> list[bytes]:
        found = await way.answers(one(17, 0))
        way.client.ask(one(17, END) + produce(batch()) + one(17, END) + one(17, 0))
        return [*found, *await way.answers()]

    await both.run(run)
    assert both.taken == 3


async def test_two_fetches_of_a_forwarding_gateway(both: Fetches) -> None:
    """Its connection sends responses in the order in which they are ready."""

    async def run(way: Way) -> list[bytes]:
        producer = way.scene.connect()
        link = KafkaConnection(way.scene.server, Listener(FORWARDING_LISTENER), answers_in_order=False)
        way.client = FakeClient(link)
        wait: dict[str, Any] = {"max_wait_ms": 30_000}
        found = await way.answers(one(12, 0, **wait))
        first, second = one(12, END, **wait), fetch(12, {TOPIC: [part(END + 3, index=1)]}, max_wait_ms=60_000)
        way.client.ask(first + second + one(12, END + 3, **wait) + one(12, 3, **wait))
        await way.scene.run()
        producer.ask(produce(batch()))
        await way.scene.until_answered([producer, way.client])
        return [*found, *sorted(map(bytes, way.client.received))]

    await both.run(run)
    assert both.taken == 1


async def test_a_fetch_of_a_forwarding_gateway_keeps_its_offsets(both: Fetches) -> None:
    """It has left the fast path, and waits still, when the next fetch asks for other offsets."""

    async def run(way: Way) -> list[bytes]:
        producer = way.scene.connect()
        link = KafkaConnection(way.scene.server, Listener(FORWARDING_LISTENER), answers_in_order=False)
        way.client = FakeClient(link)
        found = await way.answers(one(12, 0, max_wait_ms=30_000))
        way.client.ask(one(12, END, max_wait_ms=30_000))
        way.configure(retention_ms="1")
        way.log().waiters.wake()
        await way.scene.run()
        way.client.ask(one(12, 0, max_wait_ms=30_000))
        await way.scene.run()
        producer.ask(produce(batch()))
        await way.scene.until_answered([producer, way.client])
        return [*found, *sorted(map(bytes, way.client.received))]

    await both.run(run)
    assert both.taken == 2


async def test_a_defect_ends_the_connection(both: Fetches, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(way: Way) -> bytes:
        way.log().reader.read = Mock(side_effect=AssertionError)  # type: ignore[method-assign]
        return produce(batch())

    assert await waits(both, 17, fail) == b"closed"
