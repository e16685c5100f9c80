"""Slow conversions run in threads, and all results are delivered in order."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from functools import partial
from typing import Any

import pytest

from gateway.log.entries.decoding import HEAVY_BYTES, HEAVY_MESSAGES, DecodingThreads, OrderedConversions, is_heavy
from gateway.log.entries.log_entry import KAFKA_FORMAT, MAX_PROPERTIES, LogEntry, holds_batches, is_kafka_format
from gateway.log.entries.message_entry import FORMAT_PROPERTY
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry
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
    unnamed = entry(0)
    unnamed.payload = memoryview(bytearray(HEAVY_BYTES + 1))
    assert is_heavy(unnamed), "a producer need not say how large its messages are"
    assert is_heavy(entry(0, properties=[KeyValue(key=b"", value=b"")] * HEAVY))
    ours = entry(0, HEAVY)
    ours.metadata.properties.append(KeyValue(key=FORMAT_PROPERTY.encode(), value=KAFKA_FORMAT.encode()))
    assert not is_heavy(ours)


def test_an_entry_with_very_many_properties_is_not_searched() -> None:
    """Only native producers write so many; a gateway's entry has its format among a few."""
    format_property = KeyValue(key=FORMAT_PROPERTY.encode(), value=KAFKA_FORMAT.encode())
    others = [KeyValue(key=b"", value=b"")] * MAX_PROPERTIES
    assert is_kafka_format(entry(0, properties=[*others[1:], format_property]))
    assert not is_kafka_format(entry(0, properties=[*others, format_property]))
    assert not holds_batches(entry(0, properties=[*others, format_property]))


class Scene:
    """Slow conversions wait until the test lets them continue."""

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


async def test_many_light_entries_that_came_together_are_not_converted_in_one_turn() -> None:
    scene = Scene()
    for number in range(30):
        scene.conversions.take(entry(number, HEAVY_MESSAGES // 10))
    assert scene.delivered == list(range(10))
    assert scene.conversions.busy
    await scene.until(30)
    assert scene.delivered == scene.in_loop == list(range(30))
    scene.conversions.take(entry(30, HEAVY_MESSAGES))
    assert scene.delivered[-1] == 30


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
async def test_an_owner_that_raises_gets_the_exception(count: int) -> None:
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


class Busy:
    """One thread that works until the test lets it continue."""

    def __init__(self) -> None:
        self.threads = DecodingThreads(1)
        self.go_on = threading.Event()
        self.done: list[str] = []
        self.first = asyncio.create_task(self.threads.run(self._hold, "first"))

    def _hold(self) -> None:
        assert self.go_on.wait(10)

    def work(self, name: str, whose: str) -> asyncio.Task[None]:
        return asyncio.create_task(self.threads.run(partial(self.done.append, name), whose))


async def test_one_with_much_work_does_not_keep_others_waiting_for_all_of_it() -> None:
    busy = Busy()
    await asyncio.sleep(0)
    tasks = [busy.work(f"a{number}", "a") for number in range(3)]
    await asyncio.sleep(0)
    tasks += [busy.work("b0", "b"), busy.work("b1", "b"), busy.work("c0", "c")]
    await asyncio.sleep(0)
    busy.go_on.set()
    async with asyncio.timeout(10):
        await asyncio.gather(busy.first, *tasks)
    assert busy.done == ["a0", "b0", "c0", "a1", "b1", "a2"]


async def test_work_that_nobody_waits_for_any_more_is_not_begun_and_holds_no_memory() -> None:
    busy = Busy()
    await asyncio.sleep(0)

    class Frame:
        """What the work is to be done with."""

    frame = Frame()
    kept = weakref.ref(frame)
    tasks = [asyncio.create_task(busy.threads.run(partial(repr, frame), "a")), busy.work("b", "b")]
    await asyncio.sleep(0)
    del frame
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    del task
    tasks.clear()
    await asyncio.sleep(0)
    gc.collect()
    assert kept() is None
    busy.go_on.set()
    async with asyncio.timeout(10):
        await busy.first
        await busy.threads.run(partial(busy.done.append, "later"), "c")
    assert busy.done == ["later"]


async def test_a_cancelled_waiter_leaves_the_thread_to_who_comes_next_when_the_work_is_done() -> None:
    busy = Busy()
    await asyncio.sleep(0.01)
    busy.first.cancel()
    await asyncio.gather(busy.first, return_exceptions=True)
    waiting = busy.work("next", "a")
    await asyncio.sleep(0.01)
    assert busy.done == [] and not waiting.done()
    busy.go_on.set()
    async with asyncio.timeout(10):
        await waiting
    assert busy.done == ["next"]


async def test_nobody_waits_for_threads_that_are_closed() -> None:
    busy = Busy()
    await asyncio.sleep(0)
    waiting = busy.work("never", "a")
    await asyncio.sleep(0)
    busy.threads.close()
    busy.go_on.set()
    async with asyncio.timeout(10):
        results = await asyncio.gather(busy.first, waiting, return_exceptions=True)
    assert results[0] is None and isinstance(results[1], asyncio.CancelledError)
