"""Reads what others append to a log, when somebody has to know: a waiting consumer, or a receipt behind a gap.

What this gateway writes itself needs no reading. So the follower gives the broker permits only while it is wanted, and
starts anew at the log's end when too much of our own would come back.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import structlog

from gateway.background import run_once
from gateway.config import Limits
from gateway.log.shared_run import outcome_of
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ClientClosedError, PulsarError
from gateway.pulsar.flow_window import FlowWindow
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry, Reader

PERMITS = 1_000
FIRST_MESSAGE_BYTES = 64 * 1024
"""Messages are taken to be that large before any has come."""
MAX_ECHO_ENTRIES = 32
"""So many entries of our own are read back and dropped; past that a new reader is cheaper."""
RETRY_MS = 200

log = structlog.get_logger()


class FollowedLog(Protocol):
    """The partition log, as its follower knows it."""

    pulsar_topic: str
    client: PulsarClient
    limits: Limits

    @property
    def converting(self) -> bool: ...

    def last_position(self) -> Position: ...

    def wants_entries(self) -> bool: ...

    def entry_read(self, entry: Entry) -> None: ...

    def reader_failed(self, error: PulsarError) -> None: ...


class TailFollower:
    """At most one reader, standing at or before the log's end. An EntryListener."""

    def __init__(self, log: FollowedLog) -> None:
        self._log = log
        self._reader: Reader | None = None
        self._opening: asyncio.Task[None] | None = None
        self._window = FlowWindow()
        self._message_bytes = FIRST_MESSAGE_BYTES
        self._echo_entries = 0
        self._closed = False

    def own_entry_appended(self) -> None:
        """The log's end moved without this reader."""
        self._echo_entries += 1

    def follow(self) -> None:
        """Entries are wanted: see that the broker sends them."""
        if self._closed or self._opening is not None:
            return
        if self._reader is not None and (self._reader.closed or self._echo_entries > MAX_ECHO_ENTRIES):
            self._drop()
        if self._reader is None:
            self._opening = run_once("open tail reader", self._open())
        else:
            self._top_up(self._reader)

    def start_anew(self) -> None:
        """Entries that are there do not come: for the broker, the reader may have ended without a word."""
        self._drop()
        if self._log.wants_entries():
            self.follow()

    async def last_position(self) -> Position:
        """The last entry of the topic, asked of the broker. Raises PulsarError."""
        if self._closed:
            raise ClientClosedError("the log is closed")
        if self._reader is None or self._reader.closed:
            self._reader = None
            if self._opening is None:
                self._opening = run_once("open tail reader", self._open())
            await outcome_of(self._opening)
        if self._reader is None:
            return await self._log.client.last_position(self._log.pulsar_topic)
        return await self._reader.last_position()

    async def close(self) -> None:
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
        self._drop()

    def on_entry(self, entry: Entry) -> None:
        self._window.used(entry)
        size_bytes = max(1, len(entry.payload) // entry.permits)
        self._message_bytes = max(size_bytes, (7 * self._message_bytes + size_bytes) // 8)
        self._echo_entries = max(0, self._echo_entries - 1)
        self._log.entry_read(entry)
        if self._reader is not None and self._log.wants_entries():
            self._top_up(self._reader)

    def on_reader_closed(self, error: PulsarError) -> None:
        self._reader = None
        self._log.reader_failed(error)
        if self._log.wants_entries():
            self.follow()

    def _top_up(self, reader: Reader) -> None:
        """What is on its way fits the budget of a reader, and nothing more comes while entries wait for a thread."""
        permits = max(1, min(PERMITS, self._log.limits.reader_budget_bytes // self._message_bytes))
        if not self._log.converting:
            self._window.top_up(reader, permits)

    def _drop(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and not reader.closed:
            run_once("close reader", reader.close())

    async def _open(self) -> None:
        try:
            last = self._log.last_position()
            self._echo_entries = 0
            reader = await self._log.client.open_reader(self._log.pulsar_topic, last, self, inclusive=False)
        except PulsarError as error:
            self._opening = None
            log.warning("cannot follow", topic=self._log.pulsar_topic, error=str(error))
            if error.retriable and not self._closed:
                asyncio.get_running_loop().call_later(RETRY_MS / 1000, self._retry)
            else:
                self._log.reader_failed(error)
            return
        self._opening = None
        self._reader, self._window = reader, FlowWindow()
        if self._log.wants_entries():
            self._top_up(reader)

    def _retry(self) -> None:
        if self._log.wants_entries():
            self.follow()
