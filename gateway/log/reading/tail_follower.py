"""Reads entries of other writers when they are needed: for a consumer that waits, or for a receipt after a gap.

Entries of this gateway need no reading. So the follower gives the broker permits only while entries are wanted, and
opens a new reader at the log's end when too many of its own entries would be sent back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import structlog

from gateway.background import run_once
from gateway.log.bounds.end_target import EndTarget
from gateway.log.bounds.log_end import LogEnd
from gateway.log.entries.decoding import OrderedConversions
from gateway.log.entries.entry_stream import NOTHING
from gateway.log.entries.log_entry import LogEntry, from_pulsar
from gateway.log.reading.waiters import QUIET_S, Waiters
from gateway.log.resources import Resources
from gateway.pulsar.errors import ClientClosedError, ListenerError, PulsarError
from gateway.pulsar.flow_window import FlowWindow
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry, Reader

PERMITS = 1_000
FIRST_MESSAGE_BYTES = 64 * 1024
"""The assumed message size before any message has arrived."""
MAX_ECHO_ENTRIES = 32
"""Up to this number of own entries are read back and dropped; beyond it, a new reader is cheaper."""
RETRY_MS = 200

log = structlog.get_logger()


class TailFollower:
    """Has at most one reader, at or before the log's end. An EntryListener."""

    def __init__(
        self,
        pulsar_topic: str,
        resources: Resources,
        end: LogEnd[Any],
        target: EndTarget,
        waiters: Waiters,
        on_entry: Callable[[Entry, LogEntry], bool],
        on_failed: Callable[[], object],
    ) -> None:
        """``on_entry`` moves the log's end to an entry that was read; it returns True if this gateway wrote the entry.

        ``on_failed`` is called when nothing can be read any more.
        """
        self.pulsar_topic = pulsar_topic
        self.end = end
        self._resources = resources
        self._target = target
        self._waiters = waiters
        self._on_entry = on_entry
        self._on_failed = on_failed
        self._conversions = OrderedConversions(
            resources.decoding, self._convert, self._converted, self._conversion_failed, wanted=self._is_news,
            drained=self.follow_if_wanted,
        )  # fmt: skip
        self._reader: Reader | None = None
        self._opening: asyncio.Task[None] | None = None
        self._opened_at = 0.0
        self._window = FlowWindow()
        self._message_bytes = FIRST_MESSAGE_BYTES
        self._echo_entries = 0
        self._own_at = 0.0
        """When this gateway last wrote an entry."""
        self._without_offset = NOTHING
        """The last entry that was read but has no offset: it does not move the log's end."""
        self._stopped = False

    @property
    def known_up_to(self) -> Position:
        """Up to here the log is known."""
        return max(self.end.last, self._without_offset)

    # When the follower reads

    @property
    def _wanted(self) -> bool:
        """Whether the broker should send entries."""
        if self._stopped:
            return False
        if self.end.unresolved or self._target.position is not None:
            return True
        return self._waiters.at_end and time.monotonic() - self._own_at >= QUIET_S

    def own_entry_written(self, now_s: float, *, was_read: bool) -> None:
        """An own entry was written; unless it was read here before, the log's end moved without this reader."""
        self._own_at = now_s
        if not was_read:
            self._echo_entries += 1

    def follow_if_wanted(self) -> bool:
        """Returns whether entries are wanted."""
        wanted = self._wanted
        if wanted:
            self.follow()
        return wanted

    def follow(self) -> None:
        """Entries are wanted: ensure that the broker sends them."""
        if self._stopped or self._opening is not None:
            return
        if self._reader is not None and (self._reader.closed or self._echo_entries > MAX_ECHO_ENTRIES):
            self._drop()
        if self._reader is None:
            self._opening = run_once("open tail reader", self._open())
        else:
            self._top_up(self._reader)

    def start_anew(self) -> None:
        """Open a new reader: entries do not arrive, perhaps because the broker closed the reader without notice."""
        self._drop()
        self.follow_if_wanted()

    async def last_position(self) -> Position:
        """The last entry of the topic, as the broker reports it. Raises PulsarError."""
        self._check_open()
        if self._reader is None or self._reader.closed:
            self._reader = None
            if self._opening is None:
                self._opening = run_once("open tail reader", self._open())
            await asyncio.wait([self._opening])
            self._check_open()
        if self._reader is None:
            last = await self._resources.client.last_position(self.pulsar_topic)
        else:
            last = await self._reader.last_position()
        self._check_open()  # nothing is read any more up to this entry
        return last

    def _check_open(self) -> None:
        if self._stopped:
            raise ClientClosedError("the log is closed")

    def stop(self) -> None:
        """From now on no entries are wanted."""
        self._stopped = True

    def close(self) -> None:
        self.stop()
        self._conversions.close()
        if self._opening is not None:
            self._opening.cancel()
        self._drop()

    # Entries

    def on_entry(self, entry: Entry) -> None:
        self._window.used(entry)
        size_bytes = max(1, len(entry.payload) // entry.permits)
        self._message_bytes = max(size_bytes, (7 * self._message_bytes + size_bytes) // 8)
        self._echo_entries = max(0, self._echo_entries - 1)
        self._resources.metrics.entries_read.inc()
        self._conversions.take(entry)
        if self._reader is not None and self._wanted:
            self._top_up(self._reader)

    def _is_news(self, entry: Entry) -> bool:
        self._target.known_up_to(min(entry.position, self.end.last))
        return entry.position > self.end.last

    def _convert(self, entry: Entry) -> LogEntry | None:
        return from_pulsar(entry, max_bytes=self._resources.limits.max_decompressed_bytes)

    def _converted(self, entry: Entry, read: LogEntry | None) -> None:
        if read is None:
            self._without_offset = max(self._without_offset, entry.position)
        elif entry.position > self.end.last and self._on_entry(entry, read):
            self._own_at = time.monotonic()
        self._target.known_up_to(max(entry.position, self.end.last))

    def _conversion_failed(self, error: Exception) -> None:
        self._failed(ListenerError(repr(error)))

    def _failed(self, error: PulsarError) -> None:
        if not error.retriable:
            self._target.fail(error)
            self._on_failed()

    # The reader

    def on_reader_closed(self, error: PulsarError) -> None:
        self._reader = None
        self._failed(error)
        if time.monotonic() - self._opened_at < RETRY_MS / 1000:  # the same may end the next reader, too
            self._retry_later()
        else:
            self.follow_if_wanted()

    def _retry_later(self) -> None:
        asyncio.get_running_loop().call_later(RETRY_MS / 1000, self.follow_if_wanted)

    def _top_up(self, reader: Reader) -> None:
        """Entries in flight fit a reader's budget, and no more are requested while entries wait for a thread."""
        permits = max(1, min(PERMITS, self._resources.limits.reader_budget_bytes // self._message_bytes))
        if not self._conversions.busy:
            self._window.top_up(reader, permits)

    def _drop(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and not reader.closed:
            run_once("close reader", reader.close())

    async def _open(self) -> None:
        try:
            self._echo_entries = 0
            reader = await self._resources.client.open_reader(self.pulsar_topic, self.end.last, self, inclusive=False)
        except PulsarError as error:
            self._opening = None
            log.warning("cannot open a reader at the end of a log", topic=self.pulsar_topic, error=str(error))
            if error.retriable and not self._stopped:
                self._retry_later()
            else:
                self._failed(error)
            return
        except Exception as defect:  # in the gateway; the next log may have another outcome
            self._opening = None
            self._failed(ListenerError(repr(defect)))
            raise
        self._opening = None
        self._reader, self._window, self._opened_at = reader, FlowWindow(), time.monotonic()
        if self._wanted:
            self._top_up(reader)
