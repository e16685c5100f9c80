"""The start of a log after DeleteRecords; searches by time then find the remaining records only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast
from unittest.mock import patch

import pytest

from gateway.config.limits import Limits
from gateway.errors import KafkaError
from gateway.log import timestamps
from gateway.log.bounds.deleted_records import PREFIX, PROPERTY, read_deleted
from gateway.log.bounds.start_search import StartSearch
from gateway.log.partition_log import PartitionLog, open_log
from gateway.log.shared import Shared
from gateway.log.timestamps import FoundOffset, find_by_timestamp, find_max_timestamp
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import RequestTimeoutError
from protocol.kafka.records import Record, encode_batch
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.fake_pulsar import FakeTopic

TIMES = ((30, 50, 10), (20, 40, 40))
"""Timestamps of the records of two batches, at offsets 0 to 5."""


class Waiter:
    def __init__(self) -> None:
        self.woken = asyncio.Event()

    def log_moved(self) -> None:
        self.woken.set()


@pytest.fixture
def topic() -> FakeTopic:
    topic = FakeTopic()
    for times in TIMES:
        data = encode_batch([Record(delta, time, None, b"v", ()) for delta, time in enumerate(times)])
        topic.write(bytes(data), len(times), "writer", topic.entry_id)
    return topic


def shared_of(topic: FakeTopic) -> Shared:
    return Shared(cast(PulsarClient, topic), cast(AdminClient, topic), Limits(), Metrics(), lambda: True)


async def opened(topic: FakeTopic) -> PartitionLog:
    return await open_log("topic", shared_of(topic))


@contextmanager
def late_properties(topic: FakeTopic) -> Iterator[asyncio.Event]:
    """Pulsar gets the properties that are set in the block when the event is set."""
    put_properties, sent = topic.put_properties, asyncio.Event()

    async def late(name: str, properties: dict[str, str]) -> None:
        await sent.wait()
        await put_properties(name, properties)

    with patch.object(topic, "put_properties", late):
        yield sent


async def test_start_is_raised_at_once_and_kept(topic: FakeTopic) -> None:
    log = await opened(topic)
    waiter = Waiter()
    log.waiters.add(waiter, 0, at_end=True)
    assert log.start.offset == 0
    await log.start.delete_before(4)
    assert (log.start.offset, log.end_offset) == (4, 6)
    async with asyncio.timeout(5):
        await waiter.woken.wait()
    log.waiters.discard(waiter)
    assert (await opened(topic)).start.offset == 4
    await log.close()


async def test_start_is_never_lowered(topic: FakeTopic) -> None:
    log = await opened(topic)
    await asyncio.gather(*(log.start.delete_before(offset) for offset in (2, 5, 3, 0)))
    assert log.start.offset == 5
    assert topic.properties[PROPERTY] == "5"


async def test_another_gateway_has_deleted_more(topic: FakeTopic) -> None:
    log, other = await opened(topic), await opened(topic)
    await other.start.delete_before(5)
    await log.start.delete_before(3)
    assert log.start.offset == 5
    assert topic.properties[PROPERTY] == "5"


async def test_a_former_leader_that_writes_late_brings_nothing_back(topic: FakeTopic) -> None:
    """It has decided before another gateway deleted more, and Pulsar gets its request after that one's."""
    former, other = await opened(topic), await opened(topic)
    with late_properties(topic) as sent:
        deleting = asyncio.create_task(former.start.delete_before(2))
        await let_callbacks_run()
    assert not deleting.done()
    await other.start.delete_before(5)
    sent.set()
    await deleting
    assert (await opened(topic)).start.offset == 5


async def test_a_log_that_was_closed_meanwhile_does_not_say_that_records_are_deleted(topic: FakeTopic) -> None:
    """The next log may have been opened before Pulsar has stored it, and would still return them."""
    log = await opened(topic)
    with late_properties(topic) as sent:
        deleting = asyncio.create_task(log.start.delete_before(4))
        await let_callbacks_run()
    assert not deleting.done()
    await log.close()
    following = await opened(topic)
    sent.set()
    with pytest.raises(KafkaError):
        await deleting
    assert following.start.offset == 0
    await following.start.delete_before(4)
    assert following.start.offset == 4


async def test_one_property_for_deletions_stays(topic: FakeTopic) -> None:
    log = await opened(topic)
    for offset in (1, 3, 2, 5):
        await log.start.delete_before(offset)
    assert sorted(key for key in topic.properties if key.startswith(PROPERTY)) == [PROPERTY, f"{PREFIX}5"]


async def test_nothing_moves_when_pulsar_does_not_take_it(topic: FakeTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(topic: str, properties: dict[str, str]) -> None:
        raise RequestTimeoutError("slow")

    log = await opened(topic)
    monkeypatch.setattr(topic, "put_properties", fail)
    with pytest.raises(RequestTimeoutError):
        await log.start.delete_before(3)
    assert log.start.offset == 0


async def test_retention_may_have_removed_more(topic: FakeTopic) -> None:
    topic.properties[PROPERTY] = "1"
    del topic.entries[0]
    assert await StartSearch(cast(PulsarClient, topic), cast(AdminClient, topic), "topic").run() == (3, True)


@pytest.mark.parametrize("text", ["", "-3", "soon", "4.5"])
async def test_property_that_is_no_offset(topic: FakeTopic, text: str) -> None:
    topic.properties[PROPERTY] = text
    topic.properties[f"{PREFIX}{text}"] = ""
    assert await read_deleted(cast(AdminClient, topic), "topic") == 0


@pytest.mark.parametrize(
    ("start", "largest", "at_20"),
    [
        (0, FoundOffset(1, 50), FoundOffset(0, 30)),
        (1, FoundOffset(1, 50), FoundOffset(1, 50)),
        (2, FoundOffset(4, 40), FoundOffset(3, 20)),
        (5, FoundOffset(5, 40), FoundOffset(5, 40)),
        (6, None, None),
    ],
)
async def test_search_by_time_finds_what_is_left(
    topic: FakeTopic, start: int, largest: FoundOffset | None, at_20: FoundOffset | None
) -> None:
    log = await opened(topic)
    await log.start.delete_before(start)
    assert await find_max_timestamp(log) == largest
    assert await find_by_timestamp(log, 20) == at_20


async def test_the_largest_timestamp_was_deleted_during_the_search(
    topic: FakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log had a latest record all the time."""
    log = await opened(topic)
    first_in_batch = timestamps._first_in_batch

    async def late(*arguments: Any) -> FoundOffset | None:
        await log.start.delete_before(3)
        return await first_in_batch(*arguments)

    monkeypatch.setattr(timestamps, "_first_in_batch", late)
    assert await find_max_timestamp(log) == FoundOffset(1, 50)
    assert await find_max_timestamp(log) == FoundOffset(4, 40)
