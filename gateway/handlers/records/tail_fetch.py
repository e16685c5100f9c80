"""Fetches from the ends of open logs, which are in memory. Without enough data, a fetch waits for the logs to grow.

There are no objects for the rows of requests and responses. If anything unusual happens while a fetch waits, it
continues on the general path (`fetch`).
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Collection, Iterable
from copy import copy
from typing import NamedTuple

from gateway.fetching.fetch_session import FetchedPartition, FetchSession
from gateway.fetching.fetch_waits import WAITING_BYTES
from gateway.fetching.fetched_parts import FetchPartitionState
from gateway.handlers.place import Place
from gateway.handlers.records.fetch import READ_COMMITTED, delay
from gateway.handlers.records.fetch_bounds import is_room_for_answers, max_bytes, max_wait_ms, min_bytes
from gateway.log.entries.log_entry import Slice
from gateway.log.partition_log import PartitionLog
from gateway.requests.brokers import RECORDS_EPOCH
from gateway.requests.call import Call
from gateway.requests.context import RequestContext
from gateway.requests.policy import ALL_ALLOWED, Policy
from gateway.requests.reply import Reply
from gateway.topics.topic import Topic
from protocol.kafka.acl import AclOperation, ResourceType
from protocol.kafka.buffers import Buffer
from protocol.kafka.codec import decode_request, is_flexible, parse_header
from protocol.kafka.handwritten.fetch_rows import FetchedRow, fetch_rows
from protocol.kafka.messages.records import FetchRequest

MAX_TAILS = 1_000
"""The approximate number of partitions that are kept for one connection."""
FEW = 16
"""A fetch of so few partitions may wait without being counted: it holds less than its connection."""
CORRELATION_ID = slice(4, 8)
"""The position of the correlation id in a request."""
NOTHING = Slice([], 0, 0)


class NotAtTail(Exception):
    """The fetch needs the general path."""


class _TailTopic:
    """A topic as it was when its first log was found."""

    __slots__ = ("allowed_at", "allowing", "checked", "encoded", "name", "topic")

    def __init__(self, name: str, encoded: bytes, topic: Topic) -> None:
        self.name = name
        self.encoded = encoded
        """Its id or name in responses."""
        self.topic = topic
        self.checked = 0
        """The number of the last `look` that checked it."""
        self.allowing: Policy | None = None
        """The policy that lets the client read it, in its version `allowed_at`."""
        self.allowed_at = 0

    def check_right(self, policy: Policy) -> None:
        """The client may read it. Raises NotAtTail."""
        if policy is self.allowing and policy.version() == self.allowed_at:
            return
        version = policy.version()
        if not policy.allows(AclOperation.READ, ResourceType.TOPIC, self.name):
            raise NotAtTail
        self.allowing, self.allowed_at = policy, version


class _Tail(NamedTuple):
    topic: _TailTopic
    log: PartitionLog


class _Found(NamedTuple):
    """A partition of a response, and the offsets of its log."""

    fetched: FetchedPartition
    tail: _Tail
    end: int
    start: int


class Tails:
    """The logs of one connection's frequent fetches, and other values that all these fetches share."""

    __slots__ = (
        "_looks", "_tails", "_topics", "api", "charges", "client_id", "cluster", "max_bytes", "max_wait_ms", "metrics",
        "min_bytes", "read_committed", "rows", "session_id", "version", "waiting",
    )  # fmt: skip

    def __init__(self, call: Call[FetchRequest], waiting: set[TailFetch]) -> None:
        """`waiting` gets the fetches that wait."""
        request, self.cluster = call.request, call.cluster
        self.api, self.version, self.client_id = call.api, call.version, call.client_id
        self.rows = fetch_rows(call.version)
        self.session_id = request.session_id
        self.min_bytes = min_bytes(call)
        self.max_wait_ms = max_wait_ms(call, 0) if request.min_bytes > 0 else 0  # of few partitions
        self.max_bytes = max_bytes(call)
        self.read_committed = request.isolation_level == READ_COMMITTED
        self.charges = None if call.context.meter is None else call.context.meter.repeated(call)
        self.metrics = self.cluster.metrics.request(call.api.name, call.version)
        self.waiting = waiting
        self._topics: dict[str | uuid.UUID | None, _TailTopic] = {}
        self._tails: dict[FetchedPartition, _Tail] = {}
        self._looks = 0

    @property
    def count(self) -> int:
        """The number of logs that are remembered."""
        return len(self._tails)

    def look(
        self, context: RequestContext, partitions: Iterable[FetchedPartition], session: FetchSession | None
    ) -> tuple[list[_Found], int]:
        """The partitions for the response, and the size of their records. Raises NotAtTail."""
        self._looks += 1
        if len(self._tails) > MAX_TAILS:
            self.forget()
        epoch, now_s = self.cluster.fleet.epoch, time.monotonic()
        found, size_bytes = [], 0
        for fetched in partitions:
            tail = self._tails.get(fetched) or self._find(fetched)
            topic, log = tail
            if topic.checked != self._looks:
                self._check(topic, context)
            offset, end, start = fetched.offset, log.end_offset, log.start.offset
            if fetched.leader_epoch > epoch or fetched.fetched_epoch > RECORDS_EPOCH or fetched.max_bytes <= 0:
                raise NotAtTail
            if log.source.closed:
                self.forget()
                raise NotAtTail
            if not (start <= offset <= end and log.transactions.are_absent):
                raise NotAtTail
            log.reader.last_used = now_s
            if offset < end:
                available_bytes = log.reader.available_bytes(offset, end)
                if not available_bytes:
                    raise NotAtTail
                size_bytes += available_bytes
            elif session is not None and not fetched.has_news(end, start):
                continue
            found.append(_Found(fetched, tail, end, start))
        return found, size_bytes

    def tail(self, fetched: FetchedPartition) -> _Tail:
        """The tail of a partition after `look`."""
        return self._tails[fetched]

    def known_topic(self, key: str | uuid.UUID | None) -> Topic:
        """The topic with this name or id, as it is known here. Raises NotAtTail if there is none."""
        topics = self.cluster.topics
        name = topics.cached_name(key) if isinstance(key, uuid.UUID) else key
        topic = None if name is None else topics.cached(name)
        if topic is None:
            raise NotAtTail
        return topic

    def _find(self, fetched: FetchedPartition) -> _Tail:
        """Raises NotAtTail if this gateway does not lead the partition, or its log is not open."""
        key, partition = fetched.topic, fetched.partition
        topic = self.known_topic(key)
        name = topic.name
        if key is None or not 0 <= partition < topic.partitions:
            raise NotAtTail
        log = self.cluster.logs.find(name, partition)
        if log is None or not self.cluster.fleet.leads(name, partition):
            raise NotAtTail
        if key not in self._topics:
            self._topics[key] = _TailTopic(name, self.rows.encoded_topic(key), topic)
        tail = self._tails[fetched] = _Tail(self._topics[key], log)
        return tail

    def _check(self, topic: _TailTopic, context: RequestContext) -> None:
        """The topic still exists, and the client may read it. Logs are closed when others lead their partitions."""
        found = self.cluster.topics.cached(topic.name)
        if found is not topic.topic:
            if found != topic.topic:
                self.forget()
                raise NotAtTail
            topic.topic = found  # the topic was only looked up again
        policy = context.policy
        if policy is not ALL_ALLOWED:
            topic.check_right(policy)
        topic.checked = self._looks

    def forget(self) -> None:
        """They are found again by the next look."""
        self._topics.clear()
        self._tails.clear()

    def answer(
        self, correlation_id: int, found: Iterable[_Found], session: FetchSession | None
    ) -> tuple[list[Buffer], int]:
        """The frame of the response, and the size of its records. A session remembers it."""
        room, is_empty, size_bytes = self.max_bytes, True, 0
        topics: list[tuple[bytes, list[FetchedRow]]] = []
        last = None
        for fetched, tail, end, start in found:
            read = NOTHING
            if fetched.offset < end:
                limit = min(room, fetched.max_bytes)
                read = tail.log.reader.read(fetched.offset, limit, at_least_one=is_empty, before=end) or NOTHING
                room = max(0, room - read.size_bytes)
                is_empty = is_empty and not read.size_bytes
                size_bytes += read.size_bytes
            if session is None or session.answers(fetched, end, start, has_records=read.size_bytes > 0):
                row = FetchedRow(fetched.partition, end, start, read.chunks, read.size_bytes)
                if tail.topic is not last:
                    last = tail.topic
                    topics.append((last.encoded, []))
                topics[-1][1].append(row)
        frame = self.rows.encode(correlation_id, self.session_id, topics, read_committed=self.read_committed)
        return frame, size_bytes


class TailFetch:
    """One request. It is answered once."""

    __slots__ = (
        "_busy_s", "_context", "_epoch", "_frame", "_is_looking", "_partitions", "_place", "_session", "_started",
        "_tails", "_timer", "_waits_at",
    )  # fmt: skip

    def __init__(
        self, tails: Tails, frame: bytearray, context: RequestContext, place: Place,
        partitions: Collection[FetchedPartition], session: FetchSession | None,
    ) -> None:  # fmt: skip
        self._tails = tails
        self._frame = frame
        self._context = context
        self._place = place
        self._partitions = partitions
        self._session = session
        self._epoch = 0
        """The epoch of the session's next request."""
        self._started = time.perf_counter()
        self._busy_s: float | None = None
        """The time that quotas charge; None until the fetch waits."""
        self._is_looking = False
        self._timer: asyncio.TimerHandle | None = None
        self._waits_at: list[_Tail] = []

    def start(self) -> None:
        """Answer, or begin to wait. Raises NotAtTail if nothing was done."""
        tails, session = self._tails, self._session
        found, size_bytes = self._look_at_tails()
        if session is not None:
            tails.cluster.fetch_sessions.used(session)
            self._epoch = session.epoch
        self._place.api = tails.api
        if size_bytes >= tails.min_bytes or not tails.max_wait_ms or self._context.client.has_ended:
            self._place.answer_at_once(self._answer(found))
        else:
            self._wait()
            self._busy_s = time.perf_counter() - self._started

    def _look_at_tails(self) -> tuple[list[_Found], int]:
        """As `Tails.look`. Raises NotAtTail also if the client may have to wait because of its quotas."""
        tails = self._tails
        if not is_room_for_answers(tails.cluster):
            raise NotAtTail
        found, size_bytes = tails.look(self._context, self._partitions, self._session)
        if tails.charges is not None and not tails.charges.has_room(max(size_bytes, tails.min_bytes), self._used_s):
            raise NotAtTail
        return found, size_bytes

    @property
    def _used_s(self) -> float:
        return time.perf_counter() - self._started if self._busy_s is None else self._busy_s

    def _answer(self, found: Iterable[_Found]) -> list[Buffer]:
        correlation_id = int.from_bytes(self._frame[CORRELATION_ID], "big", signed=True)
        answer, size_bytes = self._tails.answer(correlation_id, found, self._session)
        taken_s = time.perf_counter() - self._started
        if self._tails.charges is not None:
            self._tails.charges.record(size_bytes, taken_s if self._busy_s is None else self._busy_s)
        self._tails.metrics.answered(taken_s)
        return answer

    # Waiting

    def _wait(self) -> None:
        tails = self._tails
        tails.waiting.add(self)
        self._timer = asyncio.get_running_loop().call_later(tails.max_wait_ms / 1000, self._expired)
        self._partitions = tuple(self._partitions)  # the partitions of a session change with the client's next fetch
        self._context.client.begins_wait(self._expired)
        if self._session is not None:
            self._session.in_flight = self
        self._waits_at = [tails.tail(fetched) for fetched in self._partitions]
        for fetched, tail in zip(self._partitions, self._waits_at, strict=True):
            tail.log.waiters.add(self, fetched.offset, at_end=True)
        if len(self._waits_at) > FEW:
            tails.cluster.fetch_waits.begin(self._end_wait, WAITING_BYTES * len(self._waits_at))

    def stop(self) -> None:
        """Stop waiting."""
        self._tails.waiting.discard(self)
        self._context.client.ended_wait(self._expired)
        if self._session is not None and self._session.in_flight is self:
            self._session.in_flight = None
        if self._timer is not None:
            self._timer.cancel()
        for tail in self._waits_at:
            tail.log.waiters.discard(self)
        if len(self._waits_at) > FEW:
            self._tails.cluster.fetch_waits.ended(self._end_wait)

    def end(self) -> None:
        """The session has moved on, or has ended. In the next turn: the answer may let other requests run."""
        asyncio.get_running_loop().call_soon(self._look)

    def leave(self) -> None:
        """The client has disconnected. The fetch is charged for its time."""
        self.stop()
        if self._tails.charges is not None:
            self._tails.charges.record(0, self._used_s)

    def log_moved(self) -> None:
        """Check again, once for all logs that change in the same turn of the event loop."""
        if len(self._waits_at) == 1 and self._waits_at[0].log.waiters.are_few:
            self._look()
        elif not self._is_looking:
            self._is_looking = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._is_looking = False
        if self in self._tails.waiting:
            self._look_again(is_overdue=False)

    def _expired(self) -> None:
        self._look_again(is_overdue=True)

    def _end_wait(self) -> None:
        """Others need the memory."""
        if self in self._tails.waiting:
            self._expired()

    def _look_again(self, *, is_overdue: bool) -> None:
        try:
            try:
                self._answer_if_enough(is_overdue=is_overdue)
            except NotAtTail:
                self.stop()
                self._place.reply(*self._general(is_overdue=is_overdue))
        except Exception as error:  # a defect: nothing else would answer the fetch
            self.stop()
            self._place.fail(error)

    def _answer_if_enough(self, *, is_overdue: bool) -> None:
        """Raises NotAtTail, also if another connection has continued the session."""
        tails = self._tails
        if self._session is not None and self._session.epoch != self._epoch:
            raise NotAtTail
        found, size_bytes = self._look_at_tails()
        if size_bytes >= tails.min_bytes or is_overdue:
            self.stop()
            self._place.answer_now(self._answer(found))

    def _general(self, *, is_overdue: bool) -> tuple[Call[FetchRequest], Reply]:
        """The same fetch on the general path, for the rest of its time."""
        tails, view = self._tails, memoryview(self._frame)
        header = parse_header(view, flexible=is_flexible(FetchRequest, tails.version))
        request = decode_request(FetchRequest, tails.version, view, header.body)
        waited_ms = int(1000 * (time.perf_counter() - self._started))
        request.max_wait_ms = 0 if is_overdue else max(1, tails.max_wait_ms - waited_ms)
        call = Call(
            tails.api, tails.version, header.correlation_id, tails.client_id, request, self._context, self._frame,
            self._started, self._used_s,
        )  # fmt: skip
        if self._context.meter is not None:
            self._context.meter.bound(call)
        parts = []
        for fetched, tail in zip(self._partitions, self._waits_at, strict=True):
            # Without a session, the next fetch on the fast path changes them.
            part = FetchPartitionState(fetched if self._session is not None else copy(fetched))
            part.name, part.log = tail.topic.name, tail.log
            parts.append(part)
        return call, delay(call, parts, self._session)
