"""What the leaders of a client's partitions were asked for, and their answers that the client has not received yet.

Where there are very many partitions, each of these steps is done in slices. No other fetch of the client runs then, but
leaders' answers may arrive between two slices: each partition's row is right by itself.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from copy import copy
from typing import NamedTuple, Protocol

from coordinator.fleet.messages import Member
from gateway.background import run_once
from gateway.fan_out import in_steps, sliced
from gateway.fetching.fetch_answer import NO_RECORDS, PartitionAnswer
from gateway.fetching.fetch_session import FINAL_EPOCH, FetchedPartition, Key
from gateway.fetching.remembered_partitions import RememberedPartitions
from gateway.handlers.records.fetch import RESOLVED_AT_ONCE, TOPIC_ID_VERSION
from gateway.requests.call import Call
from gateway.requests.cluster import Unread
from gateway.requests.reply import Response
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import FetchRequest, FetchResponse

_PartitionData = FetchResponse.FetchableTopicResponse.PartitionData
_Topic = FetchRequest.FetchTopic
_Partition = _Topic.FetchPartition
_Topics = dict[str | uuid.UUID | None, _Topic]

Ask = Callable[[Call, Member | None], Coroutine[object, object, Response]]
"""Sends a request to a leader, or to this gateway (None), and returns the answer."""


class Offsets(NamedTuple):
    """The offsets of a log, as its leader last returned them."""

    high_watermark: int
    log_start: int


class Waiting(Protocol):
    """A fetch of the client that is not answered yet."""

    future: asyncio.Future[Response]

    def look(self) -> None:
        """An answer has arrived."""


class AskedFetches:
    """One client's."""

    def __init__(self, ask: Ask, unread: Unread, remembered: RememberedPartitions) -> None:
        """Answers that the client has not got count as ``unread``: above that budget, leaders are asked for less.

        Between two fetches, the offsets of logs count as ``remembered``.
        """
        self.unread = unread
        self.asked: dict[Key, int] = {}
        """The requested offset of each partition, while its answer is in flight."""
        self.answered: dict[Key, PartitionAnswer] = {}
        """Answers with records, or an error, for the offset of their `fetched`."""
        self.known: dict[Key, Offsets] = {}
        self.waiting: set[Waiting] = set()
        self._ask = ask
        self._remembered = remembered
        self._asking: dict[asyncio.Task[None], list[FetchedPartition]] = {}
        """The requests in flight, and their partitions."""

    def is_known(self, key: Key) -> bool:
        return key in self.known or key in self.answered

    # What the client no longer fetches

    def forget_all_but(self, fetched: Iterable[FetchedPartition]) -> None:
        """Forget partitions that the client no longer fetches, or fetches from another offset: that is outdated."""
        offsets = {each.key: each.offset for each in fetched}
        self.asked = {key: offset for key, offset in self.asked.items() if offsets.get(key) == offset}
        for key in [key for key, row in self.answered.items() if offsets.get(key) != row.fetched.offset]:
            self.take_answer(key)
        self.known = {key: known for key, known in self.known.items() if key in offsets}
        for task, parts in self._asking.items():
            if not any(self._is_awaited(part) for part in parts):
                task.cancel()  # otherwise its leader may wait for minutes, and the client may send ever more

    async def forget_all_but_many(self, fetched: Collection[FetchedPartition]) -> None:
        """As `forget_all_but`. `asked` comes first: from then on, no outdated answer is taken."""
        offsets = {each.key: each.offset async for each in sliced(fetched)}
        async for key in sliced([*self.asked]):
            if key in self.asked and offsets.get(key) != self.asked[key]:
                del self.asked[key]
        async for key in sliced([*self.answered]):
            if key in self.answered and offsets.get(key) != self.answered[key].fetched.offset:
                self.take_answer(key)
        async for key in sliced([*self.known]):
            if key not in offsets:
                self.known.pop(key, None)
        for task, parts in [*self._asking.items()]:
            async for part in sliced(parts):
                if self._is_awaited(part):
                    break
            else:
                task.cancel()

    def _is_awaited(self, part: FetchedPartition) -> bool:
        return self.asked.get(part.key) == part.offset

    def forget_all(self) -> None:
        """Free the memory of the leaders' answers at once: the client has disconnected, or fetches in another way."""
        self.unread.size_bytes -= sum([row.records.size_bytes for row in self.answered.values()])
        self.asked, self.answered, self.known = {}, {}, {}
        self._remembered.keeps(self._forget_for_others, 0)
        for task in self._asking:
            task.cancel()

    def _forget_for_others(self) -> None:
        if not self.waiting:  # a leader that is being asked may wait for long: the next fetch would need its offsets
            self.known = {key: self.known[key] for key in self.asked if key in self.known}

    def begin(self, waiting: Waiting) -> None:
        """The fetch begins to wait."""
        self.waiting.add(waiting)
        waiting.future.add_done_callback(lambda _: self._end(waiting))

    def _end(self, waiting: Waiting) -> None:
        self.waiting.discard(waiting)
        self._remembered.keeps(self._forget_for_others, len(self.known))

    # Asking

    def ask(
        self, call: Call[FetchRequest], leader: Member | None, parts: list[FetchedPartition], wait_ms: int, share: int
    ) -> None:
        """Ask a leader for partitions; with `wait_ms` 0, for what it has now. `share` leaders share max_bytes."""
        request, topics = _request(call, share), _Topics()
        asked = self._mark(topics, parts)
        self._send(call, leader, asked, request, topics, wait_ms)

    async def ask_for_many(
        self, call: Call[FetchRequest], leader: Member | None, parts: list[FetchedPartition],
        wait_ms: Callable[[], int], share: int,
    ) -> None:  # fmt: skip
        """As `ask`; `wait_ms` is called when the request is complete."""
        asked: list[FetchedPartition] = []
        topics = _Topics()
        try:
            async for some in in_steps(parts):
                asked += self._mark(topics, some)
        except asyncio.CancelledError:
            for part in asked:
                self.asked.pop(part.key, None)
            raise
        self._send(call, leader, asked, _request(call, share), topics, wait_ms())

    def _mark(self, topics: _Topics, parts: Sequence[FetchedPartition]) -> list[FetchedPartition]:
        asked = [copy(part) for part in parts]  # those of a session change with the client's next fetch
        self.asked.update({part.key: part.offset for part in asked})
        _add(topics, asked)
        return asked

    def _send(
        self, call: Call[FetchRequest], leader: Member | None, asked: list[FetchedPartition], request: FetchRequest,
        topics: _Topics, wait_ms: int,
    ) -> None:  # fmt: skip
        request.topics, request.max_wait_ms = list(topics.values()), wait_ms
        task = run_once("forwarded fetch", self._take(call.asking(request), leader, asked))
        self._asking[task] = asked
        task.add_done_callback(self._taken)

    def _taken(self, task: asyncio.Task[None]) -> None:
        self._asking.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:  # a defect: the waiting fetches fail
            for waiting in self.waiting:
                if not waiting.future.done():
                    waiting.future.set_exception(error)

    # Answers

    async def _take(self, call: Call[FetchRequest], leader: Member | None, parts: list[FetchedPartition]) -> None:
        response = await self._ask(call, leader)
        assert isinstance(response, FetchResponse)
        by_id = call.version >= TOPIC_ID_VERSION
        if len(parts) > RESOLVED_AT_ONCE:
            many = await _rows_of_many(response, by_id=by_id)
            async for some in in_steps(parts):
                self._take_rows(some, many)
        else:
            self._take_rows(parts, _rows(response, by_id=by_id))
        for waiting in tuple(self.waiting):
            waiting.look()

    def _take_rows(self, parts: Sequence[FetchedPartition], rows: dict[Key, _PartitionData]) -> None:
        for part in parts:
            if self._is_awaited(part):
                del self.asked[part.key]
                self._answer(_answer(part, rows.get(part.key)))

    def _answer(self, row: PartitionAnswer) -> None:
        if row.error_code or row.records.size_bytes:
            self.take_answer(row.fetched.key)
            self.answered[row.fetched.key] = row
            self.unread.size_bytes += row.records.size_bytes
        if not row.error_code:
            self.known[row.fetched.key] = Offsets(row.high_watermark, row.log_start_offset)

    def take_answer(self, key: Key) -> PartitionAnswer | None:
        """Remove an answer: the client gets it now, or no longer needs it."""
        row = self.answered.pop(key, None)
        if row is not None:
            self.unread.size_bytes -= row.records.size_bytes
        return row


def _request(call: Call[FetchRequest], share: int) -> FetchRequest:
    """A request without a session. While clients have too many unread answers, it is for one batch."""
    asked, unread = call.request, call.cluster.unread
    max_bytes = 1 if unread.size_bytes > call.cluster.config.limits.fetch_budget_bytes else asked.max_bytes
    return FetchRequest(
        max_wait_ms=0, min_bytes=asked.min_bytes, max_bytes=max(1, max_bytes // share),
        isolation_level=asked.isolation_level, session_id=0, session_epoch=FINAL_EPOCH, rack_id=asked.rack_id,
        topics=[], forgotten_topics_data=[], replica_id=asked.replica_id, replica_state=asked.replica_state,
    )  # fmt: skip


def _add(topics: _Topics, parts: Iterable[FetchedPartition]) -> None:
    for part in parts:
        row = _Partition(
            partition=part.partition, current_leader_epoch=part.leader_epoch, fetch_offset=part.offset,
            last_fetched_epoch=part.fetched_epoch, partition_max_bytes=part.max_bytes,
        )  # fmt: skip
        topic = topics.get(part.topic)
        if topic is None:
            named = _Topic(topic_id=part.topic) if isinstance(part.topic, uuid.UUID) else _Topic(topic=part.topic or "")
            topic = topics[part.topic] = named
        topic.partitions.append(row)


def _rows(response: FetchResponse, *, by_id: bool) -> dict[Key, _PartitionData]:
    return {
        (topic.topic_id if by_id else topic.topic, row.partition_index): row
        for topic in response.responses
        for row in topic.partitions
    }


async def _rows_of_many(response: FetchResponse, *, by_id: bool) -> dict[Key, _PartitionData]:
    rows: dict[Key, _PartitionData] = {}
    async for topic in sliced(response.responses):
        async for some in in_steps(topic.partitions):
            rows.update({(topic.topic_id if by_id else topic.topic, row.partition_index): row for row in some})
    return rows


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
