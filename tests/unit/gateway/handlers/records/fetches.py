"""A Fetch request both ways, on logs with records in memory."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import pytest

from gateway.config.gateway_config import Config
from gateway.handlers.records import known_fetch
from gateway.handlers.records.known_fetch import KnownFetches
from gateway.log.reading import receipt_lookup
from gateway.topics.topic import topic_id as stored_id
from protocol.kafka.handwritten.fetch_rows import FIRST_TOPIC_ID_VERSION
from protocol.kafka.records import Record, encode_batch
from tests.support.raw_client import encode_request
from tests.unit.gateway.handlers.both_ways import OTHER, TOPIC, BothWays, Way

VERSIONS = range(4, 19)
SOME_VERSIONS = (10, 11, 12, 13, 17)
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

    def __init__(self, monkeypatch: pytest.MonkeyPatch, sections: dict[str, Any]) -> None:
        self._ids: Iterator[int] = count(5_000)
        monkeypatch.setattr(known_fetch, "LEARNED_FROM", 1)
        monkeypatch.setattr(secrets, "randbits", lambda _bits: next(self._ids))
        super().__init__(monkeypatch, KnownFetches, sections)

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
    waiting = any(log.waiters for _, log in cluster.logs.all_open())
    counts = (metrics.cache_hits.value, metrics.cache_misses.value, metrics.in_flight.value, metrics.bytes_out.value)
    errors = [sample for family in metrics._errors.collect() for sample in family.samples if "total" in sample.name]
    return requests, sessions, waiting, counts, [(each.labels, each.value) for each in errors]


async def opened(monkeypatch: pytest.MonkeyPatch, sections: dict[str, Any], *, kept: bool = False) -> Fetches:
    """Their logs are open, and have records in memory. If these are `kept`, logs that are opened again have them."""
    monkeypatch.setattr(receipt_lookup, "LOOK_UP_AFTER_S", 0)  # the broker delivers no entries
    ways = Fetches(monkeypatch, sections)
    for way in (ways.general, ways.straight):
        for name in (TOPIC, OTHER):
            way.scene.add_topic(name, 2)
            if kept:
                way.broker.kept |= {way.scene.pulsar_name(name, index): [] for index in (0, 1)}
        way.reconnect()
    await ways.ask(*(produce(batch(), topic, n) for topic in (TOPIC, OTHER) for n in (0, 1) for _ in range(BATCHES)))
    ways.taken = 0
    return ways


def opening(version: int, rows: int = 2, **fields: Any) -> bytes:
    topics = {topic: [part(END, index=n) for n in range(rows)] for topic in (TOPIC, OTHER)}
    return fetch(version, topics, session_epoch=0, **fields)


def going_on(version: int, epoch: int, topics: dict[str, Any] | None = None, **fields: Any) -> bytes:
    return fetch(version, topics or {}, **{"session_id": 5_000, "session_epoch": epoch, **fields})


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
