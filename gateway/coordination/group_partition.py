"""One partition of `__consumer_offsets` and its coordinator: takeover, loading, timers, loss, and the next attempt.

| role | taken | who answers |
| --- | --- | --- |
| LEADING | yes | the coordinator: loading, then active |
| TAKING_OVER | either | one that loads |
| ELSEWHERE, WITHOUT_LEASE | either | one that has resigned |

Who is not answered yet when the lease runs out, or the partition is lost, gets NOT_COORDINATOR: parked members at once,
and what waits for the log when its fate is known, or the log is given up.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable, Set
from contextlib import suppress
from typing import TypeVar, cast

import structlog

from coordinator.fleet.leadership import PartitionRole
from coordinator.group.config import GroupConfig
from coordinator.group.consumer.messages import Topics
from coordinator.group.coordinator import GroupCoordinator
from coordinator.group.ports import DeletedTopic, GroupTopicPartition, OffsetsListener, OwnTimes
from coordinator.group.records.codec import MalformedRecordError, encode_record
from coordinator.group.records.group_metadata import GroupMetadataKey
from gateway.background import keep_running, report
from gateway.backoff import Backoff
from gateway.coordination.internal_log import InternalLog
from gateway.coordination.log_trimming import LogTrimming
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ProducerFencedError, PulsarError
from gateway.pulsar.position import Position
from gateway.pulsar.producer import Producer

PAUSE_FIRST_S = 0.1
PAUSE_LONGEST_S = 10.0
PAUSE_SUPERSEDED_S = 1.0
"""Another gateway has the partition, though it is placed here: perhaps it does not know that yet."""
RESIGN_S = 2.0
"""The producer that is not closed by then is fenced by the next leader's."""
LAPSED_TICK_S = 0.2
"""Timers wait for the lease: who cannot answer heartbeats must not take members for dead."""
BARRIER = encode_record(GroupMetadataKey(""), None)
"""The tombstone of a group that cannot be: groups with members have names. Every reader passes it over."""

_WITH_LEASE = {PartitionRole.TAKING_OVER, PartitionRole.LEADING}

T = TypeVar("T")
log = structlog.get_logger()


class WallClock:
    """Milliseconds since the epoch that never go back, whatever is done to the system's clock."""

    def __init__(self) -> None:
        self._offset_s = time.time() - time.monotonic()

    def now_ms(self) -> int:
        return int((time.monotonic() + self._offset_s) * 1000)


OnLoaded = Callable[["GroupPartition", Set[GroupTopicPartition]], None]
"""The partition is served; the offsets that were deleted, as far as its log still tells."""


class GroupPartition:
    """`run` calls the coordinator. It is always there: while the partition is not, it says so itself."""

    def __init__(
        self,
        client: PulsarClient,
        topic: str,
        config: GroupConfig,
        topics: Topics,
        clock: WallClock,
        role: Callable[[], PartitionRole],
        trimming: LogTrimming,
        on_offsets_changed: OffsetsListener = lambda group_id, offsets: None,
        on_loaded: OnLoaded = lambda partition, deleted: None,
        own_times: OwnTimes = lambda group_id: None,
    ) -> None:
        self._client = client
        self._topic = topic
        self._config = config
        self._topics = topics
        self._clock = clock
        self._role = role
        self._trimming = trimming
        self._on_offsets_changed = on_offsets_changed
        self._on_loaded = on_loaded
        self._own_times = own_times
        self._loading, self._resigned = self._new_stand_ins()
        self._log = self._new_log()
        self._coordinator = self._new_coordinator()
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ms: int | None = None
        self._leading: asyncio.Task[None] | None = None
        self._resigning: asyncio.Task[None] | None = None
        self._is_placed_here = False
        self._placed_here = asyncio.Event()
        self._lapsed = False
        self._working: GroupCoordinator | None = None
        self.tried = asyncio.Event()
        """Set when it is known whether the first attempt to take the partition succeeded."""
        self.load_failure: str | None = None
        """Why the last attempt to load the partition failed, if it did and it is placed here."""

    @property
    def serves(self) -> bool:
        """This gateway coordinates its groups at this moment."""
        return self.taken and self._role() is PartitionRole.LEADING

    @property
    def taken(self) -> bool:
        return self._leading is not None

    def take(self) -> None:
        """Lead the partition as soon as it is this gateway's, and again when it is lost, until `resign`."""
        self._is_placed_here = True
        self._placed_here.set()
        if self._leading is None:
            self._leading = asyncio.create_task(self._lead())

    async def resign(self) -> None:
        """Answer nothing more as its coordinator; return when its producer is closed, or Pulsar does not say so.

        It is done to its end, even if who waits for it is cancelled.
        """
        self._is_placed_here = False
        if self._resigning is None and self._leading is not None:
            self._leading.cancel()
            self._resign()
            self._resigning = asyncio.create_task(self._stop_leading(self._leading))
        if self._resigning is not None:
            await asyncio.shield(self._resigning)

    async def _stop_leading(self, leading: asyncio.Task[None]) -> None:
        try:
            await asyncio.gather(leading, return_exceptions=True)
            await self._drop_log()
        finally:
            self._renew()
            self._leading = self._resigning = self.load_failure = None
            if self._is_placed_here:  # again, since
                self.take()

    def run(self, call: Callable[[GroupCoordinator, int], T]) -> T:
        """Call the coordinator, or whoever answers in its place."""
        if self._leads():
            answering = self._coordinator if self.taken else self._loading
        else:
            answering = self._loading if self._role() in _WITH_LEASE else self._resigned
        result = call(answering, self._clock.now_ms())
        self._arm_timer()
        return result

    def forget_topics(self, topics: Iterable[DeletedTopic]) -> None:
        """The topics were deleted. A coordinator that does not serve yet has to be told when it is loaded."""
        self._coordinator.forget_topics(topics, self._clock.now_ms())
        self._arm_timer()

    def check_lease(self) -> None:
        """To be called when the lease may have run out: members that wait for others are not left waiting here."""
        self._leads()

    def _leads(self) -> bool:
        """The members of a coordinator that did not answer for a while have their full times afterwards."""
        is_mine = self._role() is PartitionRole.LEADING
        if self.taken and is_mine == self._lapsed:
            self._lapsed = not is_mine
            (self._coordinator.resume if is_mine else self._coordinator.pause)(self._clock.now_ms())
        return is_mine

    def _resign(self) -> None:
        self._coordinator.resign(self._clock.now_ms())
        self._arm_timer()

    def _renew(self) -> None:
        """A log and a coordinator that know nothing yet."""
        self._log = self._new_log()
        self._coordinator = self._new_coordinator()
        self._lapsed = False

    def _new_stand_ins(self) -> tuple[GroupCoordinator, GroupCoordinator]:
        self._log = self._new_log()
        resigned = self._new_coordinator()
        resigned.resign(self._clock.now_ms())
        return self._new_coordinator(), resigned

    def _new_log(self) -> InternalLog:
        return InternalLog(self._client, self._topic, self._clock.now_ms, self._arm_timer)

    def _new_coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(
            self._config, self._log, lambda: str(uuid.uuid4()), self._topics, self._on_offsets_changed, self._own_times
        )

    # Leading

    async def _lead(self) -> None:
        backoff = Backoff(PAUSE_FIRST_S, PAUSE_LONGEST_S)
        predecessor: Producer | None = None
        while True:
            is_loaded = False
            try:
                await self._until_mine()
                await self._load(predecessor)
                self.tried.set()
                self.load_failure, is_loaded = None, True
                backoff.reset()
                raise await self._keep_trimmed(self._log)
            except ProducerFencedError as error:
                failure = str(error)
                log.warning("another gateway coordinates these groups", topic=self._topic, error=str(error))
                predecessor, wait_s = None, PAUSE_SUPERSEDED_S
            except (PulsarError, TimeoutError) as error:
                failure = str(error) or type(error).__name__
                log.warning("group coordinator lost its partition", topic=self._topic, error=str(error))
                # A second attempt does not wait until the broker forgets the first one's producer.
                predecessor = self._log.producer if predecessor is None else None
                wait_s = backoff.next_pause_s()
            except Exception as error:  # a defect of ours, perhaps met in one record, must not end the partition
                failure = repr(error)
                report("group coordinator", error)
                predecessor, wait_s = None, PAUSE_LONGEST_S
            self.tried.set()
            if not is_loaded:
                self.load_failure = failure
            self._resign()
            await self._drop_log()
            await asyncio.sleep(wait_s)
            self._renew()

    async def _keep_trimmed(self, internal_log: InternalLog) -> PulsarError:
        """Until the log is lost. A snapshot under way ends by itself, and nobody waits for it."""
        trimming = keep_running("trimming of an internal log", lambda: self._trimming.run(internal_log))
        try:
            return await internal_log.wait_lost()
        finally:
            trimming.cancel()

    async def _until_mine(self) -> None:
        """Without the lease another may be the leader by now: it must not be fenced."""
        while self._role() is not PartitionRole.LEADING:
            self._placed_here.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(LAPSED_TICK_S):
                    await self._placed_here.wait()

    async def _drop_log(self) -> None:
        try:
            async with asyncio.timeout(RESIGN_S):
                await self._log.close()
        except (PulsarError, TimeoutError) as error:
            log.info("internal log not closed properly", topic=self._topic, error=str(error))

    async def _load(self, predecessor: Producer | None) -> None:
        started = time.monotonic()
        await self._log.open(BARRIER, self._replay_to, predecessor)
        deleted = await self._finish_loading()
        self._arm_timer()
        log.info("group coordinator ready", topic=self._topic, seconds=round(time.monotonic() - started, 3))
        self._on_loaded(self, deleted)

    async def _finish_loading(self) -> Set[GroupTopicPartition]:
        steps = self._coordinator.finish_loading(self._clock.now_ms())
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                self._coordinator.resume(self._clock.now_ms())  # it may have taken longer than members are waited for
                return cast(Set[GroupTopicPartition], stop.value)
            await asyncio.sleep(0)

    async def _replay_to(self, end: Position) -> None:
        await self._trimming.replay(end, self._replay)

    def _replay(self, key: bytes, value: bytes | None) -> None:
        try:
            self._coordinator.replay(key, value)
        except MalformedRecordError as error:
            log.warning("record passed over", topic=self._topic, key=key.hex(), error=str(error))

    # Timers and work

    def _arm_timer(self) -> None:
        if self._coordinator.has_work and self._working is not self._coordinator:
            self._working = self._coordinator
            self._work(self._coordinator)
        deadline_ms = self._coordinator.next_deadline_ms()
        if deadline_ms == self._armed_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_ms = deadline_ms
        if deadline_ms is not None:
            delay_s = max(0, deadline_ms - self._clock.now_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _work(self, coordinator: GroupCoordinator) -> None:
        """A slice in each turn of the event loop, until all is done; also for a coordinator that has resigned."""
        if coordinator.has_work:
            asyncio.get_running_loop().call_soon(self._work, coordinator)
            coordinator.work()
        elif self._working is coordinator:
            self._working = None

    def _tick(self) -> None:
        self._timer, self._armed_ms = None, None
        if self._leads():
            try:
                self._coordinator.tick(self._clock.now_ms())
            finally:
                self._arm_timer()
        else:
            self._timer = asyncio.get_running_loop().call_later(LAPSED_TICK_S, self._tick)
