"""Entries of other writers move a log's end: reads up to the broker's end for callers that need it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from functools import partial

from gateway.errors import KafkaError
from gateway.log.bounds.drained import drained
from gateway.log.bounds.end_target import EndTarget
from gateway.log.bounds.topic_owner import as_owner
from gateway.log.entries.entry_stream import NOTHING
from gateway.log.entries.undispatched import SILENT_S, none_is_dispatched, undispatched_end
from gateway.log.reading.held_back import HeldBackEntries
from gateway.log.reading.tail_follower import TailFollower
from gateway.log.shared_run import SharedRun
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.topics import InternalStats
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ClientClosedError, ServiceNotReadyError
from gateway.pulsar.position import Position


class EndRefresh:
    """Has a log's end read, once for all callers."""

    def __init__(
        self,
        client: PulsarClient,
        admin: AdminClient,
        follower: TailFollower,
        target: EndTarget,
        on_undispatched: Callable[[Position, int], None],
        timeout_ms: int,
        held_back: HeldBackEntries,
        asked_at: float = -math.inf,
        *,
        is_doubtful: bool = False,
    ) -> None:
        """``on_undispatched(last, end)``: brokers dispatch no further entry up to ``last``; the log ends at ``end``.

        ``asked_at``: when the broker was asked for the end with which the log was opened, by the monotonic clock.
        ``is_doubtful``: perhaps another broker owned the topic then.
        """
        self._client = client
        self._admin = admin
        self._follower = follower
        self._target = target
        self._on_undispatched = on_undispatched
        self._timeout_ms = timeout_ms
        self._held_back = held_back
        self._asked_at = asked_at
        self._is_doubtful = is_doubtful
        self._undispatched_to = NOTHING
        """What follows the log's end up to here was looked up: brokers dispatch none of it."""
        self._shared = SharedRun(self.refresh)
        self._passing = SharedRun(self._pass_undispatched)
        self._owner = SharedRun(self._check_owner)

    def checked_within(self, seconds: float) -> bool:
        """Whether the log is known up to the end that the broker had within this time."""
        return not self._is_doubtful and time.monotonic() - self._asked_at < seconds

    def refresh_ahead(self, at_most_every_s: float) -> None:
        """Start the work of ``refresh`` before a caller has to wait for it."""
        if not self.checked_within(at_most_every_s):
            self._shared.start()

    async def refresh(self, *, at_most_every_s: float = 0) -> None:
        """Read up to the broker's current end. Raises PulsarError or TimeoutError."""
        if self.checked_within(at_most_every_s):
            return
        if self._is_doubtful:
            await self.check_owner()
        await self._read_on()

    async def refresh_with_others(self) -> None:
        """As `refresh`, in one run for all callers that wait for it to begin: there may be thousands, of fetches.

        Raises KafkaError, too, if the log is closed.
        """
        await self._shared.wait()

    async def _read_on(self) -> None:
        asked_at = time.monotonic()
        await self._read_to_end()
        self._asked_at = max(self._asked_at, asked_at)

    async def read_what_others_sent(self) -> InternalStats:
        """Read all that the broker had received at the time of the call. Raises PulsarError and TimeoutError."""
        topic = self._follower.pulsar_topic
        stats = await as_owner(self._admin, topic, partial(drained, self._admin, topic))
        await self._read_on()
        last, behind = stats.last_confirmed, self._follower.end.last
        if last.entry_id >= 0 and last > behind and not await self._held_back.read(stats, behind):
            await self._read_on()  # they may have been held back when it began
            await self._ensure_reached(stats)
        return stats

    async def _ensure_reached(self, stats: InternalStats) -> None:
        """The broker of the reader may not know that another one owns the topic, and name an earlier end.

        Raises PulsarError.
        """
        if await self._has_reached(stats):
            return
        self._follower.start_anew()
        await self._read_on()
        if not await self._has_reached(stats):
            topic = self._follower.pulsar_topic
            raise ServiceNotReadyError(f"readers of {topic} do not get all entries up to {stats.last_confirmed}")

    async def _has_reached(self, stats: InternalStats) -> bool:
        """Whether all is known up to the last entry, but for what brokers do not dispatch."""
        topic, last = self._follower.pulsar_topic, stats.last_confirmed
        behind = max(self._follower.known_up_to, self._undispatched_to)
        if last > behind:
            if not await none_is_dispatched(self._client, self._admin, topic, stats.ledgers, behind, last):
                return False
            self._undispatched_to = last
        return True

    async def check_owner(self) -> None:
        """Read all that the owner of the topic has: the broker of the reader may have lost it.

        Raises PulsarError and TimeoutError, also if no broker that answers is the owner.
        """
        await self._owner.wait()

    async def _check_owner(self) -> None:
        topic = self._follower.pulsar_topic
        stats = await as_owner(self._admin, topic, partial(self._admin.topics.internal_stats, topic))
        await self._read_on()
        last, behind = stats.last_confirmed, self._follower.known_up_to
        if last.entry_id >= 0 and last > behind and not await self._held_back.are_there(stats, behind):
            await self._ensure_reached(stats)
        self._is_doubtful = False

    async def _read_to_end(self) -> None:
        last = await self._follower.last_position()
        if last <= self._follower.known_up_to or last.entry_id < 0:
            return
        reached = self._target.aim(last)
        self._follower.follow()
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                await self._wait(reached)
        except TimeoutError:
            self._follower.start_anew()
            raise
        finally:
            reached.cancel()

    async def _wait(self, reached: asyncio.Future[None]) -> None:
        while not reached.done():
            known = self._follower.end.last
            await asyncio.wait([reached], timeout=SILENT_S)
            if not reached.done() and self._follower.end.last == known:
                try:
                    await self._passing.wait()
                except KafkaError as error:  # `close` has cancelled the run
                    raise ClientClosedError("the log is closed") from error
        reached.result()

    async def _pass_undispatched(self) -> None:
        """Nothing arrives: if brokers dispatch none of the entries up to the last one, count them as known."""
        last = self._target.position
        if last is None:
            return
        topic, behind = self._follower.pulsar_topic, self._follower.end.last
        end_offset = await undispatched_end(self._client, self._admin, topic, behind, last)
        if end_offset is not None:
            self._on_undispatched(last, end_offset)

    def close(self) -> None:
        self._shared.cancel()
        self._passing.cancel()
        self._owner.cancel()
