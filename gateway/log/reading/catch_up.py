"""Readers of older data: each reads ahead of one fetch position from Pulsar, within a byte budget."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

import structlog

from gateway.background import run_once
from gateway.config.limits import Limits
from gateway.errors import KafkaError
from gateway.log.entries.chunked_messages import ChunkedMessages, is_piece
from gateway.log.entries.decoding import DecodingThreads, OrderedConversions
from gateway.log.entries.entry_stream import NOTHING
from gateway.log.entries.log_entry import NO_LIMIT, LogEntry, Slice, collect, from_pulsar
from gateway.log.entries.start_reader import StartReader
from gateway.log.entries.undispatched import undispatched_end
from gateway.log.reading.compacted_end import CompactedEnd, compacted_end
from gateway.log.reading.entry_lookup import EntryLookup
from gateway.log.reading.positions import SparseIndex, back_from, find_position
from gateway.log.reading.read_source import ReadSource
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.flow_window import FlowWindow
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry, Reader
from protocol.kafka.errors import ErrorCode
from protocol.kafka.offset_span import gap_batches

MAX_PERMITS = 200_000
OVERFULL_BYTES = 1024 * 1024
"""More than twice its share, and than this, closes a reader: the messages became larger than those that it expected."""
PERMITS_GROWTH = 4
"""Messages may be large, so permits start with one message and grow with the messages received, by this factor."""
RETRY_S = 0.2
LOOK_BACK_ENTRIES = (1, 8, 64)
"""The entries to go back for each missing chunk of a large message, by attempt: chunks are mostly close together."""
MAX_LOOK_BACK_ENTRIES = 10_000
"""A chunk that would need more is not joined. Any producer may write chunks with impossible numbers."""
ASK_END_EVERY_S = 1.0
SILENT_S = 2.0
"""The log has more, but nothing arrived for this time: its start may have moved, or entries are undispatched."""
READ_FAILURES = (PulsarError, TimeoutError, OSError)

log = structlog.get_logger()


class OverfullError(Exception):
    """A reader has read too far ahead."""


class ReaderOwner(Protocol):
    """The owner of all readers of the gateway, as each reader sees it."""

    client: PulsarClient
    admin: AdminClient
    entries: EntryLookup
    limits: Limits
    metrics: Metrics
    decoding: DecodingThreads

    @property
    def share_bytes(self) -> int: ...

    def index(self, log: ReadSource) -> SparseIndex: ...


class CatchUpReader:
    """Reads entries from one offset on, ahead of the client. An EntryListener."""

    def __init__(self, owner: ReaderOwner, log: ReadSource, offset: int, begun: StartReader | None = None) -> None:
        """``begun`` is a reader that is already open at ``offset``."""
        self.log = log
        self.offset = offset
        self.failed: Exception | None = None
        self.started_at = self.last_used = time.monotonic()
        self.delivered_at: float | None = None
        """When a client first received data from this reader."""
        self.offset_behind = offset
        """The offset after the data that clients have received."""
        self._owner = owner
        self._index = owner.index(log)
        self.buffered_bytes = 0
        self._entries: list[LogEntry] = []
        self._reader: Reader | None = None if begun is None else begun.reader
        self._window = FlowWindow() if begun is None else begun.window
        self._messages = 0
        self._bytes = 0
        self._verified = False
        self._position = NOTHING
        self._end: CompactedEnd | None = None
        self._end_asked_at = 0.0
        self._asking: asyncio.Task[None] | None = None
        self._next_offset = offset
        self._ledger_id: int | None = None
        self._missing: int | None = None
        """The first offset that did not arrive: retention may have deleted it."""
        self._to_check = False
        self._silence: asyncio.TimerHandle | None = None
        self._silent_at: Position | None = None
        """The position at the last check for silence."""
        self._chunked = ChunkedMessages(owner.limits.max_decompressed_bytes)
        self._look_backs = 0
        self._looked_back_for = NOTHING
        """The last chunk for which the reader has looked back, `_look_backs` times. All chunks before it had their
        attempts."""
        self._looking_back: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._conversions = OrderedConversions(
            owner.decoding, self._convert, self._converted, self._fail, wanted=self._is_wanted
        )
        self._task = run_once("open reader", self._open(begun))

    @property
    def held_bytes(self) -> int:
        """The bytes in memory, readable or not yet."""
        return self.buffered_bytes + self._chunked.size_bytes

    @property
    def is_broken(self) -> bool:
        """The reader has failed, and the data that it read before is delivered."""
        return self.failed is not None and not (self._entries and self._verified)

    @property
    def drained(self) -> bool:
        """The reader has delivered all that the log holds."""
        return self.delivered_at is not None and self.offset_behind >= self.log.end_offset

    def stands_at(self, offset: int) -> bool:
        """Whether this reader can continue from ``offset``."""
        if self._entries:
            return self.offset <= offset <= self._entries[-1].next_offset
        return offset == self.offset

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool, before: int = NO_LIMIT) -> Slice | None:
        """Batches from ``offset`` on; None if they have not arrived yet. Earlier data is dropped."""
        if not self.holds(offset):
            return None
        found = collect(self._entries, 0, offset, max_bytes, at_least_one=at_least_one, before=before)
        if found.size_bytes:
            self.offset_behind = found.next_offset
            self.delivered_at = self.delivered_at or self.last_used
        return found

    def holds(self, offset: int) -> bool:
        """Whether there is data to read at ``offset``. Earlier data is dropped."""
        self.last_used = time.monotonic()
        passed = 0
        for entry in self._entries:
            if entry.next_offset > offset:
                break
            passed += 1
            self.buffered_bytes -= entry.size_bytes
        del self._entries[:passed]
        self.offset = max(self.offset, offset)
        self._top_up()
        if not self._entries or not self._verified:
            self._ask_compacted_end()
            return False
        return True

    def close(self) -> None:
        for task in (self._task, self._asking, self._looking_back, self._checking):
            if task is not None:
                task.cancel()
        self._conversions.close()
        if self._silence is not None:
            self._silence.cancel()
        reader, self._reader = self._reader, None
        if reader is not None and not reader.closed:
            run_once("close reader", reader.close())

    def on_entry(self, entry: Entry) -> None:
        if self._looking_back is None and self.failed is None:  # otherwise the entry will arrive again
            self._owner.metrics.entries_read.value += 1
            self._conversions.take(entry)

    def _is_wanted(self, entry: Entry) -> bool:
        if is_piece(entry) and self._chunked.lacks_pieces(entry) and self._looks_back(entry):
            self._conversions.clear()
            return False
        return True

    def _convert(self, entry: Entry) -> LogEntry | None:
        return from_pulsar(entry, max_bytes=self._owner.limits.max_decompressed_bytes, chunked=self._chunked)

    def _converted(self, entry: Entry, read: LogEntry | None) -> None:
        is_half_used = self._window.used(entry)
        self._position = entry.position
        if read is None or read.next_offset <= self.offset or read.next_offset <= self._next_offset:
            self._top_up()
        else:
            self._index.learn(read)
            self._messages += entry.permits
            self._bytes += max(read.size_bytes, len(entry.payload))
            self._take(read)
            if is_half_used:
                self._top_up()
        if self._end is not None:
            self._step_over()

    def _take(self, read: LogEntry) -> None:
        expected, self._next_offset = self._next_offset, read.next_offset
        # Retention deletes whole ledgers; offsets missing within a ledger belong to undispatched entries.
        crossed, self._ledger_id = read.position.ledger_id != self._ledger_id, read.position.ledger_id
        self._entries.append(read)
        self.buffered_bytes += read.size_bytes
        if crossed and read.base_offset > expected:
            self._check_start(expected)
        self._verified = self._missing is None
        if not self._verified:
            return
        if len(self._entries) > 1 and self.buffered_bytes > max(OVERFULL_BYTES, 2 * self._owner.share_bytes):
            self._stop_reading()
        if waiters := self.log.waiters:
            waiters.wake()

    def _stop_reading(self) -> None:
        """What has arrived is delivered. Then another reader goes on, and begins with one message again."""
        reader, self._reader = self._reader, None
        if reader is not None:
            self._conversions.clear()
            self.failed = OverfullError(f"{self.buffered_bytes} bytes are read ahead")
            run_once("close reader", reader.close())

    # Reading the beginning of a large message

    def _looks_back(self, piece: Entry) -> bool:
        """The reader began within a large message: it restarts before it. False if earlier attempts did not help."""
        times = self._look_backs if piece.position == self._looked_back_for else 0
        if piece.position < self._looked_back_for or times == len(LOOK_BACK_ENTRIES):
            return False
        entries = LOOK_BACK_ENTRIES[times] * piece.metadata.chunk_id
        if entries > MAX_LOOK_BACK_ENTRIES or piece.index is None or piece.index < self.offset:
            return False
        self._looked_back_for, self._look_backs = piece.position, times + 1
        self._looking_back = run_once("look back", self._look_back(piece, entries))
        return True

    async def _look_back(self, piece: Entry, entries: int) -> None:
        try:
            reader, self._reader = self._reader, None
            if reader is not None:
                await reader.close()
            stats = await self._owner.admin.topics.internal_stats(self.log.pulsar_topic)
            start = back_from(stats.ledgers, piece.position, entries)
            self._reader = await self._owner.client.open_reader(
                self.log.pulsar_topic, start, self, read_compacted=self.log.compacted
            )
        except READ_FAILURES as error:
            self._fail(error)
            self.log.waiters.wake()
        except Exception as defect:
            self._fail(defect)
            raise
        else:
            self._looking_back, self._window = None, FlowWindow()
            self._top_up()

    # The end of a log, after the last entry that brokers send

    def _ask_compacted_end(self) -> None:
        """Nothing arrives: compaction may have removed the rest. It may have run again since the last request."""
        now = time.monotonic()
        idle = self._asking is None or self._asking.done()
        if self.log.compacted and self._reader is not None and idle and now - self._end_asked_at >= ASK_END_EVERY_S:
            self._end_asked_at = now
            self._asking = run_once("compacted end", self._learn_compacted_end(self._reader))

    async def _learn_compacted_end(self, reader: Reader) -> None:
        try:
            self._end = await compacted_end(self._owner.client, self._owner.admin, self.log, reader)
        except READ_FAILURES as error:
            log.info("cannot read the end of a compacted log", topic=self.log.pulsar_topic, error=str(error))
        else:
            self._step_over()

    def _step_over(self) -> None:
        """After the last entry that arrives, one batch without records stands for all remaining offsets."""
        if self._end is None or self._position < self._end.last:
            return
        (last, end_offset), self._end = self._end, None
        next_offset = self._entries[-1].next_offset if self._entries else self.offset
        if next_offset < end_offset:
            self._take(LogEntry(last, next_offset, end_offset, gap_batches(next_offset, end_offset)))

    async def _pass_undispatched(self) -> None:
        """The remaining entries may be ones that brokers do not dispatch."""
        behind, last, end_offset = self._position, self.log.last_position, self.log.end_offset
        owner = self._owner
        end = await undispatched_end(owner.client, owner.admin, self.log.pulsar_topic, behind, last)
        if end is not None and behind == self._position:
            self._end = CompactedEnd(behind, end_offset)
            self._step_over()

    # The start of the log, as retention moves it

    def _check_start(self, missing: int) -> None:
        """Nothing is delivered until it is known whether retention has deleted ``missing``."""
        self._to_check = True
        if self._missing is None:
            self._missing = missing
            self._checking = run_once("log start", self._verify_start(missing))

    async def _verify_start(self, missing: int) -> None:
        try:
            while self._to_check:
                self._to_check = False
                await self.log.start.refresh(at_most_every_s=0)
        except (*READ_FAILURES, KafkaError) as error:  # the log may be closed
            self._fail(error)
        except Exception as defect:
            self._fail(defect)
            raise
        else:
            if self.log.start.offset > missing:
                self.failed = KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
            else:
                self._missing, self._verified = None, bool(self._entries)
        self.log.waiters.wake()

    def _watch_silence(self) -> None:
        self._silence = asyncio.get_running_loop().call_later(SILENT_S, self._silent)

    def _silent(self) -> None:
        """Nothing has arrived: retention may have deleted all that there was, or brokers do not dispatch it."""
        if self.failed is not None:
            return
        if self._silent_at == self._position and self._lacks_entries:
            if self._ledger_id is None:
                self._check_start(self.offset)
            if not self.log.compacted and (self._asking is None or self._asking.done()):
                self._asking = run_once("undispatched entries", self._pass_undispatched())
        self._silent_at = self._position
        self._watch_silence()

    @property
    def _lacks_entries(self) -> bool:
        """The log holds entries that have not arrived."""
        return not self._entries and max(self.offset, self._next_offset) < self.log.end_offset

    def _fail(self, error: Exception) -> None:
        """The reader is removed, and the next fetch gets another one."""
        log.warning("cannot read", topic=self.log.pulsar_topic, offset=self.offset, error=str(error) or repr(error))
        self.failed = error
        asyncio.get_running_loop().call_later(RETRY_S, self.log.waiters.wake)

    def on_reader_closed(self, error: PulsarError) -> None:
        # The next read finds no reader at its offset and starts a new one.
        self._reader = None
        self.failed = error
        # The same failure may occur again at once, if the data causes it.
        pause_s = 0 if error.retriable and self._messages else RETRY_S
        asyncio.get_running_loop().call_later(pause_s, self.log.waiters.wake)

    def _top_up(self) -> None:
        """Permits count messages, the budget counts bytes: converted by the average message size so far."""
        if self._reader is None:
            return
        average_bytes = max(1.0, self._bytes / max(1, self._messages))
        budget_bytes = self._owner.share_bytes - self.held_bytes
        wanted = min(MAX_PERMITS, int(budget_bytes / average_bytes), 1 + PERMITS_GROWTH * self._messages)
        if not self._entries:
            wanted = max(1, wanted)  # one entry must arrive, however large it is and however small the share
        self._window.top_up(self._reader, wanted)

    async def _open(self, begun: StartReader | None) -> None:
        try:
            if begun is not None and begun.can_go_on:
                for entry in begun.hand_over(self):  # in the same turn: what arrives later comes after them
                    self.on_entry(entry)
            else:
                self._window, self._reader = FlowWindow(), None
                self._reader = await self._open_reader()
            self._top_up()
            self._ask_compacted_end()
            self._silent_at = self._position
            self._watch_silence()
        except READ_FAILURES as error:
            self._fail(error)
        except Exception as defect:
            self._fail(defect)
            raise

    async def _open_reader(self) -> Reader:
        known, start = self._index.before(self.offset), self.log.start
        position = known[1] if known is not None and known[0] == self.offset else None
        if position is None and not (self.offset == start.offset and start.at_first_entry):
            position = await find_position(self._owner.entries, self.log.pulsar_topic, self.offset, self._index)
        if position is not None:
            self._position = position._replace(entry_id=position.entry_id - 1)
        return await self._owner.client.open_reader(
            self.log.pulsar_topic, position or "earliest", self, read_compacted=self.log.compacted
        )
