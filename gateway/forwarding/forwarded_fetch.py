"""A fetch of partitions that several gateways lead: each gets a request for its own, and none delays the others' data.

The client's fetch is answered when the gateways together have returned enough, as a fetch from a single broker would
be. The requests to the other gateways stay in flight, and their later answers go into the client's next fetch. The
fetch session is kept here; the requests to the gateways have no session.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterable
from copy import copy
from typing import NamedTuple

from coordinator.fleet.messages import Member
from gateway.background import run_once
from gateway.fan_out import sliced
from gateway.fetching.delayed_fetch import MAX_WAIT_MS
from gateway.fetching.fetch_answer import NO_RECORDS, FetchAnswer, PartitionAnswer, group_by_topic
from gateway.fetching.fetch_session import (
    FINAL_EPOCH,
    FetchedPartition,
    FetchSession,
    Key,
    names_all,
    record_if_changed,
)
from gateway.handlers.records.fetch import (
    ISOLATION_LEVELS,
    TOPIC_ID_VERSION,
    fetch,
    may_read,
    min_bytes,
    while_allowed,
    with_requested,
)
from gateway.pulsar.errors import PulsarError
from gateway.requests.call import Call
from gateway.requests.cluster import Unread
from gateway.requests.reply import Reply, Response
from gateway.requests.routes import Leaders
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import FetchRequest, FetchResponse

GRACE_S = 0.2
"""Time after max_wait for the leaders' answers. Later answers, of a blocked leader, go into the client's next fetch."""
SLACK_S = 0.005
"""max_wait counts as over when no more than this time is left."""

_PartitionData = FetchResponse.FetchableTopicResponse.PartitionData
_Topic = FetchRequest.FetchTopic
_Partition = _Topic.FetchPartition

Ask = Callable[[Call, Member | None], Coroutine[object, object, Response]]
"""Sends a request to a leader, or to this gateway (None), and returns the answer."""


class _Part(NamedTuple):
    fetched: FetchedPartition
    leader: Member | None
    name: str | None
    """The topic's name, if there is such a topic."""


class _Offsets(NamedTuple):
    """The offsets of a log, as its leader last returned them."""

    high_watermark: int
    log_start: int


class ForwardedFetches:
    """One client's fetches: what leaders were asked for, and answers of theirs that the client has not received yet."""

    def __init__(self, ask: Ask, unread: Unread) -> None:
        """Answers that were not handed out yet count as ``unread``: above that budget, leaders are asked for less."""
        self._unread = unread
        self.asked: dict[Key, int] = {}
        """The requested offset of each partition, while its answer is in flight."""
        self.answered: dict[Key, PartitionAnswer] = {}
        """Answers with records, or an error, for the offset of their `fetched`."""
        self.known: dict[Key, _Offsets] = {}
        self._ask = ask
        self._waiting: set[_ForwardedFetch] = set()
        self._asking: dict[asyncio.Task[None], list[FetchedPartition]] = {}
        """The requests in flight, and their partitions."""

    def run(self, call: Call[FetchRequest], leaders: Leaders) -> Reply:
        if call.request.isolation_level not in ISOLATION_LEVELS:
            return call.api.handle(call)
        return with_requested(
            call, lambda fetched, session: Reply.after(self._start(call, leaders, fetched, session))
        )

    async def _start(
        self, call: Call[FetchRequest], leaders: Leaders, fetched: list[FetchedPartition], session: FetchSession | None
    ) -> Reply:
        while self._waiting:  # one fetch at a time, as in Kafka
            await asyncio.wait([waiting.future for waiting in self._waiting])
        parts = []
        async for each in sliced(fetched):
            name = await _name(call, each.topic)
            # This gateway itself refuses what the client may not read.
            is_asked = name is not None and may_read(call, name)
            parts.append(_Part(each, leaders.of_partition(name or "", each.partition) if is_asked else None, name))
        self._forget_all_but(fetched)
        if all(part.leader is None for part in parts):
            return fetch(call, fetched, session)
        waiting = _ForwardedFetch(self, call, parts, session)
        self._waiting.add(waiting)
        waiting.future.add_done_callback(lambda _: self._waiting.discard(waiting))
        waiting.start()
        return Reply.later(waiting.future)

    def _forget_all_but(self, fetched: Iterable[FetchedPartition]) -> None:
        """Forget partitions that the client no longer fetches, or fetches from another offset: that is outdated."""
        offsets = {each.key: each.offset for each in fetched}
        self.asked = {key: offset for key, offset in self.asked.items() if offsets.get(key) == offset}
        for key in [key for key, row in self.answered.items() if offsets.get(key) != row.fetched.offset]:
            self.hand_out(key)
        self.known = {key: known for key, known in self.known.items() if key in offsets}
        for task, parts in self._asking.items():
            if not any(self.asked.get(part.key) == part.offset for part in parts):
                task.cancel()  # otherwise its leader may wait for minutes, and the client may send ever more

    def close(self) -> None:
        """Give back the memory of the leaders' answers at once, not when the garbage collector runs."""
        self._forget_all_but(())

    def ask(
        self, call: Call[FetchRequest], leader: Member | None, parts: list[FetchedPartition], wait_ms: int, share: int
    ) -> None:
        """Ask a leader for partitions; with `wait_ms` 0, for what it has now. `share` leaders share max_bytes."""
        asked = [copy(part) for part in parts]  # those of a session change with the client's next fetch
        self.asked.update({part.key: part.offset for part in asked})
        mine = call.asking(_request(call, asked, wait_ms, share))
        task = run_once("forwarded fetch", self._take(mine, leader, asked))
        self._asking[task] = asked
        task.add_done_callback(self._taken)

    def _taken(self, task: asyncio.Task[None]) -> None:
        self._asking.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:  # a defect: the waiting fetches fail
            for waiting in self._waiting:
                if not waiting.future.done():
                    waiting.future.set_exception(error)

    async def _take(self, call: Call[FetchRequest], leader: Member | None, parts: list[FetchedPartition]) -> None:
        response = await self._ask(call, leader)
        assert isinstance(response, FetchResponse)
        rows = _rows(response, by_id=call.version >= TOPIC_ID_VERSION)
        for part in parts:
            if self.asked.get(part.key) == part.offset:
                del self.asked[part.key]
                self._answer(_answer(part, rows.get(part.key)))
        for waiting in tuple(self._waiting):
            waiting.look()

    def _answer(self, row: PartitionAnswer) -> None:
        if row.error_code or row.records.size_bytes:
            self.hand_out(row.fetched.key)
            self.answered[row.fetched.key] = row
            self._unread.size_bytes += row.records.size_bytes
        if not row.error_code:
            self.known[row.fetched.key] = _Offsets(row.high_watermark, row.log_start_offset)

    def hand_out(self, key: Key) -> PartitionAnswer | None:
        """Remove an answer: the client gets it now, or no longer needs it."""
        row = self.answered.pop(key, None)
        if row is not None:
            self._unread.size_bytes -= row.records.size_bytes
        return row


class _ForwardedFetch:
    """One fetch of the client. It is answered once, through `future`."""

    def __init__(
        self, fetches: ForwardedFetches, call: Call[FetchRequest], parts: list[_Part], session: FetchSession | None
    ) -> None:
        self._fetches = fetches
        self._call = call
        self._parts = parts
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._min_bytes = min_bytes(call)
        wait_ms = min(call.request.max_wait_ms, MAX_WAIT_MS) if self._min_bytes > 0 else 0
        self._end_s = self._loop.time() + wait_ms / 1000 - SLACK_S
        self._timers: list[asyncio.TimerHandle] = []
        self._is_over = self._end_s <= self._loop.time()
        """max_wait has expired. Not read from the clock: timers may fire a little early."""
        self._is_overdue = False
        """The leaders' answers are late, too."""
        self.future: asyncio.Future[Response] = self._loop.create_future()

    def start(self) -> None:
        self._timers = [
            self._loop.call_at(self._end_s, self._expire), self._loop.call_at(self._end_s + GRACE_S, self._end_grace)
        ]  # fmt: skip
        self.future.add_done_callback(self._stop_timers)
        self._ask_for_rest()
        self.look()

    def _stop_timers(self, _answered: asyncio.Future[Response]) -> None:
        for timer in self._timers:
            timer.cancel()

    def _expire(self) -> None:
        self._is_over = True
        self.look()

    def _end_grace(self) -> None:
        self._is_overdue = True
        self.look()

    def look(self) -> None:
        """Check whether the fetch is complete, because an answer has arrived or time has passed."""
        if self.future.done():
            return
        if self._is_complete():
            self.future.set_result(self._answer())
        else:
            self._ask_for_rest()

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

    def _is_known(self, part: _Part) -> bool:
        return part.fetched.key in self._fetches.known or part.fetched.key in self._fetches.answered

    def _ask_for_rest(self) -> None:
        rest: dict[Member | None, list[_Part]] = {}
        for part in self._parts:
            key = part.fetched.key
            if key not in self._fetches.asked and key not in self._fetches.answered:
                rest.setdefault(part.leader, []).append(part)
        left_ms = max(0, int((self._end_s - self._loop.time()) * 1000))
        share = len({part.leader for part in self._parts})
        for leader, parts in rest.items():
            # A leader whose offsets are not known yet must not wait: full answers contain the offsets.
            wait_ms = left_ms if all(map(self._is_known, parts)) else 0
            self._fetches.ask(self._call, leader, [part.fetched for part in parts], wait_ms, share)

    def _answer(self) -> FetchAnswer:
        request, session = self._call.request, self._session
        if session is not None and not session.is_at(request.session_epoch):
            return FetchAnswer(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.session_id)
        rows = [
            while_allowed(self._call, part.name, row)
            for part in self._parts
            if (row := self._row(part.fetched)) is not None
        ]
        return FetchAnswer(
            session_id=session.session_id if session is not None else 0,
            responses=group_by_topic(
                [row for row in rows if record_if_changed(session, request.session_epoch, row)],
                by_id=self._call.version >= TOPIC_ID_VERSION,
            ),
        )

    def _row(self, fetched: FetchedPartition) -> PartitionAnswer | None:
        row = self._fetches.hand_out(fetched.key)
        known = self._fetches.known.get(fetched.key)
        if row is None and known is not None:
            row = PartitionAnswer(fetched, high_watermark=known.high_watermark, log_start_offset=known.log_start)
        if row is not None:
            row.fetched = fetched
        return row


async def _name(call: Call[FetchRequest], topic: str | uuid.UUID | None) -> str | None:
    """None if there is no such topic; this gateway's handler then gives the answer."""
    if not isinstance(topic, uuid.UUID):
        return topic
    name = call.cluster.topics.cached_name(topic)
    if name is None:
        try:
            found = await call.cluster.topics.get_by_id(topic)
        except (PulsarError, TimeoutError):
            return None
        name = None if found is None else found.name
    return name


def _request(call: Call[FetchRequest], parts: list[FetchedPartition], wait_ms: int, share: int) -> FetchRequest:
    """A request without a session. While clients have too many unread answers, it is for one batch."""
    asked, unread = call.request, call.cluster.unread
    max_bytes = 1 if unread.size_bytes > call.cluster.config.limits.fetch_budget_bytes else asked.max_bytes
    topics: dict[str | uuid.UUID | None, _Topic] = {}
    for part in parts:
        row = _Partition(
            partition=part.partition, current_leader_epoch=part.leader_epoch, fetch_offset=part.offset,
            last_fetched_epoch=part.fetched_epoch, partition_max_bytes=part.max_bytes,
        )  # fmt: skip
        named = _Topic(topic_id=part.topic) if isinstance(part.topic, uuid.UUID) else _Topic(topic=part.topic or "")
        topics.setdefault(part.topic, named).partitions.append(row)
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=asked.min_bytes, max_bytes=max(1, max_bytes // share),
        isolation_level=asked.isolation_level, session_id=0, session_epoch=FINAL_EPOCH, rack_id=asked.rack_id,
        topics=list(topics.values()), forgotten_topics_data=[],
    )  # fmt: skip


def _rows(response: FetchResponse, *, by_id: bool) -> dict[Key, _PartitionData]:
    return {
        (topic.topic_id if by_id else topic.topic, row.partition_index): row
        for topic in response.responses
        for row in topic.partitions
    }


def _answer(fetched: FetchedPartition, row: _PartitionData | None) -> PartitionAnswer:
    """A leader's row, without its fields about other gateways."""
    if row is None:
        return PartitionAnswer(fetched, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    answer = PartitionAnswer(
        fetched, error_code=row.error_code, high_watermark=row.high_watermark,
        log_start_offset=row.log_start_offset, records=row.records or NO_RECORDS,
    )  # fmt: skip
    answer.aborted_transactions = row.aborted_transactions
    return answer
