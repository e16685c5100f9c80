"""Finds and writes the flag of one log that has transactions (`bounds.transaction_flag`)."""

from __future__ import annotations

from collections.abc import Callable

from gateway.log.bounds.transaction_flag import flagged_position, write_flag, write_none_up_to
from gateway.log.resources import Resources
from gateway.log.shared_run import SharedRun
from gateway.pulsar.position import Position

NOTED_EVERY = 10_000
"""So many entries another gateway may have to read in vain: it takes about as long as to note that it need not."""


class Flag:
    __slots__ = (
        "_last_before", "_none_up_to", "_noting", "_on_found", "_passed", "_resources", "_topic", "_writing", "notes",
        "position",
    )  # fmt: skip

    def __init__(
        self, resources: Resources, topic: str, last_before: Callable[[], Position], on_found: Callable[[], None]
    ) -> None:
        """``last_before`` returns the last entry before any transaction. ``on_found`` is called once."""
        self.position: Position | None = None
        """There are no transactions up to this entry. None if the log has none, as far as this gateway knows."""
        self._resources = resources
        self._topic = topic
        self._last_before = last_before
        self._on_found = on_found
        self._writing = SharedRun(self._find_or_write)
        self.notes = False
        """It is noted how far the log was read in vain, until there is a transaction."""
        self._none_up_to: Position | None = None
        self._passed = 0
        self._noting = SharedRun(self._note)

    def found(self, position: Position | None) -> None:
        """Take the position that was read; None if there is no flag."""
        if position is None:
            return
        self.notes = False
        is_new, self.position = self.position is None, position
        if is_new:
            self._on_found()

    async def look(self) -> None:
        """Read it if it is not known. Raises PulsarError."""
        if self.position is None:
            self.found(await self._read())

    async def ensure(self) -> None:
        """Wait until it is written. Raises PulsarError."""
        if self.position is None:
            await self._writing.wait()

    def start_writing(self) -> None:
        """Write it if it is not known. Nobody waits for that."""
        self.notes = False
        if self.position is None:
            self._writing.start()

    def note_none(self, last: Position) -> None:
        """All was read up to this entry, and there are none: no other gateway need read it. Nobody waits for that."""
        if self.notes:
            self._none_up_to = last
            self._noting.start()

    def passed(self, entry: Position) -> None:
        """The same, for an entry that follows. Few of them are noted."""
        self._passed += 1
        if self._passed % NOTED_EVERY == 0:
            self.note_none(entry)

    def close(self) -> None:
        self._writing.cancel()
        self._noting.cancel()

    async def _find_or_write(self) -> None:
        last = self._last_before()
        position = await self._read()
        if position is None:
            await write_flag(self._resources.admin, self._topic, last)
        self.found(position or last)

    async def _note(self) -> None:
        if self.notes and self._none_up_to is not None:
            await write_none_up_to(self._resources.admin, self._topic, self._none_up_to)

    async def _read(self) -> Position | None:
        return flagged_position(await self._resources.admin.topics.managed_ledger_properties(self._topic))
