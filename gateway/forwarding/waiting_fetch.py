"""One fetch of a client that waits for several leaders' answers."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from coordinator.fleet.messages import Member
from gateway.fetching.fetch_answer import FetchAnswer, PartitionAnswer, group_by_topic
from gateway.fetching.fetch_session import FetchedPartition, FetchSession, names_all, record_if_changed
from gateway.forwarding.asked_fetches import AskedFetches
from gateway.handlers.records.awaited_fetch import outdated
from gateway.handlers.records.fetch import TOPIC_ID_VERSION
from gateway.handlers.records.fetch_bounds import max_wait_ms, min_bytes
from gateway.handlers.records.fetch_rights import while_allowed
from gateway.requests.call import Call
from gateway.requests.reply import Response
from protocol.kafka.messages.records import FetchRequest

ASKED_WAIT_MS = 5_000
"""A leader waits no longer for the first records: it does not know that the client wants other ones meanwhile."""
GRACE_S = 0.2
"""Time after max_wait for the leaders' answers. Later answers, of a blocked leader, go into the client's next fetch."""
SLACK_S = 0.005
"""max_wait counts as over when no more than this time is left."""


class Part(NamedTuple):
    fetched: FetchedPartition
    leader: Member | None
    name: str | None
    """The topic's name, if there is such a topic."""


class WaitingFetch:
    """One fetch of the client. It is answered once, through `future`."""

    def __init__(
        self, fetches: AskedFetches, call: Call[FetchRequest], parts: list[Part], session: FetchSession | None,
        leaders: int,
    ) -> None:  # fmt: skip
        """`leaders`: their number, with this gateway."""
        self._fetches = fetches
        self._call = call
        self._parts = parts
        self._session = session
        self._leaders = leaders
        self._loop = asyncio.get_running_loop()
        self._min_bytes = min_bytes(call)
        wait_ms = max_wait_ms(call, len(parts)) if self._min_bytes > 0 else 0
        self._end_s = self._loop.time() + wait_ms / 1000 - SLACK_S
        self._timers: list[asyncio.TimerHandle] = []
        self._is_over = self._end_s <= self._loop.time()
        """max_wait has expired. Not read from the clock: timers may fire a little early."""
        self._is_overdue = False
        """The leaders' answers are late, too."""
        self.future: asyncio.Future[Response] = self._loop.create_future()

    def start(self) -> None:
        self._start_timers()
        self._ask_for_rest()
        self.look()

    def _start_timers(self) -> None:
        self._timers = [
            self._loop.call_at(self._end_s, self._expire), self._loop.call_at(self._end_s + GRACE_S, self._end_grace)
        ]  # fmt: skip
        self.future.add_done_callback(self._stop_timers)

    def _stop_timers(self, _answered: asyncio.Future[Response]) -> None:
        for timer in self._timers:
            timer.cancel()

    def _expire(self) -> None:
        self._is_over = True
        self.look()

    def _end_grace(self) -> None:
        self._is_overdue = True
        self.look()

    def end_wait(self) -> None:
        """The client wants what there is now."""
        self._is_over = self._is_overdue = True
        self.look()

    def look(self) -> None:
        """Check whether the fetch is complete, because an answer has arrived or time has passed."""
        if self.future.done():
            return
        try:
            if self._is_complete():
                self.future.set_result(self._answer())
            else:
                self._ask_for_rest(again=True)
        except Exception as error:  # a defect: nothing else would answer the fetch
            self.future.set_exception(error)

    def _is_complete(self) -> bool:
        fetches = self._fetches
        if names_all(self._session, self._call.request.session_epoch) and not all(map(self._is_known, self._parts)):
            return False
        rows = [fetches.answered[key] for part in self._parts if (key := part.fetched.key) in fetches.answered]
        if any(row.error_code for row in rows):
            return True
        if sum(row.records.size_bytes for row in rows) >= max(1, self._min_bytes):
            return True
        asked = any(part.fetched.key in fetches.asked for part in self._parts)
        return self._is_over and (not asked or self._is_overdue)

    def _is_known(self, part: Part) -> bool:
        return self._fetches.is_known(part.fetched.key)

    def _left_ms(self) -> int:
        left_ms = max(0, int((self._end_s - self._loop.time()) * 1000))
        return left_ms if self._min_bytes > 1 else min(left_ms, ASKED_WAIT_MS)

    def _ask_for_rest(self, *, again: bool = False) -> None:
        rest: dict[Member | None, list[Part]] = {}
        is_over = again and self._is_over  # it would be asked as fast as it answers, while another leader is slow
        for part in self._parts:
            key = part.fetched.key
            if key not in self._fetches.asked and key not in self._fetches.answered:
                if is_over and self._is_known(part):
                    continue
                rest.setdefault(part.leader, []).append(part)
        left_ms = self._left_ms()
        for leader, parts in rest.items():
            # A leader whose offsets are not known yet must not wait: full answers contain the offsets.
            wait_ms = left_ms if all(map(self._is_known, parts)) else 0
            self._fetches.ask(self._call, leader, [part.fetched for part in parts], wait_ms, self._leaders)

    def _answer(self) -> FetchAnswer:
        request, session = self._call.request, self._session
        if session is not None and self._is_outdated():
            return outdated(session)
        rows = [
            while_allowed(self._call, part.name, row)
            for part in self._parts
            if (row := self._row(part.fetched)) is not None
        ]
        return FetchAnswer(
            session_id=self._session_id,
            responses=group_by_topic(
                [row for row in rows if record_if_changed(session, request.session_epoch, row)],
                by_id=self._call.version >= TOPIC_ID_VERSION,
            ),
        )

    def _is_outdated(self) -> bool:
        """Whether another connection has continued the session, or has closed it."""
        return self._session is not None and not self._session.is_at(self._call.request.session_epoch)

    @property
    def _session_id(self) -> int:
        return self._session.session_id if self._session is not None else 0

    def _row(self, fetched: FetchedPartition) -> PartitionAnswer | None:
        row = self._fetches.take_answer(fetched.key)
        known = self._fetches.known.get(fetched.key)
        if row is None and known is not None:
            row = PartitionAnswer(fetched, high_watermark=known.high_watermark, log_start_offset=known.log_start)
        if row is not None:
            row.fetched = fetched
        return row
