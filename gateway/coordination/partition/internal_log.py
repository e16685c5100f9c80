"""One partition of an internal topic, from its takeover until it is lost.

Opening the log fences every earlier writer. Then a special entry, the barrier, marks the end of all entries of
earlier writers, including those that the broker was still writing. Replay reads up to the barrier, and no entry can
appear before it later.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gateway.background import report
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ClientClosedError, PulsarError, RequestTimeoutError
from gateway.pulsar.position import Position
from gateway.pulsar.producer import METADATA_BYTES, STALLED_S, Producer
from protocol.kafka.errors import ErrorCode
from protocol.pulsar.entry import encode_message, split_messages

Record = tuple[bytes, bytes | None]
"""Kafka's record key and value; None as the value removes the key (a tombstone)."""
OnAppended = Callable[[ErrorCode, int], None]
AppendFilter = Callable[[Sequence[Record], OnAppended], OnAppended]
"""Is called with each append, and returns the callback that is called when the append is answered."""
ReplayTo = Callable[[Position], Awaitable[None]]
"""Reads the log up to this entry, inclusive."""

MAX_ENTRY_BYTES = 1024 * 1024
"""Records that share an entry stay below this size. A larger record gets an entry of its own."""
RECORD_FRAME_BYTES = 64 * 1024
"""What is left for the frame of a record: its key may have two ids of 32 kB, and takes a third more in base64."""
MAX_IN_FLIGHT_ENTRIES = 8
"""Further records wait, and share the next entry."""
MAX_QUEUED_BYTES = 64 * 1024 * 1024
FAILED_TOGETHER = 1_000
"""Records whose appends fail in one step when the log is lost: some 3 ms of work."""
LOST = ErrorCode.NOT_LEADER_OR_FOLLOWER
"""The error of every append to a lost log, for any reason. The coordinator that loads the log next, here or on another
gateway, knows whether the records were stored."""


class _Append(NamedTuple):
    messages: list[bytes]
    size_bytes: int
    on_done: OnAppended
    alone: bool
    irrevocable: bool


@dataclass
class _SentEntry:
    """`on_done` are the callbacks of appends that end in this entry. An entry with an `outcome` is never sent: it only
    waits for its turn.
    """

    on_done: Sequence[OnAppended] = ()
    records: int = 0
    outcome: ErrorCode | None = None
    sent_s: float = field(default_factory=lambda: asyncio.get_running_loop().time())


class InternalLog:
    """Open it once. When it `is_lost`, every append ends with LOST."""

    def __init__(self, client: PulsarClient, topic: str, now_ms: Callable[[], int], after: Callable[[], None]) -> None:
        """`after` is called when appends have been answered."""
        self.producer: Producer | None = None
        self.append_filter: AppendFilter | None = None
        self.appended_bytes = 0
        self.durable_up_to = Position(-1, -1)
        """The last entry that is confirmed. When an append is answered, this is the entry in which it ends."""
        self._lost: asyncio.Future[PulsarError] = asyncio.get_running_loop().create_future()
        self._client = client
        self._topic = topic
        self._now_ms = now_ms
        self._after = after
        self._barrier: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        self._queue: deque[_Append] = deque()
        self._queued_bytes = 0
        self._flush_scheduled = False
        self._in_flight: deque[_SentEntry] = deque()
        self._stall_check: asyncio.TimerHandle | None = None

    @property
    def epoch(self) -> int:
        """The topic epoch of the fencing producer: every gateway that takes over the partition gets a higher one."""
        assert self.producer is not None and self.producer.topic_epoch is not None
        return self.producer.topic_epoch

    @property
    def is_lost(self) -> bool:
        return self._lost.done()

    @property
    def max_record_bytes(self) -> int:
        return self._broker_max_bytes() - RECORD_FRAME_BYTES

    async def wait_lost(self) -> PulsarError:
        """The reason, when the partition is lost. The waiting task may be cancelled without effect on the log."""
        await asyncio.wait([self._lost])
        return self._lost.result()

    async def open(self, barrier: Record, replay_to: ReplayTo, predecessor: Producer | None = None) -> None:
        """Take the partition, and replay everything that was written to it before.

        `barrier` is a record that changes nothing. With `predecessor`, the producer of a lost log, this raises
        ProducerFencedError if another gateway has taken the partition since. Raises PulsarError and TimeoutError.
        """
        self.producer = await self._client.open_producer(self._topic, self, fencing=True, predecessor=predecessor)
        self._send([_encode(barrier)], ())
        await replay_to(await self._until_lost(self._barrier))
        if self.is_lost:
            raise self._lost.result()

    async def _until_lost(self, future: asyncio.Future[Position]) -> Position:
        either: set[asyncio.Future[Any]] = {future, self._lost}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            raise self._lost.result()
        return future.result()

    async def close(self) -> None:
        """Wait for entries in flight. Raises PulsarError if the broker does not confirm."""
        try:
            if self.producer is not None:
                await self.producer.close()
        finally:
            self._lose(ClientClosedError(f"the log of {self._topic} is closed"))

    # Appending

    def append(
        self, records: Sequence[Record], on_done: OnAppended, *, alone: bool = False, irrevocable: bool = False
    ) -> None:
        """`on_done` is called later, in the order of appends: with NONE when the records are durable.

        It gets LOST when the log is lost, or the error of a refused append. With `alone`, the records share their
        entry with no other append. `irrevocable` as in `coordinator.log`.
        """
        if self.append_filter is not None:
            on_done = self.append_filter(records, on_done)
        messages = [_encode(record) for record in records]
        size = sum(map(len, messages))
        self._queue.append(_Append(messages, size, on_done, alone, irrevocable))
        self._queued_bytes += size
        self.appended_bytes += size
        self._schedule_flush()

    def _schedule_flush(self) -> None:
        # Not at once: all records that are appended in the same turn of the event loop go into the same entry.
        if not self._flush_scheduled:
            self._flush_scheduled = True
            if self.producer is None:
                asyncio.get_running_loop().call_soon(self._flush)
            else:
                self.producer.before_flush(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self.is_lost:
            self._fail()
            return
        while self._queue and len(self._in_flight) < MAX_IN_FLIGHT_ENTRIES and not self.is_lost:
            self._send_some()
            self._answer_refused()

    def _send_some(self) -> None:
        """Send one entry with as many whole appends as fit, or one append that needs several; or refuse them."""
        is_full = self._queued_bytes > MAX_QUEUED_BYTES
        batch: list[_Append] = []
        size = 0
        while self._queue:
            head = self._queue[0]
            if batch and (head.alone or batch[-1].alone or size + head.size_bytes > self._max_entry_bytes()):
                break
            if batch and is_full and head.irrevocable != batch[-1].irrevocable:
                break
            batch.append(self._queue.popleft())
            size += head.size_bytes
        self._queued_bytes -= size
        messages = [message for append in batch for message in append.messages]
        on_done = [append.on_done for append in batch]
        if is_full and not batch[-1].irrevocable:
            self._in_flight.append(_SentEntry(on_done, len(messages), ErrorCode.NOT_ENOUGH_REPLICAS))
        elif max(map(len, messages), default=0) > self._broker_max_bytes():
            # Only an append that is alone in its batch can hold such a message.
            self._in_flight.append(_SentEntry(on_done, len(messages), ErrorCode.MESSAGE_TOO_LARGE))
        elif not messages:
            self._in_flight.append(_SentEntry(on_done, outcome=ErrorCode.NONE))
        else:
            self._send(messages, on_done)

    def _max_entry_bytes(self) -> int:
        return min(MAX_ENTRY_BYTES, self._broker_max_bytes())

    def _broker_max_bytes(self) -> int:
        assert self.producer is not None
        return self.producer.max_message_bytes - METADATA_BYTES

    def _send(self, messages: list[bytes], on_done: Sequence[OnAppended]) -> None:
        assert self.producer is not None
        entries = split_messages(messages, self._max_entry_bytes())
        self._in_flight.extend(_SentEntry() for _ in entries[1:])
        self._in_flight.append(_SentEntry(on_done, len(messages)))
        try:
            for entry in entries:
                self.producer.send(entry, num_messages=len(entry), publish_time_ms=self._now_ms())
        except PulsarError as error:
            self._lose(error)
        else:
            self._watch_for_stall()

    # The outcome of entries (SendListener)

    def on_receipt(self, sequence_id: int, position: Position) -> None:
        if self.is_lost:  # what was in flight is being answered
            return
        if not self._barrier.done():
            self._barrier.set_result(position)
        self.durable_up_to = position
        if self._in_flight:
            self._answer(self._in_flight.popleft(), ErrorCode.NONE)
        self._answer_refused()
        if self._queue:
            self._schedule_flush()

    def on_send_error(self, sequence_id: int, error: PulsarError) -> None:
        # A coordinator's appends may depend on earlier ones: if an entry is lost, the log must not continue.
        self._lose(error)

    def on_producer_closed(self, error: PulsarError) -> None:
        self._lose(error)

    def _answer(self, entry: _SentEntry, error: ErrorCode) -> None:
        now_ms = self._now_ms()
        for on_done in entry.on_done:
            try:
                on_done(error, now_ms)
            except Exception as defect:  # a defect in the gateway: the entry's other appends are answered nevertheless
                report("answer of an append", defect)
        self._after()

    def _answer_refused(self) -> None:
        while self._in_flight and (outcome := self._in_flight[0].outcome) is not None:
            self._answer(self._in_flight.popleft(), outcome)

    def _watch_for_stall(self) -> None:
        if self._stall_check is None and self._in_flight:
            loop = asyncio.get_running_loop()
            self._stall_check = loop.call_at(self._in_flight[0].sent_s + STALLED_S, self._check_stall)

    def _check_stall(self) -> None:
        self._stall_check = None
        if self._in_flight and asyncio.get_running_loop().time() >= self._in_flight[0].sent_s + STALLED_S:
            self._lose(RequestTimeoutError(f"an entry of {self._topic} is not acknowledged after {STALLED_S:.0f} s"))
        else:
            self._watch_for_stall()

    def _lose(self, error: PulsarError) -> None:
        if self.is_lost:
            return
        self._lost.set_result(error)
        if self._stall_check is not None:
            self._stall_check.cancel()
            self._stall_check = None
        self._fail()

    def _fail(self) -> None:
        """In slices: very much may be in flight, or wait, when Pulsar does not answer."""
        count = 0
        while self._in_flight and count < FAILED_TOGETHER:
            entry = self._in_flight.popleft()
            count += 1 + entry.records
            self._answer(entry, LOST if entry.outcome is None else entry.outcome)
        while self._queue and count < FAILED_TOGETHER:
            append = self._queue.popleft()
            self._queued_bytes -= append.size_bytes
            count += 1 + len(append.messages)
            self._answer(_SentEntry((append.on_done,)), LOST)
        if (self._in_flight or self._queue) and not self._flush_scheduled:
            self._flush_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)


def _encode(record: Record) -> bytes:
    key, value = record
    return encode_message(value, key=key)
