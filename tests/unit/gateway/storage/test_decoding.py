"""What takes long is converted in threads, and yet all is delivered in order."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry
from gateway.storage.decoding import HEAVY_BYTES, HEAVY_MESSAGES, DecodingThreads, OrderedConversions, is_heavy
from gateway.storage.log_entry import KAFKA_FORMAT, LogEntry
from gateway.storage.message_entry import FORMAT_PROPERTY
from protocol.pulsar.pulsar_commands_pb2 import BrokerEntryMetadata, CompressionType, KeyValue, MessageMetadata


def entry(number: int, count: int = 1, **fields: Any) -> Entry:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=count, **fields)
    return Entry(Position(1, number), BrokerEntryMetadata(index=number), metadata, memoryview(b""))


HEAVY = HEAVY_MESSAGES + 1


def test_what_is_heavy() -> None:
    assert not is_heavy(entry(0, HEAVY_MESSAGES))
    assert is_heavy(entry(0, HEAVY))
    assert is_heavy(entry(0, compression=CompressionType.ZSTD, uncompressed_size=HEAVY_BYTES + 1))
    assert is_heavy(entry(0, num_chunks_from_msg=2, total_chunk_msg_size=HEAVY_BYTES + 1))
    ours = entry(0, HEAVY)
    ours.metadata.properties.append(KeyValue(key=FORMAT_PROPERTY.encode(), value=KAFKA_FORMAT.encode()))
    assert not is_heavy(ours)


class Scene:
    """Heavy conversions wait until the test lets them go on."""

    def __init__(self) -> None:
        self.delivered: list[int] = []
        self.in_loop: list[int] = []
        self.failures: list[Exception] = []
        self.unwanted: set[int] = set()
        self.go_on = threading.Event()
        self.threads = DecodingThreads(1)
        self.conversions = OrderedConversions(
            self.threads, self.convert, self.deliver, self.failures.append,
            wanted=lambda each: each.position.entry_id not in self.unwanted,
        )  # fmt: skip

    def convert(self, each: Entry) -> LogEntry | None:
        if threading.current_thread() is threading.main_thread():
            self.in_loop.append(each.position.entry_id)
        else:
            assert self.go_on.wait(10)
        return None

    def deliver(self, each: Entry, read: LogEntry | None) -> None:
        if each.position.entry_id == 99:
            raise RuntimeError("not taken")
        self.delivered.append(each.position.entry_id)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.delivered) < count:
                await asyncio.sleep(0.001)


async def test_light_entries_behind_a_heavy_one_wait_for_it() -> None:
    scene = Scene()
    for number in range(5):
        scene.conversions.take(entry(number, HEAVY if number == 1 else 1))
    await asyncio.sleep(0.01)
    assert scene.delivered == [0]
    scene.go_on.set()
    await scene.until(5)
    assert scene.delivered == [0, 1, 2, 3, 4]
    scene.conversions.take(entry(5))
    assert scene.delivered[-1] == 5
    assert 1 not in scene.in_loop


async def test_what_is_not_wanted_is_asked_for_in_its_turn() -> None:
    scene = Scene()
    scene.conversions.take(entry(0, HEAVY))
    scene.conversions.take(entry(1))
    scene.conversions.take(entry(2))
    scene.unwanted.add(1)
    scene.go_on.set()
    await scene.until(2)
    assert scene.delivered == [0, 2]


async def test_nothing_comes_of_a_closed_one() -> None:
    scene = Scene()
    scene.conversions.take(entry(0, HEAVY))
    scene.conversions.take(entry(1))
    await asyncio.sleep(0)
    scene.conversions.close()
    scene.go_on.set()
    await asyncio.sleep(0.02)
    assert scene.delivered == []


@pytest.mark.parametrize("count", [1, HEAVY])
async def test_whoever_fails_to_take_an_entry_hears_of_it(count: int) -> None:
    scene = Scene()
    scene.go_on.set()
    if count == 1:
        with pytest.raises(RuntimeError):
            scene.conversions.take(entry(99))
        return
    scene.conversions.take(entry(99, count))
    async with asyncio.timeout(10):
        while not scene.failures:
            await asyncio.sleep(0.001)
    assert isinstance(scene.failures[0], RuntimeError)
