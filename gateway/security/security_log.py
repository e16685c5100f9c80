"""`~security`: a topic that every gateway reads and writes.

A gateway applies its own records when it reads them back, in the same order as all other gateways. So nobody leads.
Snapshots keep the log short: one gateway of the fleet writes a copy of the state as of one entry, after that entry. A
gateway that loads the log from there applies the copy first, then the other records after that entry (`Replay`). Once
the copy is written, the subscription `~trimming` moves to that entry, and Pulsar may delete the entries before it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing

import structlog

from gateway.background import TaskGroup
from gateway.coordination.partition.trimming_cursor import SUBSCRIPTION, TakenSnapshot, TrimmingCursor
from gateway.fan_out import sliced
from gateway.fleet.clock import lease_now_ms
from gateway.log.entries.entry_stream import read_entries
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.admin.topics import TopicPolicy
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError, RequestTimeoutError, TopicNotFoundError
from gateway.pulsar.flow_window import FlowWindow
from gateway.pulsar.position import Position
from gateway.pulsar.producer import STALLED_S, Producer
from gateway.pulsar.reader import Entry, Reader, Start
from gateway.security.large_changes import apply_in_slices, changes_to
from gateway.security.log_entries import each_record, records_of, report_unreadable
from gateway.security.records import Record, UnreadableRecordError
from gateway.security.snapshots import MAX_ENTRY_BYTES, Replay, encode_snapshot
from gateway.security.state import SecurityState
from gateway.topics.local_topics import keep_local
from protocol.pulsar.entry import EntryError, encode_message, split_messages

TOPIC = "~security"
"""Not a valid Kafka name: clients do not see the topic."""
RETENTION = {"retentionTimeInMinutes": 3 * 24 * 60, "retentionSizeInMB": -1}
"""Retention of entries that no reader needs any more."""
PERMITS = 1_000
BACKOFF_MAX_MS = 200
"""Keeps retries short: a revoked right must end within a second, once a broker serves the topic again."""
PAUSE_S = 0.5
"""Pause between two attempts to read."""
CUT_OFF_MS = 60_000
"""A gateway that has not followed the log for this time looks whether entries were deleted that it has not read. This
takes an admin request, for which it does not wait after a shorter time: revoked rights must end soon."""
SNAPSHOT_CHECK_S = 10.0
AT_ONCE = 500
"""Changes of one entry that take effect in one step. Larger entries stop all clients for too long."""
MIN_SNAPSHOT_BYTES = 1024 * 1024
SNAPSHOT_RATIO = 4
"""A snapshot is taken when this multiple of its size has been written since the last one."""
NOTHING = Position(-1, -1)

log = structlog.get_logger()


class SecurityLog:
    """Keeps a `SecurityState` up to date with the log."""

    def __init__(
        self,
        client: PulsarClient,
        admin: AdminClient,
        namespace: str,
        state: SecurityState,
        takes_snapshots: Callable[[], bool],
    ) -> None:
        """`takes_snapshots` returns true in one gateway of the fleet, or for a moment in none or two."""
        self.loaded = asyncio.Event()
        """Set when the state is complete. It stays set: a gateway that loses its connection continues with the known
        state."""
        self.is_deleted = False
        """The topic was deleted after it had been loaded, and with it what the state contains."""
        self._client = client
        self._admin = admin
        self._namespace = namespace
        self._topic = f"persistent://{namespace}/{TOPIC}"
        self._state = state
        self._takes_snapshots = takes_snapshots
        self._read_up_to = NOTHING
        self._bytes_since_snapshot = 0
        self._reader: Reader | None = None
        self._reader_closed = asyncio.Event()
        self._followed_ms = lease_now_ms()
        """When the gateway was last seen following the log."""
        self._window = FlowWindow()
        self._delayed: deque[Entry] = deque()
        """A large entry that takes effect in slices, and those behind it."""
        self._has_delayed = asyncio.Event()
        self._producer: Producer | None = None
        self._opening = asyncio.Lock()
        self._sent: dict[int, asyncio.Future[Position]] = {}
        """By sequence id of the open producer."""
        self._awaited: list[tuple[Position, asyncio.Future[None]]] = []
        """Callers that wait until an entry has been read."""
        self._trimming_cursor = TrimmingCursor(client, admin, self._topic)
        self._has_started = False
        self._tasks = TaskGroup()

    def start(self) -> None:
        """Has no effect if it has started already."""
        if self._has_started:
            return
        self._has_started = True
        self._tasks.keep_running("security log", self._follow)
        self._tasks.keep_running("large changes of the security log", self._apply_delayed)
        self._tasks.keep_running("snapshots of the security log", self._keep_taking_snapshots)

    async def close(self) -> None:
        await self._tasks.close()
        try:
            if self._reader is not None:
                await self._reader.close()
            if self._producer is not None:
                await self._producer.close()
        except PulsarError as error:
            log.info("security log not closed properly", error=str(error))

    @property
    def unread_s(self) -> float:
        """For how long the log could not be read; 0 if it is being read. Nothing is known of changes in this time."""
        return 0.0 if self._reader is not None else (lease_now_ms() - self._followed_ms) / 1_000

    # Writing

    async def append(self, records: Sequence[Record]) -> None:
        """Return when the records are in effect here. Raises PulsarError when that is not known."""
        self._check_loaded()
        try:
            async with asyncio.timeout(STALLED_S):
                messages = [encode_message(value, key=key) async for key, value in sliced(records)]
                position = await self._write(messages)
                await self._read(position)
        except TimeoutError:
            raise RequestTimeoutError(f"a change was not written to {TOPIC} in time") from None

    def _check_loaded(self) -> None:
        """Raises PulsarError."""
        if not self.loaded.is_set():
            raise RequestTimeoutError("the security log is not loaded yet")

    async def catch_up(self) -> None:
        """Return when all that was written before this call is in effect here. Raises PulsarError."""
        self._check_loaded()
        reader = self._reader
        try:
            async with asyncio.timeout(STALLED_S):
                last = await (self._client.last_position(self._topic) if reader is None else reader.last_position())
                if last.entry_id >= 0:
                    await self._read(last)
        except TimeoutError:
            raise RequestTimeoutError(f"{TOPIC} was not read in time") from None

    async def _read(self, position: Position) -> None:
        if self._read_up_to < position:
            read: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._awaited.append((position, read))
            await read

    async def _write(self, messages: Sequence[bytes]) -> Position:
        """Return the position of the last entry."""
        receipts = []
        async with self._opening:
            if self._producer is None or self._producer.closed:
                self._producer = await self._client.open_producer(self._topic, self, backoff_max_ms=BACKOFF_MAX_MS)
            # The messages of one change share an entry, so that they take effect together, unless they are too large.
            for entry in split_messages(messages, MAX_ENTRY_BYTES):
                sequence_id = self._producer.send(
                    entry, num_messages=len(entry), publish_time_ms=int(time.time() * 1000)
                )
                receipt = asyncio.get_running_loop().create_future()
                self._sent[sequence_id] = receipt
                receipts.append(receipt)
        return max(await asyncio.gather(*receipts), default=NOTHING)

    def on_receipt(self, sequence_id: int, position: Position) -> None:
        receipt = self._sent.pop(sequence_id, None)
        if receipt is not None and not receipt.done():
            receipt.set_result(position)

    def on_send_error(self, sequence_id: int, error: PulsarError) -> None:
        receipt = self._sent.pop(sequence_id, None)
        if receipt is not None and not receipt.done():
            receipt.set_exception(error)

    def on_producer_closed(self, error: PulsarError) -> None:
        for sequence_id in tuple(self._sent):
            self.on_send_error(sequence_id, error)

    # Reading

    async def _follow(self) -> None:
        while True:
            try:
                if not self.loaded.is_set() or await self._has_missed_entries():
                    await self._load()
                await self._read_on()
            except (PulsarError, TimeoutError, UnreadableRecordError) as error:
                log.warning("cannot read the security log", error=str(error) or type(error).__name__)
                self.is_deleted = self.is_deleted or (self.loaded.is_set() and _says_missing(error))
            await asyncio.sleep(PAUSE_S)

    async def _note_following(self) -> None:
        """A process that was suspended has a reader whose connection may be lost, and does not know it: then the broker
        is asked."""
        reader = self._reader
        if reader is None:
            return
        if lease_now_ms() - self._followed_ms >= CUT_OFF_MS:
            try:
                await reader.last_position()
            except PulsarError:
                return
        self._followed_ms = lease_now_ms()

    async def _has_missed_entries(self) -> bool:
        """Entries up to the last snapshot may be deleted. A record in them may have been the end of a right."""
        if lease_now_ms() - self._followed_ms < CUT_OFF_MS:
            return False
        snapshot = await self._trimming_cursor.find()
        return snapshot is not None and snapshot.position > self._read_up_to

    async def _load(self) -> None:
        await self._prepare_topic()
        snapshot = await self._trimming_cursor.find()
        behind = NOTHING if snapshot is None else snapshot.position
        last = await self._client.last_position(self._topic)
        replay = Replay(behind)
        if last.entry_id >= 0 and last > behind:
            start: Start = "earliest" if snapshot is None else behind
            async with aclosing(read_entries(self._client, self._topic, start, last)) as entries:
                async for entry in entries:
                    if entry.position > behind:
                        replay.take(records_of(entry))
                        self._bytes_since_snapshot += len(entry.payload)
        self._delayed.clear()
        await self._replace_state(list(replay.records()))
        self._has_read(max(last, behind) if last.entry_id >= 0 else behind)
        self._state.complete()
        self.loaded.set()
        log.info("security log loaded", acls=len(self._state.acls))

    async def _replace_state(self, records: list[Record]) -> None:
        if self.loaded.is_set():
            await apply_in_slices(self._state, await changes_to(self._state, records))
            return
        self._state.clear()
        async for record in sliced(records):
            self._state.apply(record)

    async def _prepare_topic(self) -> None:
        topics = self._admin.topics
        try:
            await topics.create(self._topic)
        except AdminError as error:
            if not error.conflict:
                raise
        await keep_local(self._admin, self._namespace, self._topic, [self._topic])
        try:
            await topics.create_subscription(self._topic, SUBSCRIPTION)
        except AdminError as error:
            if not error.conflict:
                raise

    async def _read_on(self) -> None:
        """Return when the reader is closed."""
        self._reader_closed.clear()
        start: Start = "earliest" if self._read_up_to == NOTHING else self._read_up_to
        self._reader = await self._client.open_reader(
            self._topic, start, self, inclusive=start == "earliest", backoff_max_ms=BACKOFF_MAX_MS
        )
        self._window = FlowWindow()
        self._window.top_up(self._reader, PERMITS)
        await self._reader_closed.wait()
        self._reader = None

    def on_entry(self, entry: Entry) -> None:
        self._window.used(entry)
        if self._delayed or entry.metadata.num_messages_in_batch > AT_ONCE:
            self._delayed.append(entry)
            self._has_delayed.set()
        elif entry.position > self._read_up_to:
            for record in Replay.changes(records_of(entry)):
                self._state.apply(record)
            self._applied(entry)
        self._permit_more()

    def _permit_more(self) -> None:
        """Delayed entries stay few: the broker sends no more while there are any."""
        if self._reader is not None and not self._delayed:
            self._window.top_up(self._reader, PERMITS)

    async def _apply_delayed(self) -> None:
        while True:
            await self._has_delayed.wait()
            self._has_delayed.clear()
            while self._delayed:
                entry = self._delayed[0]
                if entry.position > self._read_up_to:
                    await self._apply_in_slices(entry)
                if self._is_next(entry):
                    self._delayed.popleft()
            self._permit_more()

    def _is_next(self, entry: Entry) -> bool:
        """False if the log was loaded again, with what the entry contains."""
        return bool(self._delayed) and self._delayed[0] is entry

    async def _apply_in_slices(self, entry: Entry) -> None:
        values = dict[bytes, bytes | None]()
        try:
            async for key, value in sliced(Replay.changes(each_record(entry))):
                values[key] = value
        except EntryError as error:
            report_unreadable(entry, error)
            values.clear()
        await apply_in_slices(self._state, values.items(), lambda: self._is_next(entry))
        if self._is_next(entry):
            self._applied(entry)

    def _applied(self, entry: Entry) -> None:
        self._has_read(entry.position)
        self._bytes_since_snapshot += len(entry.payload)

    def _has_read(self, up_to: Position) -> None:
        """The records up to there are in effect."""
        self._read_up_to = up_to
        for position, read in self._awaited:
            if position <= up_to and not read.done():
                read.set_result(None)
        self._awaited = [each for each in self._awaited if not each[1].done()]

    def on_reader_closed(self, error: PulsarError) -> None:
        self._reader_closed.set()

    # Snapshots

    async def _keep_taking_snapshots(self) -> None:
        await self.loaded.wait()
        await self._limit_retention()
        while True:
            await self._note_following()
            await asyncio.sleep(SNAPSHOT_CHECK_S)
            size_bytes = sum(len(key) + len(value) for key, value in self._state.records())
            if self._bytes_since_snapshot < max(MIN_SNAPSHOT_BYTES, SNAPSHOT_RATIO * size_bytes):
                continue
            if not self._takes_snapshots():
                continue
            try:
                await self.take_snapshot()
            except (PulsarError, TimeoutError) as error:
                log.warning("cannot write a snapshot of the security log", error=str(error) or type(error).__name__)

    async def _limit_retention(self) -> None:
        """Without this, the namespace's retention applies, and more is kept."""
        try:
            await self._admin.topics.set_policy(self._topic, TopicPolicy.RETENTION, RETENTION)
        except PulsarError as error:
            log.warning("cannot limit the retention of the security log", error=str(error))

    async def take_snapshot(self) -> None:
        """Raises PulsarError and TimeoutError."""
        behind = self._read_up_to
        messages = await asyncio.to_thread(_snapshot, behind, self._state.records())  # ACLs may fill many megabytes
        async with asyncio.timeout(STALLED_S):
            await self._write(messages)
        self._bytes_since_snapshot = 0
        size_bytes = sum(map(len, messages))
        taken = TakenSnapshot(behind, int(time.time() * 1000), size_bytes)
        await self._trimming_cursor.move(taken)


def _snapshot(behind: Position, records: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    return [encode_message(value, key=key) for key, value in encode_snapshot(behind, records)]


def _says_missing(error: Exception) -> bool:
    """The topic does not exist, or its namespace does not."""
    return isinstance(error, TopicNotFoundError) or (isinstance(error, AdminError) and error.not_found)
