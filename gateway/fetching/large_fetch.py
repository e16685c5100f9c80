"""A delayed fetch of very many partitions: it looks at them, and makes its answer, in slices.

Logs move between two slices, and clients append, as they do between the reads of a broker's fetch: each row is right at
the moment when it is made. If the client disconnects, the work ends with the slice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gateway.busy_time import run_part
from gateway.fan_out import in_steps, sliced
from gateway.fetching.delayed_fetch import DelayedFetch, OpenLog
from gateway.fetching.fetch_answer import FetchAnswer, PartitionAnswer
from gateway.fetching.fetched_parts import FetchParams, FetchPartitionState, Findings

RespondInSlices = Callable[[list[PartitionAnswer]], Awaitable[FetchAnswer]]


class LargeFetch(DelayedFetch):
    """A fetch whose `future` always gets the answer."""

    def __init__(
        self, params: FetchParams, parts: list[FetchPartitionState], open_log: OpenLog, respond: RespondInSlices,
        hold: Callable[[int], None],
    ) -> None:  # fmt: skip
        """`hold` counts the bytes of records that the unfinished answer has in memory; negative ones are free again."""
        super().__init__(params, parts, open_log, _not_at_once)
        self._respond_in_slices = respond
        self._hold = hold
        self._changed = asyncio.Event()
        """Something has changed since the last look began."""
        self._must_end = False

    def start(self) -> None:
        self._begin_waiting()
        task = run_part(self._follow())
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def _follow(self) -> None:
        self._open_all([part async for part in sliced(self._parts) if part.is_cold])
        if not await self._is_complete():
            async for parts in in_steps(self._parts):
                for part in parts:
                    self._wait_for(part)
            while not await self._is_complete():
                await self._changed.wait()
        answer = await self._made()
        if not self.future.done():
            self.future.set_result(answer)

    async def _made(self) -> FetchAnswer:
        """The answer. While it is being made, other fetches take into account the memory that it holds."""
        rows: list[PartitionAnswer] = []
        held_bytes = 0
        try:
            async for row in sliced(self._rows()):
                self._hold(row.records.size_bytes)
                held_bytes += row.records.size_bytes
                rows.append(row)
            return await self._respond_in_slices(rows)
        finally:
            self._hold(-held_bytes)

    async def _is_complete(self) -> bool:
        """Whether to answer. What changes during the look is found by the next one."""
        self._changed.clear()
        findings, self._pending = Findings(), False
        async for parts in in_steps(self._parts):
            self._look_at(parts, findings)
        is_over = self._overdue or self._params.max_wait_ms <= 0
        return self._must_end or self._is_enough(findings) or (is_over and not self._pending)

    def log_moved(self) -> None:
        self._changed.set()

    def _look_again(self) -> None:
        self._changed.set()

    def _finish(self) -> None:
        self._must_end = True
        self._changed.set()


def _not_at_once(rows: list[PartitionAnswer]) -> FetchAnswer:
    raise AssertionError("a large fetch makes its answer in slices")
