"""A fetch of very many partitions that several gateways lead: it looks at them, asks, and answers in slices.

Answers arrive between two slices, and the next look finds them. The leaders are those of the moment when the fetch
began, as in a small one that waits: one that has changed refuses its partitions, and the client tries again. If the
client disconnects, the work ends with the slice.
"""

from __future__ import annotations

import asyncio

from coordinator.fleet.messages import Member
from gateway.busy_time import run_part
from gateway.fan_out import in_steps, sliced
from gateway.fetching.fetch_answer import FetchAnswer, TopicAnswer, add_rows
from gateway.fetching.fetch_session import FetchedPartition, FetchSession, names_all, record_if_changed
from gateway.forwarding.asked_fetches import AskedFetches
from gateway.forwarding.waiting_fetch import Part, WaitingFetch
from gateway.handlers.records.awaited_fetch import outdated
from gateway.handlers.records.fetch import TOPIC_ID_VERSION
from gateway.handlers.records.fetch_rights import while_allowed
from gateway.requests.call import Call
from gateway.requests.reply import Response
from protocol.kafka.messages.records import FetchRequest


class LargeWaitingFetch(WaitingFetch):
    def __init__(
        self, fetches: AskedFetches, call: Call[FetchRequest], parts: list[Part], session: FetchSession | None,
        leaders: int,
    ) -> None:  # fmt: skip
        super().__init__(fetches, call, parts, session, leaders)
        self._changed = asyncio.Event()
        """Something has changed since the last look began."""
        self._following: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._start_timers()
        self._following = run_part(self._follow())
        self._following.add_done_callback(self._followed)
        self.future.add_done_callback(self._end)

    def _end(self, _answered: asyncio.Future[Response]) -> None:
        if self._following is not None:
            self._following.cancel()

    def _followed(self, following: asyncio.Task[None]) -> None:
        error = None if following.cancelled() else following.exception()
        if error is not None and not self.future.done():
            self.future.set_exception(error)

    def look(self) -> None:
        self._changed.set()

    async def _follow(self) -> None:
        await self._ask_for_many()
        while not await self._is_complete_now():
            await self._ask_for_many(again=True)
            await self._changed.wait()
        answer = await self._made()
        if not self.future.done():
            self.future.set_result(answer)

    async def _is_complete_now(self) -> bool:
        """As `_is_complete`. What changes during the look is found by the next one."""
        self._changed.clear()
        fetches, size_bytes, asked, known, refused = self._fetches, 0, False, True, False
        is_over, is_overdue = self._is_over, self._is_overdue
        async for parts in in_steps(self._parts):
            for part in parts:
                key = part.fetched.key
                row = fetches.answered.get(key)
                if row is not None:
                    size_bytes += row.records.size_bytes
                    refused = refused or bool(row.error_code)
                asked = asked or key in fetches.asked
                known = known and (row is not None or key in fetches.known)
        if not known and names_all(self._session, self._call.request.session_epoch):
            return False
        if refused or size_bytes >= max(1, self._min_bytes):
            return True
        return is_over and (not asked or is_overdue)

    async def _ask_for_many(self, *, again: bool = False) -> None:
        rest: dict[str | None, tuple[Member | None, list[FetchedPartition]]] = {}
        unknown: set[str | None] = set()
        is_over = again and self._is_over
        async for parts in in_steps(self._parts):
            for fetched, leader, _ in parts:
                key = fetched.key
                if key in self._fetches.asked or key in self._fetches.answered:
                    continue
                if is_over and self._fetches.is_known(key):
                    continue
                incarnation = None if leader is None else leader.incarnation
                rest.setdefault(incarnation, (leader, []))[1].append(fetched)
                if not self._fetches.is_known(key):
                    unknown.add(incarnation)
        for incarnation, (leader, asked) in rest.items():
            # A leader whose offsets are not known yet must not wait: full answers contain the offsets.
            left_ms = _no_wait if incarnation in unknown else self._left_ms
            await self._fetches.ask_for_many(self._call, leader, asked, left_ms, self._leaders)

    async def _made(self) -> FetchAnswer:
        """The answer. From the first slice on, the session counts it as given, also if it moves on meanwhile.

        Until it is complete, its records still count as unread.
        """
        if self._session is not None:
            if self._is_outdated():
                return outdated(self._session)
            self._session.in_flight = None
        request, unread = self._call.request, self._fetches.unread
        topics: list[TopicAnswer] = []
        by_id, held_bytes = self._call.version >= TOPIC_ID_VERSION, 0
        try:
            async for part in sliced(self._parts):
                row = self._row(part.fetched)
                if row is None:
                    continue
                row = while_allowed(self._call, part.name, row)
                unread.size_bytes += row.records.size_bytes
                held_bytes += row.records.size_bytes
                if record_if_changed(self._session, request.session_epoch, row):
                    add_rows(topics, [row], by_id=by_id)
        finally:
            unread.size_bytes -= held_bytes
        return FetchAnswer(session_id=self._session_id, responses=topics)


def _no_wait() -> int:
    return 0
