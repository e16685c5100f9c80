"""The leader of a compacted log with transactions cleans it, as Kafka's log cleaner does.

Pulsar's compactor keeps the last message of a key, open or aborted. So each message of such a log has a compaction key
of its own, and Pulsar removes nothing by itself. The cleaner finds messages that are no longer needed, up to the last
stable offset. Then it appends tombstones of their compaction keys, which no Kafka client sees, and Pulsar compacts.
Writers need not wait for this: new records have other compaction keys, and each tombstone is correct by itself, also if
the gateway fails between two of them.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import structlog

from gateway.log.cleaning.garbage import Garbage, Share, TooManyKeysError
from gateway.log.cleaning.past_cleanings import (
    PastCleaning,
    reached_by,
    read_cleanings,
    with_another,
    write_cleanings,
)
from gateway.log.cleaning.view import NOWHERE, Limits, Reached, collect_garbage
from gateway.log.partition_log import PartitionLog
from gateway.log.transactions.aborted_list import AbortedTransaction
from gateway.log.transactions.checkpoint import NO_ENTRY
from gateway.log.transactions.cleaned import compacted_to, write_cleaned
from gateway.pulsar.errors import ServiceNotReadyError
from gateway.pulsar.position import Position

REMOVED_AT_ONCE = 1_000
"""Tombstones in one entry."""
COMPACTION_S, ASK_S = 1_800.0, 1.0
"""The time limit of Pulsar's compaction, and the pause between requests for its status."""
RUNNING, SUCCESS = "RUNNING", "SUCCESS"

log = structlog.get_logger()


class Rules(NamedTuple):
    """Kafka's delete.retention.ms and min.compaction.lag.ms. What is known to be older than that ends at `old`."""

    deletions_kept_ms: int = 0
    lag_ms: int = 0
    old: Position = NO_ENTRY


class Outcome(NamedTuple):
    """The number of removed messages. What is behind `limited_at` is too young, or undecided; None if nothing is."""

    removed: int
    limited_at: Position | None = None


class LogCleaner:
    """Cleans one log. `clean` may be called while this gateway leads it."""

    def __init__(self, partition_log: PartitionLog) -> None:
        self.partition_log = partition_log
        self._topic = partition_log.source.pulsar_topic
        self._resources = partition_log.resources
        self._shares = 1
        """The keys are divided by their hashes into this number of shares, so that one share fits into memory."""
        self._to_compact = False
        """Tombstones were appended, and Pulsar has not compacted since."""
        self._compacted_to = NO_ENTRY
        """Up to there, the view that is being cleaned was compacted at least."""

    async def clean(self, rules: Rules) -> Outcome:
        """Raises KafkaError, PulsarError, SharedKeysError and TimeoutError."""
        if self._to_compact:
            await self._compact()
        self._shares = max(1, self._shares // 2)
        removed, before = 0, -1
        while True:
            found, reached = await self._pass(rules)
            removed += found
            if not reached.is_full or reached.offset <= before:
                return Outcome(removed, reached.limited_at)
            before = reached.offset

    async def _pass(self, rules: Rules) -> tuple[int, Reached]:
        """The number of removed messages, and the end of the cleaned part."""
        self._compacted_to = await compacted_to(self._resources, self._topic)
        transactions = self.partition_log.transactions
        await transactions.prepare_to_clean()
        cleanings, now_ms = await read_cleanings(self._resources, self._topic), _now_ms()
        if transactions.has_removed_ones:  # their deletions count from now on
            cleanings = []
        deletions_before = reached_by(cleanings, now_ms - rules.deletions_kept_ms)
        stable = transactions.last_stable_offset
        limits = Limits(stable, now_ms - rules.lag_ms if rules.lag_ms else math.inf, rules.old)
        try:
            removed, reached = await self._clean_shares(limits, deletions_before)
        except TooManyKeysError:
            self._shares *= 2
            log.info("more keys than fit into memory: cleaning in shares", topic=self._topic, shares=self._shares)
            return await self._pass(rules)
        if self._to_compact:
            await self._compact()
        another = PastCleaning(reached.offset, _now_ms())
        await write_cleanings(
            self._resources, self._topic, with_another(cleanings, another, rules.deletions_kept_ms)
        )
        return removed, reached

    async def _clean_shares(self, limits: Limits, deletions_before: int) -> tuple[int, Reached]:
        """The number of messages that Pulsar must remove, and the offset that all shares have reached. Raises
        TooManyKeysError."""
        removed, reached, is_full, limited_at = 0, NOWHERE, False, None
        for number in range(self._shares):
            garbage = await self._garbage(limits.offset, deletions_before, Share(number, self._shares))
            reached = await collect_garbage(garbage, self.partition_log, limits)
            await self._check_view()
            if number == 0:  # the others end there
                limited_at = reached.limited_at
            limits, is_full = Limits(reached.offset), is_full or reached.is_full
            if garbage.compaction_keys:
                if not removed:
                    await self._write_cleaned(reached, garbage.aborted)
                await self._remove(garbage.compaction_keys)
                removed += len(garbage.compaction_keys)
        return removed, reached._replace(is_full=is_full, limited_at=limited_at)

    async def _check_view(self) -> None:
        """If the compacted log was lost meanwhile, aborted records that nobody names are back, and would be taken for
        committed ones. Raises ServiceNotReadyError."""
        before, self._compacted_to = self._compacted_to, await compacted_to(self._resources, self._topic)
        if self._compacted_to < before:
            raise ServiceNotReadyError(f"the compacted log of {self._topic} was lost while it was read")

    async def _garbage(self, stable: int, deletions_before: int, share: Share) -> Garbage:
        aborted = await self.partition_log.transactions.read_aborted(self.partition_log.start.offset, stable)
        return Garbage(aborted, deletions_before, share)

    async def _write_cleaned(self, reached: Reached, aborted: Iterable[AbortedTransaction]) -> None:
        """Aborted transactions are kept until the next cleaning: readers may still have their records."""
        place = self.partition_log.transactions.prefix.cleaned_to(
            reached.position, reached.offset, _below(reached.offset, aborted), self._compacted_to
        )
        await write_cleaned(self._resources, self._topic, place)

    async def _remove(self, compaction_keys: Sequence[bytes]) -> None:
        self._to_compact = True
        for first in range(0, len(compaction_keys), REMOVED_AT_ONCE):
            await self.partition_log.append_removals(compaction_keys[first : first + REMOVED_AT_ONCE])

    async def _compact(self) -> None:
        """Raises TimeoutError if Pulsar does not complete it in time."""
        topics = self._resources.admin.topics
        async with asyncio.timeout(COMPACTION_S):
            while await topics.compaction_status(self._topic) == RUNNING:  # a compaction that others have started
                await asyncio.sleep(ASK_S)
            await topics.compact(self._topic)
            status = RUNNING
            while status == RUNNING:
                await asyncio.sleep(ASK_S)  # immediately, the status may still be that of the previous compaction
                status = await topics.compaction_status(self._topic)
        if status != SUCCESS:
            raise TimeoutError(f"compaction ended as {status}")
        self._to_compact = False


def _below(offset: int, aborted: Iterable[AbortedTransaction]) -> tuple[AbortedTransaction, ...]:
    """The parts of the transactions before an offset; the log itself has the rest."""
    parts = [each._replace(last_offset=min(each.last_offset, offset - 1), stable_offset=0) for each in aborted]
    return tuple(sorted(parts, key=lambda each: each.last_offset))


def _now_ms() -> int:
    return int(time.time() * 1000)
