"""Converts entries that take long to decompress or to parse in threads, so that the event loop continues meanwhile.

A few bytes may decompress to as much as `max_decompressed_bytes`, and an entry may hold hundreds of thousands of
messages.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from gateway.fan_out import Slices
from gateway.log.entries.log_entry import LogEntry, is_kafka_format
from gateway.pulsar.reader import Entry

HEAVY_MESSAGES = 1_000
HEAVY_BYTES = 256 * 1024
"""Native entries up to this count and decompressed size are converted in the event loop: a few milliseconds of work, or
some tens of milliseconds if all of it is tiny properties."""

T = TypeVar("T")


class DecodingThreads:
    """Runs a bounded amount of work at the same time. Further work waits, and its owners (`whose`) take turns."""

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, "decoding")
        self._free = count
        self._waiting: OrderedDict[Hashable, OrderedDict[asyncio.Future[None], None]] = OrderedDict()
        """The waiting work, by owner, in the order of the owners' turns."""

    async def run(self, work: Callable[[], T], whose: Hashable) -> T:
        """Raises what the work raises. If the caller is cancelled, waiting work is dropped; running work continues."""
        await self._turn(whose)
        loop = asyncio.get_running_loop()

        def ended(_: Future[T]) -> None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(self._give_back)

        begun = self._pool.submit(work)
        begun.add_done_callback(ended)
        return await asyncio.wrap_future(begun)

    async def _turn(self, whose: Hashable) -> None:
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(whose, OrderedDict())[turn] = None
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back()
            elif whose in self._waiting:
                self._waiting[whose].pop(turn, None)
                if not self._waiting[whose]:
                    del self._waiting[whose]
            raise

    def _give_back(self) -> None:
        while self._waiting:
            whose, turns = self._waiting.popitem(last=False)
            turn, _ = turns.popitem(last=False)
            if turns:
                self._waiting[whose] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def close(self) -> None:
        for turns in [*self._waiting.values()]:
            for turn in turns:
                turn.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)


def is_heavy(entry: Entry) -> bool:
    """Whether to convert the entry in a thread. Batches in Kafka's format only get offsets, without decompression."""
    metadata = entry.metadata
    size_bytes = max(metadata.uncompressed_size, metadata.total_chunk_msg_size, len(entry.payload))
    count = max(metadata.num_messages_in_batch, len(metadata.properties))
    return (size_bytes > HEAVY_BYTES or count > HEAVY_MESSAGES) and not is_kafka_format(entry)


async def converted(
    threads: DecodingThreads, convert: Callable[[Entry], LogEntry | None], entry: Entry, whose: Hashable
) -> LogEntry | None:
    return await threads.run(partial(convert, entry), whose) if is_heavy(entry) else convert(entry)


class OrderedConversions:
    """Converts the entries of one reader and delivers them in the order in which they arrived."""

    def __init__(
        self,
        threads: DecodingThreads,
        convert: Callable[[Entry], LogEntry | None],
        deliver: Callable[[Entry, LogEntry | None], None],
        fail: Callable[[Exception], None],
        *,
        wanted: Callable[[Entry], bool] = lambda entry: True,
        drained: Callable[[], object] = lambda: None,
    ) -> None:
        """``wanted`` is called for an entry just before its conversion.

        ``fail`` gets exceptions that occur for entries that had to wait: no caller is left to get them.
        ``drained`` is called when entries had to wait and none is left.
        """
        self._threads = threads
        self._convert = convert
        self._deliver = deliver
        self._fail = fail
        self._wanted = wanted
        self._drained = drained
        self._waiting: deque[Entry] | None = None
        """Only while there is a task: an empty deque takes 760 bytes, and most readers never need it."""
        self._task: asyncio.Task[None] | None = None
        self._messages_this_turn = 0
        """The messages that were converted in this turn of the event loop."""

    @property
    def busy(self) -> bool:
        """An entry is being converted, and others may wait: the broker should send no more."""
        return self._task is not None

    def take(self, entry: Entry) -> None:
        if self._task is None and (is_kafka_format(entry) or (not is_heavy(entry) and self._fits_this_turn(entry))):
            if self._wanted(entry):
                self._deliver(entry, self._convert(entry))
            return
        if self._waiting is None:
            self._waiting = deque()
            self._task = asyncio.create_task(self._work_off(self._waiting))
        self._waiting.append(entry)

    def _fits_this_turn(self, entry: Entry) -> bool:
        """Whether to convert the entry at once. Many small entries, read together, are as much work as a heavy one."""
        if not self._messages_this_turn:
            asyncio.get_running_loop().call_soon(self._turn_ended)
        self._messages_this_turn += max(1, entry.metadata.num_messages_in_batch)
        return self._messages_this_turn <= HEAVY_MESSAGES

    def _turn_ended(self) -> None:
        self._messages_this_turn = 0

    def clear(self) -> None:
        """Drop the waiting entries."""
        if self._waiting is not None:
            self._waiting.clear()

    def close(self) -> None:
        self.clear()
        if self._task is not None:
            self._task.cancel()

    async def _work_off(self, waiting: deque[Entry]) -> None:
        slices = Slices()
        try:
            while waiting:
                await slices.pause()
                if not waiting:  # they were dropped in the meantime
                    break
                entry = waiting.popleft()
                if self._wanted(entry):
                    self._deliver(entry, await converted(self._threads, self._convert, entry, self))
        except Exception as error:
            waiting.clear()
            self._fail(error)
        finally:
            self._task = self._waiting = None
        self._drained()
