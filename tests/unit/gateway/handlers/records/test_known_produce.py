"""Both ways of a Produce request answer alike, byte by byte, and write the same entries."""

from __future__ import annotations

import struct
import time
import uuid
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from crc32c import crc32c

from coordinator.fleet.leadership import PartitionRole
from gateway.dispatch import Dispatcher
from gateway.fleet.fleet import Fleet
from gateway.handlers.records.known_produce import FIRST_VERSION, MAX_LENGTHS, KnownProduces
from gateway.handlers.records.produce import TOPIC_ID_VERSION
from gateway.log.reading import receipt_lookup
from gateway.log.writing.checking import FIRST_ZSTD_VERSION
from gateway.requests.policy import AllAllowed
from protocol.kafka.acl import AclOperation, ResourceType
from protocol.kafka.batch import CRC_START
from protocol.kafka.message_set import LegacyMessage, encode_message_set
from protocol.kafka.records import Record, encode_batch
from protocol.pulsar.pulsar_commands_pb2 import ServerError
from tests.support.raw_client import encode_request
from tests.unit.gateway.handlers.both_ways import OTHER, TOPIC, BothWays, Way

VERSIONS = range(14)
PATIENT_MS = 30_000


def batch(count: int = 3, **fields: Any) -> bytes:
    return bytes(encode_batch([Record(n, 1_000 + n, b"k", b"v" * 70) for n in range(count)], **fields))


def idempotent(sequence: int, epoch: int = 0, **fields: Any) -> bytes:
    return batch(producer_id=7, producer_epoch=epoch, base_sequence=sequence, **fields)


def changed(data: bytes, position: int, value: bytes) -> bytes:
    """With another field, and the right checksum."""
    copy = bytearray(data)
    copy[position : position + len(value)] = value
    struct.pack_into(">I", copy, 17, crc32c(memoryview(copy)[CRC_START:]))
    return bytes(copy)


def request(
    version: int, records: bytes | None, *, topic: str = TOPIC, index: int = 0, acks: int = -1,
    timeout_ms: int = PATIENT_MS, transactional_id: str | None = None, client_id: str | None = "c",
    topic_id: uuid.UUID | None = None,
) -> bytes:  # fmt: skip
    named = {"name": topic} if version < 13 else {"topic_id": topic_id}
    fields = {
        "transactional_id": transactional_id, "acks": acks, "timeout_ms": timeout_ms,
        "topic_data": [{**named, "partition_data": [{"index": index, "records": records}]}],
    }  # fmt: skip
    payload: bytes = encode_request("Produce", version, fields, correlation_id=version, client_id=client_id)
    return len(payload).to_bytes(4, "big") + payload


@pytest.fixture
async def both(monkeypatch: pytest.MonkeyPatch, sections: dict[str, Any]) -> BothWays:
    """Their logs are open."""
    monkeypatch.setattr(receipt_lookup, "LOOK_UP_AFTER_S", 0)  # the broker delivers no entries
    ways = BothWays(monkeypatch, KnownProduces, sections)
    ways.each(Way.reconnect)  # a connection's handler has the method that stood there when it was made
    for name in (TOPIC, OTHER):  # an idempotent batch first: this broker could not read earlier ones of its producer
        await ways.ask(request(7, batch(producer_id=1, producer_epoch=0, base_sequence=0), topic=name))
    ways.taken = 0
    return ways


BATCHES = {
    "plain": batch(),
    "one record": batch(1),
    "many records": batch(300),
    "gzip": batch(compression=1),
    "zstd": batch(compression=4),
    "unknown codec": changed(batch(), 21, b"\0\5"),
    "log append time": batch(log_append_time=True),
    "control": idempotent(0, control=True),
    "transactional": idempotent(0, transactional=True),
    "no sequence": batch(producer_id=7, producer_epoch=0),
    "another base offset": batch(base_offset=5),
    "record count": changed(batch(), 57, b"\0\0\0\7"),
    "offset delta": changed(batch(), 23, b"\0\0\0\7"),
    "bad checksum": batch()[:-1] + b"!",
    "not records": changed(batch(), 61, bytes(9)),
    "bytes behind": batch() + b"12345",
    "two batches": batch() + batch(),
    "half a header": batch()[:40],
    "cut": batch()[:-1],
    "too long": batch(20_000),
    "empty": b"",
    "null": None,
    "message set": encode_message_set([LegacyMessage(1, 0, 0, 1_000, b"k", b"v")]),
}
KNOWN = {"plain", "one record", "many records", "gzip", "zstd"}


@pytest.mark.parametrize("name", BATCHES)
async def test_any_batch_of_any_version(both: BothWays, name: str) -> None:
    for version in VERSIONS:
        named: Any = {"topic_id": both.topic_id} if version >= TOPIC_ID_VERSION else {}
        for acks in (-1, 1):
            both.taken = 0
            sound, asked = (request(version, data, acks=acks, **named) for data in (batch(2), BATCHES[name]))
            await both.ask(sound, asked, sound)
            is_known = name in KNOWN and (name != "zstd" or version >= FIRST_ZSTD_VERSION)
            expected = 0 if version < FIRST_VERSION else 1 + is_known
            assert both.taken == expected, f"v{version}"


@pytest.mark.parametrize(
    "fields",
    [
        {"acks": 0}, {"acks": 2}, {"topic": "unknown"}, {"topic": "__consumer_offsets"}, {"index": 1}, {"index": -1},
        {"transactional_id": "t"}, {"client_id": None}, {"client_id": "é" * 40}, {"timeout_ms": 1_000},
    ],
    ids=str,
)  # fmt: skip
async def test_any_request(both: BothWays, fields: dict[str, Any]) -> None:
    for version in (3, 7, 8, 9, 12):
        both.each(Way.reconnect)
        frame = request(version, batch(), **fields)
        await both.ask(frame, frame, request(version, batch()), frame)


@pytest.mark.parametrize("version", [7, 13])
async def test_a_topic_that_is_named_twice(both: BothWays, version: int) -> None:
    """As in Kafka, the last batch of the partition is the only one that is written."""
    named: dict[str, Any] = {"name": TOPIC} if version < TOPIC_ID_VERSION else {"topic_id": both.topic_id}
    rows = [{**named, "partition_data": [{"index": 0, "records": batch(count)}]} for count in (3, 2)]
    fields = {"transactional_id": None, "acks": -1, "timeout_ms": PATIENT_MS, "topic_data": rows}
    payload: bytes = encode_request("Produce", version, fields, correlation_id=1, client_id="c")
    before = both.general.log().end_offset
    await both.ask(len(payload).to_bytes(4, "big") + payload)
    assert both.general.log().end_offset == before + 2


async def test_partitions_in_turns(both: BothWays) -> None:
    frames = [request(9, batch(n), topic=topic) for n in range(1, 4) for topic in (TOPIC, OTHER)]
    await both.ask(*frames)
    assert both.taken == len(frames) - 2


async def test_more_kinds_of_requests_than_are_known(both: BothWays) -> None:
    frames = [request(9, batch(), client_id="c" * n) for n in range(2 * MAX_LENGTHS)]
    await both.ask(*frames, *frames)


async def test_what_takes_much_memory_is_not_kept(both: BothWays) -> None:
    for frame in (request(9, batch(), client_id="c" * 500), request(9, batch(), topic="unknown")):
        await both.ask(frame, frame)
    assert both.taken == 0


async def test_sequences(both: BothWays) -> None:
    def ask(*sequences: int, epoch: int = 0) -> list[bytes]:
        return [request(9, idempotent(each, epoch)) for each in sequences]

    await both.ask(*ask(0, 3, 6, 6, 0, 12, 9, 9, 10))
    await both.ask(*ask(0, 3, 3, epoch=1), *ask(12), *ask(6, 9, epoch=1))
    assert both.taken >= len([3, 6, 6, 0, 9, 9])


async def test_a_batch_that_comes_again_while_it_is_on_its_way(both: BothWays) -> None:
    await both.ask(request(9, idempotent(0)))
    frame = request(9, idempotent(3))
    assert len(await both.ask(frame + frame + request(9, idempotent(6)))) == 1


CONFIGS: list[dict[str, str]] = [
    {"message_timestamp_type": "LogAppendTime"}, {"message_timestamp_after_max_ms": "1"},
    {"message_timestamp_before_max_ms": "1000"}, {"max_message_bytes": "200"}, {"compression_type": "uncompressed"},
    {"compression_type": "producer"}, {"cleanup_policy": "compact"},
]  # fmt: skip


@pytest.mark.parametrize("configs", CONFIGS, ids=str)
async def test_configurations_count_from_when_they_are_changed(
    both: BothWays, configs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)
    frames = [request(9, batch()), request(9, batch(1)), request(9, batch(compression=1))]
    await both.ask(*frames)
    both.each(lambda way: way.configure(**configs))
    await both.ask(*frames)
    both.each(Way.configure)
    both.taken = 0
    await both.ask(*frames)
    assert both.taken == len(frames)


@pytest.mark.parametrize("error", [ServerError.NotAllowedError, ServerError.TopicTerminatedError])
async def test_what_the_broker_refuses(both: BothWays, error: ServerError) -> None:
    for version in range(FIRST_VERSION, TOPIC_ID_VERSION):
        frame = request(version, batch())
        await both.ask(frame)
        both.each(lambda way: setattr(way.broker, "error", error))
        await both.ask(frame)
        both.each(lambda way: setattr(way.broker, "error", None))
        await both.ask(frame)
    assert both.taken == 2 * (TOPIC_ID_VERSION - FIRST_VERSION)


@pytest.mark.parametrize("version", [5, 10])
async def test_a_log_that_is_closed_meanwhile(both: BothWays, version: int) -> None:
    frame = request(version, idempotent(0)), request(version, idempotent(3))

    async def close(way: Way) -> list[bytes]:
        found = await way.answers(frame[0])
        way.client.ask(frame[1])
        way.log().start_closing()
        return [*found, *await way.answers()]

    await both.run(close)
    assert both.taken == 1


async def test_rights_count_at_once(both: BothWays, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed, changes = {TOPIC}, 0

    class Some(AllAllowed):
        def version(self) -> int:
            return changes

        def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
            return name in allowed

    monkeypatch.setattr(Dispatcher, "_policy", lambda *_: Some())
    both.each(Way.reconnect)
    both.taken = 0
    frames = [request(9, batch(), topic=topic) for topic in (TOPIC, OTHER)]
    await both.ask(*frames, *frames)
    assert both.taken == 1
    allowed.clear()
    changes += 1
    await both.ask(*frames)
    assert both.taken == 1
    allowed.update((TOPIC, OTHER))
    changes += 1
    await both.ask(*frames, *frames)
    assert both.taken == 4


async def test_partitions_that_are_led_elsewhere(both: BothWays, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = request(10, batch())
    await both.ask(frame, frame)
    both.taken = 0
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(Fleet, "leads", lambda *_: False)
        await both.ask(frame, frame)
    assert both.taken == 0
    await both.ask(frame, frame)
    assert both.taken == 2


async def test_idempotent_batches_need_the_lease(both: BothWays, monkeypatch: pytest.MonkeyPatch) -> None:
    await both.ask(request(9, idempotent(0)), request(9, idempotent(3)))
    both.taken = 0
    with monkeypatch.context() as lapsed:
        lapsed.setattr(Fleet, "role", lambda *_: PartitionRole.WITHOUT_LEASE)
        await both.ask(request(9, idempotent(6)), request(9, batch()))
    assert both.taken == 1
    await both.ask(request(9, idempotent(9)), request(9, idempotent(6)), request(9, idempotent(9)))


async def test_a_topic_that_was_made_anew_has_another_id(both: BothWays) -> None:
    topic_id = both.topic_id
    frame = request(13, batch(), topic_id=topic_id)
    await both.ask(frame, frame)
    both.taken = 0

    def make_anew(way: Way) -> None:
        topics = way.scene.cluster.topics
        topics._topics[TOPIC] = replace(topics._topics[TOPIC], topic_id=uuid.UUID(int=1))
        del topics._by_id[topic_id]
        topics.get_by_id = AsyncMock(return_value=None)  # type: ignore[method-assign]

    both.each(make_anew)
    await both.ask(frame, frame)
    assert both.taken == 0


async def test_a_topic_that_is_made_anew_while_another_one_is_looked_up(both: BothWays) -> None:
    """Its batches are for the deleted topic. They must not get into the new one."""
    topic_id = both.topic_id
    row = {"partition_data": [{"index": 0, "records": batch()}]}
    rows = [{"topic_id": each, **row} for each in (topic_id, uuid.UUID(int=2))]
    fields = {"transactional_id": None, "acks": -1, "timeout_ms": PATIENT_MS, "topic_data": rows}
    payload: bytes = encode_request("Produce", 13, fields, correlation_id=1, client_id="c")
    before = both.general.log().end_offset

    def make_anew(way: Way) -> None:
        topics = way.scene.cluster.topics

        async def get_by_id(_: object) -> None:
            topics._topics[TOPIC] = replace(topics._topics[TOPIC], topic_id=uuid.UUID(int=1))
            topics._by_id.pop(topic_id, None)

        topics.get_by_id = get_by_id  # type: ignore[method-assign,assignment]

    both.each(make_anew)
    [answer] = await both.ask(len(payload).to_bytes(4, "big") + payload)
    assert both.general.log().end_offset == before
    assert answer.count((100).to_bytes(2, "big")) == 2, "UNKNOWN_TOPIC_ID"


async def test_other_requests_are_nothing_for_it(both: BothWays) -> None:
    produce = request(9, batch())
    same_start = bytearray(produce)
    same_start[4:6] = (3).to_bytes(2, "big")
    versions = encode_request("ApiVersions", 0, {}, correlation_id=5, client_id="c")
    await both.ask(produce, len(versions).to_bytes(4, "big") + versions, produce, bytes(same_start))
    assert both.taken == 1
