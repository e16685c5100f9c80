"""A delayed fetch: it waits for min_bytes, for older data that is being read from Pulsar, or until max_wait expires."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import Any

from gateway.background import report, run_once
from gateway.errors import KafkaError, fetch_error_code
from gateway.fan_out import fan_out
from gateway.fetching.committed_records import committed_records
from gateway.fetching.fetch_answer import FetchAnswer, PartitionAnswer
from gateway.fetching.fetched_parts import FetchParams, FetchPartitionState, Findings
from gateway.log.entries.log_entry import Slice, without_rest
from gateway.log.partition_log import PartitionLog
from gateway.pulsar.errors import PulsarError
from protocol.kafka.buffers import RecordChunks
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import FetchResponse

_PartitionData = FetchResponse.FetchableTopicResponse.PartitionData

UNKNOWN_OFFSET = -1
MAX_WAIT_MS = 600_000
READ_WAIT_S = 10.0
OPENED_AT_ONCE = 256
"""Logs that one fetch opens at the same time; the gateway has a bound of its own for all fetches."""
GRACE_S = 0.5
"""Opening a log, or asking for its end, takes milliseconds, unless there are thousands of them, or Pulsar does not
serve one."""
FOUND_BEFORE_READING = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
)
"""These errors do not end the wait for other partitions, as in Kafka. All other errors are returned at once."""

OpenLog = Callable[["FetchPartitionState"], Awaitable[None]]
"""Opens the log of a partition that has none, or sets the partition's error."""
Respond = Callable[[list[PartitionAnswer]], FetchAnswer]


class DelayedFetch:
    """Waits at the logs of its partitions; answers once, through ``future``."""

    def __init__(
        self, params: FetchParams, parts: list[FetchPartitionState], open_log: OpenLog, respond: Respond
    ) -> None:
        """`respond` creates the answer from the partitions' rows. Fetches of very many partitions are `LargeFetch`."""
        self._params = params
        self._open_log = open_log
        self._respond = respond
        self._parts = parts
        self.future: asyncio.Future[FetchAnswer] = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._waiting = self._looking = False
        self._pending = False
        self._overdue = False
        self._grace: asyncio.TimerHandle | None = None
        """While this timer runs, logs that are being opened and ends that are being asked for are waited for, even if
        other data could be returned."""
        self._found_error = False
        """An error was found after the start. It is returned at once, as Kafka returns read errors."""

    def start(self) -> FetchAnswer | None:
        """Return the answer if there is enough data, or nothing to wait for. Otherwise `future` gets the answer."""
        self._open_all([part for part in self._parts if part.is_cold])
        if self._satisfied() or (self._params.max_wait_ms <= 0 and not self._pending):
            return self._answer()
        self._begin_waiting()
        for part in self._parts:
            self._wait_for(part)
        return None

    def _open_all(self, cold: list[FetchPartitionState]) -> None:
        for part in cold:
            part.opening = True
        if cold:
            self._begin(fan_out(self._open, cold, at_once=OPENED_AT_ONCE))
            self._begin_grace()

    def _begin_waiting(self) -> None:
        self.future.add_done_callback(lambda _: self._stop_waiting())
        wait_ms = min(max(0, self._params.max_wait_ms), MAX_WAIT_MS)
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._waited)
        self._waiting = True

    def _begin_grace(self) -> None:
        if self._grace is None:
            self._grace = asyncio.get_running_loop().call_later(GRACE_S, self._end_grace)

    def _end_grace(self) -> None:
        self._grace = None
        self._look_again()

    def _wait_for(self, part: FetchPartitionState) -> None:
        if part.log is not None:
            offset, end = part.fetched.offset, self._readable_end(part.log, part.fetched.offset)
            end = part.log.end_offset if end is None else end
            at_end = offset >= end or part.log.reader.available_bytes(offset, end) > 0  # but less than min_bytes
            part.waits_below_end = not at_end
            part.log.waiters.add(self, offset, at_end=at_end)

    def _readable_end(self, partition_log: PartitionLog, offset: int) -> int | None:
        """The end of the records that this fetch may get. None until the transactions there are known."""
        if not self._params.read_committed:
            return partition_log.end_offset
        transactions = partition_log.transactions
        known_to = transactions.known_to(offset)
        if known_to > offset:
            return min(transactions.last_stable_offset, known_to)
        transactions.start_loading(offset)
        return None

    def _begin(self, work: Coroutine[Any, Any, Any]) -> None:
        task = run_once("delayed fetch", work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        if not self._waiting or self.future.done():
            report("fetch", error)
        else:
            self._fail(error)

    async def _open(self, part: FetchPartitionState) -> None:
        await self._open_log(part)
        part.opening = False
        self._found_error = self._found_error or part.error != ErrorCode.NONE
        if self._waiting:
            self._wait_for(part)
        self.log_moved()

    def log_moved(self) -> None:
        """Check again, once for all logs that change in the same turn of the event loop."""
        if self._waiting and not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_soon(self._look_again)

    def _look_again(self) -> None:
        self._looking = False
        if not self._waiting:
            return
        try:
            is_complete = self._satisfied() or (self._overdue and not self._pending)
        except Exception as error:
            self._fail(error)
            return
        if is_complete:
            self._finish()

    def _waited(self) -> None:
        """max_wait has expired. Reads from Pulsar that are in progress get more time, as Kafka waits for its disk."""
        self._overdue = True
        self._look_again()
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(READ_WAIT_S, self._finish)

    def end_wait(self) -> None:
        """The client wants what there is now."""
        if self._waiting and not self._overdue:
            if self._timer is not None:
                self._timer.cancel()
            self._waited()

    def _finish(self) -> None:
        if not self.future.done():
            self._waiting = False
            try:
                self.future.set_result(self._answer())
            except Exception as error:
                self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """A defect: the fetch fails with it, and the log's other waiters are woken nevertheless."""
        self._waiting = False
        if not self.future.done():
            self.future.set_exception(error)

    def _stop_waiting(self) -> None:
        self._waiting = False
        for timer in (self._timer, self._grace):
            if timer is not None:
                timer.cancel()
        for part in self._parts:
            if part.log is not None:
                part.log.waiters.discard(self)
        for task in self._tasks:
            task.cancel()

    # Available data

    def _must_wait(self, part: FetchPartitionState) -> bool:
        """The offset is beyond the end that is known here: the broker is asked whether others have written."""
        if part.log is None or part.fetched.offset <= part.log.end_offset:
            return False
        self._refresh(part, part.log)
        return part.refreshing

    def _satisfied(self) -> bool:
        """There are enough bytes, or a partition has an error to return at once.

        A possible error is waited for, as long as the client would wait for bytes.
        """
        findings, self._pending = Findings(), False
        self._look_at(self._parts, findings)
        return self._is_enough(findings)

    def _look_at(self, parts: Iterable[FetchPartitionState], findings: Findings) -> None:
        """Add what these partitions have to the findings."""
        need = max(1, self._params.min_bytes)
        total_bytes, failed = findings.total_bytes, findings.failed
        is_urgent, looked_up = findings.is_urgent, findings.looked_up
        for part in parts:
            if part.preferred_reader is not None and not part.error:
                is_urgent = True
                continue
            if part.opening:
                looked_up = self._pending = True
                continue
            if part.log is not None and part.log.closed:  # another gateway leads the partition now
                part.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if part.error or part.log is None:
                failed += 1
                is_urgent = is_urgent or part.error not in FOUND_BEFORE_READING
            elif self._must_wait(part):
                looked_up = self._pending = True
            elif part.fetched.offset < part.log.start.offset:
                is_urgent = True
            elif (end := self._readable_end(part.log, part.fetched.offset)) is None:
                self._pending = True
            elif part.fetched.offset < end:
                total_bytes += self._at_hand(part.fetched.offset, part.log, end, need)
            elif part.waits_below_end:  # a transaction is open there, as is known now
                self._wait_for(part)
        findings.total_bytes, findings.failed = total_bytes, failed
        findings.is_urgent, findings.looked_up = is_urgent, looked_up

    def _is_enough(self, findings: Findings) -> bool:
        if findings.looked_up and self._grace is not None:
            return False
        if findings.is_urgent or self._found_error or findings.failed == len(self._parts):
            return True
        if findings.looked_up and not self._overdue:
            return False
        need = max(1, self._params.min_bytes)
        return findings.total_bytes >= need or (self._params.min_bytes <= 0 and not self._pending)

    def _at_hand(self, offset: int, partition_log: PartitionLog, end: int, need: int) -> int:
        """Bytes that could be returned now. Any amount of older data is enough: more is read while it is returned."""
        available = partition_log.reader.available_bytes(offset, end)
        if available:
            return available
        if partition_log.reader.is_read_ahead(offset):
            return need
        partition_log.reader.prefetch(offset)
        self._pending = True
        return 0

    def _refresh(self, part: FetchPartitionState, partition_log: PartitionLog) -> None:
        if not part.asked:
            part.asked = part.refreshing = True
            self._begin_grace()
            self._begin(self._ask_end(part, partition_log))

    async def _ask_end(self, part: FetchPartitionState, partition_log: PartitionLog) -> None:
        try:
            await partition_log.end.refresh_with_others()
            if part.fetched.offset > partition_log.written_offset:
                await partition_log.end.check_owner()
        except (KafkaError, PulsarError, TimeoutError) as error:
            part.error = fetch_error_code(error)
        if part.fetched.offset > partition_log.written_offset and not part.error:
            beyond = self._params.beyond_end()
            part.diverges = beyond == ErrorCode.OFFSET_OUT_OF_RANGE and part.fetched.fetched_epoch >= 0
            part.error = ErrorCode.NONE if part.diverges else beyond
        self._found_error = self._found_error or part.diverges or part.error != ErrorCode.NONE
        part.refreshing = False
        self._look_again()

    # The answer

    def _answer(self) -> FetchAnswer:
        return self._respond([*self._rows()])

    def _rows(self) -> Iterator[PartitionAnswer]:
        """The rows, made one by one: each takes of the room that those before it have left."""
        room, whole_first = self._params.room_bytes(), self._params.whole_first_batch
        empty = True
        for part in self._parts:
            row = self._partition(part, room, at_least_one=empty and whole_first)
            size_bytes = row.records.size_bytes
            room -= size_bytes
            empty = empty and size_bytes == 0
            yield row

    def _partition(self, part: FetchPartitionState, room: int, *, at_least_one: bool) -> PartitionAnswer:
        fetched, partition_log = part.fetched, part.log
        if part.error or partition_log is None or partition_log.closed:  # perhaps since it was looked at
            return PartitionAnswer(fetched, error_code=part.error or ErrorCode.NOT_LEADER_OR_FOLLOWER)
        # An offset beyond the end is not refused here: it is an error only after the broker was asked.
        if fetched.offset < partition_log.start.offset:
            return PartitionAnswer(fetched, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        row = PartitionAnswer(
            fetched, high_watermark=partition_log.end_offset, log_start_offset=partition_log.start.offset
        )
        transactions, end = partition_log.transactions, self._readable_end(partition_log, fetched.offset)
        row.last_stable_offset = transactions.last_stable_offset if transactions.loaded else UNKNOWN_OFFSET
        if part.preferred_reader is not None:
            row.preferred_read_replica = part.preferred_reader
            return row
        if self._params.read_committed:
            row.aborted_transactions = []
        if part.diverges:
            diverging = _PartitionData.EpochEndOffset(epoch=fetched.fetched_epoch, end_offset=partition_log.end_offset)
            row.diverging_epoch = diverging
        if end is None or part.diverges:
            return row
        found = self._read(fetched.offset, partition_log, min(room, fetched.max_bytes), end, at_least_one=at_least_one)
        if found is None or not found.size_bytes:
            return row
        row.records = RecordChunks(found.chunks, found.size_bytes)
        if self._params.read_committed and not transactions.are_absent:
            aborted = transactions.aborted_between(fetched.offset, found.next_offset)
            if partition_log.source.compacted:  # the markers up to which clients would leave records out may be gone
                chunks = committed_records(found.chunks, aborted)
                row.records = RecordChunks(chunks, sum(map(len, chunks)))
            else:
                row.aborted_transactions = [
                    _PartitionData.AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                    for each in aborted
                ]
        return row

    def _read(
        self, offset: int, partition_log: PartitionLog, max_bytes: int, end: int, *, at_least_one: bool
    ) -> Slice | None:
        found = partition_log.reader.read(offset, max(0, max_bytes), at_least_one=at_least_one, before=end)
        if found is None:
            partition_log.reader.prefetch(offset)
            return None
        if max_bytes <= 0:  # clients do not read their answers: this one must not keep much else in memory
            return found._replace(chunks=[without_rest(chunk) for chunk in found.chunks])
        return found
