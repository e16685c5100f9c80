"""One partition of an internal topic and its coordinator: takeover, loading, timers, loss, and the next attempt.

The coordinator may be that of groups, or any other state machine (`coordinator.state_machine`). If the lease expires
or the partition is lost, unanswered requests get NOT_COORDINATOR. Requests that wait for other clients get it at
once. Requests that wait for the log get it when their outcome is known, or when the log is closed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum, auto
from typing import Any, Generic, TypeVar

import structlog

from coordinator.fleet.leadership import PartitionRole
from coordinator.state_machine import MalformedRecordError
from gateway.background import keep_running, report
from gateway.backoff import Backoff
from gateway.coordination.partition.clock import WallClock
from gateway.coordination.partition.internal_log import InternalLog
from gateway.coordination.partition.kind import C, CoordinatorKind, StandIns
from gateway.coordination.partition.log_trimming import LogTrimming
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ProducerFencedError, PulsarError
from gateway.pulsar.position import Position
from gateway.pulsar.producer import Producer

PAUSE_FIRST_S = 0.1
PAUSE_LONGEST_S = 10.0
PAUSE_SUPERSEDED_S = 1.0
"""For a partition that is placed here, but that another gateway has: it may not know the placement yet."""
RESIGN_S = 2.0
"""A producer that is not closed by then is fenced by the next leader's producer."""
LAPSED_TICK_S = 0.2
"""Timers wait for the lease: a coordinator that cannot answer heartbeats must not expel members."""

T = TypeVar("T")
log = structlog.get_logger()


class Answering(Enum):
    COORDINATOR = auto()
    """The partition's own coordinator, which is loading or active."""
    LOADING = auto()
    """A stand-in that answers that it is loading: clients retry on this gateway."""
    RESIGNED = auto()
    """A stand-in that answers that it is not the coordinator: clients look for another gateway."""


ANSWERING: Mapping[tuple[PartitionRole, bool], Answering] = {
    # (role, whether the partition is taken)
    (PartitionRole.LEADING, True): Answering.COORDINATOR,
    (PartitionRole.LEADING, False): Answering.LOADING,
    (PartitionRole.TAKING_OVER, True): Answering.LOADING,
    (PartitionRole.TAKING_OVER, False): Answering.LOADING,
    (PartitionRole.WITHOUT_LEASE, True): Answering.RESIGNED,
    (PartitionRole.WITHOUT_LEASE, False): Answering.RESIGNED,
    (PartitionRole.ELSEWHERE, True): Answering.RESIGNED,
    (PartitionRole.ELSEWHERE, False): Answering.RESIGNED,
}
"""The coordinator that answers the partition's requests."""


class CoordinatorPartition(Generic[C]):
    """`run` calls the coordinator. While the partition is not served, it calls a stand-in that answers an error."""

    def __init__(
        self,
        client: PulsarClient,
        topic: str,
        kind: CoordinatorKind[C],
        stand_ins: StandIns[C],
        clock: WallClock,
        role: Callable[[], PartitionRole],
        trimming: LogTrimming,
        on_loaded: Callable[[CoordinatorPartition[C], Any], None] = lambda partition, loaded: None,
    ) -> None:
        """`on_loaded` is called when the partition is served, with the result of `Coordinator.finish_loading`."""
        self._client = client
        self._topic = topic
        self._kind = kind
        self._stand_ins = stand_ins
        self._clock = clock
        self._role = role
        self._trimming = trimming
        self._on_loaded = on_loaded
        self._log = self._new_log()
        self._coordinator = kind.new(self._log)
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ms: int | None = None
        self._leading: asyncio.Task[None] | None = None
        self._resigning: asyncio.Task[None] | None = None
        self._is_placed_here = False
        self._placed_here = asyncio.Event()
        self._paused = False
        self._working: C | None = None
        self.tried = asyncio.Event()
        """Set when the first attempt to take the partition has succeeded or failed."""
        self.load_failure: str | None = None
        """Why the last attempt to load failed; None if it succeeded, or the partition is not placed here."""

    @property
    def serves(self) -> bool:
        """This gateway is the coordinator at this moment."""
        return self.taken and self._role() is PartitionRole.LEADING

    @property
    def taken(self) -> bool:
        return self._leading is not None

    def take(self) -> None:
        """Lead the partition as soon as this gateway may, and take it again after a loss, until `resign`."""
        self._is_placed_here = True
        self._placed_here.set()
        if self._leading is None:
            self._leading = keep_running("leading of a coordinator's partition", self._lead)

    async def resign(self) -> None:
        """Stop answering as coordinator; return when its producer is closed, or Pulsar did not confirm that in time.

        The work is completed even if the task that waits for it is cancelled.
        """
        self.start_resigning()
        await self.wait_resigned()

    def start_resigning(self) -> None:
        """Stop answering as coordinator. `take` leads the partition again, with a new log and an empty state."""
        self._is_placed_here = False
        if self._resigning is None and self._leading is not None:
            self._leading.cancel()
            self._resign()
            self._resigning = asyncio.create_task(self._stop_leading(self._leading))

    async def wait_resigned(self) -> None:
        if self._resigning is not None:
            await asyncio.shield(self._resigning)

    async def _stop_leading(self, leading: asyncio.Task[None]) -> None:
        try:
            await asyncio.gather(leading, return_exceptions=True)
            await self._drop_log()
        finally:
            self._leading = self._resigning = self.load_failure = None
            self._renew()
            if self._is_placed_here:  # placed here again in the meantime
                self.take()

    def run(self, call: Callable[[C, int], T]) -> T:
        """Call the coordinator that answers the partition's requests now, with the time of day."""
        role = self._role()
        self._pause_or_resume(role)
        match ANSWERING[role, self.taken]:
            case Answering.COORDINATOR:
                answering = self._coordinator
            case Answering.LOADING:
                answering = self._stand_ins.loading
            case Answering.RESIGNED:
                answering = self._stand_ins.resigned
        result = call(answering, self._clock.now_ms())
        self._arm_timer()
        return result

    def inform(self, call: Callable[[C, int], None]) -> None:
        """Call the partition's own coordinator, even while it must not answer. Its state is empty before loading."""
        call(self._coordinator, self._clock.now_ms())
        self._arm_timer()

    def check_lease(self) -> None:
        """To be called when the lease may have expired: clients that wait for other clients get an answer then."""
        self._pause_or_resume(self._role())

    def _pause_or_resume(self, role: PartitionRole) -> None:
        leads = role is PartitionRole.LEADING
        if self.taken and leads == self._paused:
            self._paused = not leads
            (self._coordinator.resume if leads else self._coordinator.pause)(self._clock.now_ms())

    def _resign(self) -> None:
        try:
            self._coordinator.resign(self._clock.now_ms())
        except Exception as defect:  # a defect in the gateway: the partition is taken again, or released, nevertheless
            report("resignation of a coordinator", defect)
        self._arm_timer()

    def _renew(self) -> None:
        """Create a log and a coordinator with empty state."""
        self._log = self._new_log()
        self._coordinator = self._kind.new(self._log)
        self._paused = False

    def _new_log(self) -> InternalLog:
        return InternalLog(self._client, self._topic, self._clock.now_ms, self._arm_timer)

    # Leading

    async def _lead(self) -> None:
        backoff = Backoff(PAUSE_FIRST_S, PAUSE_LONGEST_S)
        predecessor: Producer | None = None
        while True:
            is_loaded = False
            try:
                await self._await_leadership()
                await self._load(predecessor)
                self.tried.set()
                self.load_failure, is_loaded = None, True
                backoff.reset()
                raise await self._keep_trimmed(self._log)
            except ProducerFencedError as error:
                failure = str(error)
                log.warning("another gateway leads this partition", topic=self._topic, error=str(error))
                predecessor, wait_s = None, PAUSE_SUPERSEDED_S
            except (PulsarError, TimeoutError) as error:
                failure = str(error) or type(error).__name__
                log.warning("coordinator lost its partition", topic=self._topic, error=str(error))
                # The second attempt does not wait until the broker has forgotten the producer of the first attempt.
                predecessor = self._log.producer if predecessor is None else None
                wait_s = backoff.next_pause_s()
            # a defect in the gateway, perhaps triggered by one record, must not stop the partition
            except Exception as error:
                failure = repr(error)
                report("coordinator", error)
                predecessor, wait_s = None, PAUSE_LONGEST_S
            self.tried.set()
            if not is_loaded:
                self.load_failure = failure
            self._resign()
            await self._drop_log()
            await asyncio.sleep(wait_s)
            self._renew()

    async def _keep_trimmed(self, internal_log: InternalLog) -> PulsarError:
        """Trims the log until it is lost; returns the reason. A running snapshot is cancelled: nothing waits for it."""
        trimming = keep_running("trimming of an internal log", lambda: self._trimming.run(internal_log))
        try:
            return await internal_log.wait_lost()
        finally:
            trimming.cancel()

    async def _await_leadership(self) -> None:
        """Without the lease, another gateway may be the leader now: it must not be fenced."""
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
        except Exception as defect:  # in the gateway: the partition is taken again, or released, nevertheless
            report("closing of an internal log", defect)

    async def _load(self, predecessor: Producer | None) -> None:
        started = time.monotonic()
        await self._log.open(self._kind.barrier, self._replay_to, predecessor)
        loaded = await self._finish_loading()
        self._arm_timer()
        log.info("coordinator ready", topic=self._topic, seconds=round(time.monotonic() - started, 3))
        self._on_loaded(self, loaded)

    async def _finish_loading(self) -> Any:
        steps = self._coordinator.finish_loading(self._clock.now_ms())
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                # Loading may have taken longer than the members' session timeouts.
                self._coordinator.resume(self._clock.now_ms())
                return stop.value
            await asyncio.sleep(0)

    async def _replay_to(self, end: Position) -> None:
        await self._trimming.replay(end, self._replay)

    def _replay(self, key: bytes, value: bytes | None) -> None:
        try:
            self._coordinator.replay(key, value)
        except MalformedRecordError as error:
            log.warning("record skipped", topic=self._topic, key=key.hex(), error=str(error))

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

    def _work(self, coordinator: C) -> None:
        """Does one slice in each turn of the event loop until all work is done, even if the coordinator resigned."""
        if coordinator.has_work:
            asyncio.get_running_loop().call_soon(self._work, coordinator)
            coordinator.work()
        elif self._working is coordinator:
            self._working = None

    def _tick(self) -> None:
        self._timer, self._armed_ms = None, None
        role = self._role()
        self._pause_or_resume(role)
        if role is PartitionRole.LEADING:
            try:
                self._coordinator.tick(self._clock.now_ms())
            finally:
                self._arm_timer()
        else:
            self._timer = asyncio.get_running_loop().call_later(LAPSED_TICK_S, self._tick)
