"""Checkpoints of logs that only other clusters write to, for partitions that this gateway leads.

The checkpoints in copies are those of the other clusters, and mean nothing here. Without its own, a new leader would
read such a log from the start, and all aborted transactions would stay in memory. So the leader appends an entry that
has only a checkpoint, if what follows the newest one has become long. The entry is not replicated.
"""

from __future__ import annotations

import asyncio
import time
from weakref import WeakKeyDictionary

import structlog

from coordinator.fleet.leadership import PartitionRole
from gateway.errors import KafkaError
from gateway.fan_out import Slices
from gateway.fleet.view import FleetView
from gateway.log.partition_log import PartitionLog
from gateway.log.registry import LogRegistry
from gateway.log.transactions.checkpoints import keep
from gateway.pulsar.errors import PulsarError

CHECK_S = 15.0
AGAIN_S = 3_600.0
MOST_AT_ONCE = 1_000
"""Checkpoints that one log gets, one after the other, before another log has its turn: each has some thousands of
aborted transactions."""

log = structlog.get_logger()


class OwnCheckpoints:
    def __init__(self, fleet: FleetView, logs: LogRegistry) -> None:
        self._fleet = fleet
        self._logs = logs
        self._again_at: WeakKeyDictionary[PartitionLog, float] = WeakKeyDictionary()
        """When logs are tried again whose checkpoint could not be written, or did not fit into an entry."""

    async def follow(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            await self.check()

    async def check(self) -> None:
        slices = Slices()
        for key, opened in self._logs.all_open():
            await slices.pause()
            is_led = self._fleet.role(*key) is PartitionRole.LEADING
            if is_led and _lacks_checkpoint(opened) and time.monotonic() >= self._again_at.get(opened, 0.0):
                await self._write(key, opened)

    async def _write(self, key: tuple[str, int], opened: PartitionLog) -> None:
        checkpoints, resources = opened.transactions.prefix.checkpoints, opened.resources
        try:
            for _ in range(MOST_AT_ONCE):
                before = checkpoints.newest
                await opened.append_checkpoint()
                if checkpoints.newest == before:
                    self._again_at[opened] = time.monotonic() + AGAIN_S
                if checkpoints.newest == before or not _lacks_checkpoint(opened):
                    break
            if checkpoints.newest is not None:  # behind any number of copies, new leaders find it by this property
                await keep(resources, opened.source.pulsar_topic, checkpoints.newest.entry)
        except (KafkaError, PulsarError, TimeoutError) as error:
            log.warning("no checkpoint was written", topic=key[0], partition=key[1], error=repr(error))
            self._again_at[opened] = time.monotonic() + AGAIN_S


def _lacks_checkpoint(opened: PartitionLog) -> bool:
    return not opened.closed and opened.transactions.loaded and opened.transactions.prefix.lacks_checkpoint
