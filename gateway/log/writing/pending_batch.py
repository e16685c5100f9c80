"""Batches on their way to the log, and the entries that they are sent in."""

from __future__ import annotations

import time
from typing import Any

from gateway.log.entries.log_entry import Buffer
from gateway.log.entries.message_entry import EncodedEntry, Messages
from gateway.log.transactions.checkpoint import Checkpoint
from gateway.log.writing.producer_state import Done, SequencedBatch
from protocol.kafka.batch import NO_PRODUCER_ID


class PendingBatch:
    """One produced batch until its offset is known."""

    __slots__ = (
        "count", "data", "done", "is_removal", "is_transactional", "leased", "losses", "messages", "sequenced",
        "size_bytes",
    )  # fmt: skip

    def __init__(
        self,
        data: memoryview,
        count: int,
        sequenced: SequencedBatch | None,
        done: Done,
        messages: Messages | None = None,
        *,
        is_transactional: bool = False,
        leased: bool = False,
        is_removal: bool = False,
    ) -> None:
        request: Any = data.obj
        self.size_bytes = size_bytes = len(data)
        self.data = data if 2 * size_bytes >= len(request) else memoryview(bytearray(data))
        """A copy of the batch if it would keep a much larger request in memory while it is cached."""
        self.messages = messages
        """The records as Pulsar messages, if the topic stores messages (message_entry.py)."""
        if messages is not None:
            self.size_bytes += _size(messages)
        self.count = count
        self.sequenced = sequenced
        self.is_transactional = is_transactional
        self.leased = leased or sequenced is not None
        """The batch may only be sent while no other gateway can be the leader: another leader would check later batches
        without knowing this one."""
        self.is_removal = is_removal
        """It holds tombstones of compaction keys."""
        self.losses = 0
        """The number of lost producers that had this batch as the first one in flight."""
        self.done = done

    @property
    def producer_id(self) -> int:
        return NO_PRODUCER_ID if self.sequenced is None else self.sequenced.producer_id


class SentEntry:
    """Batches that were sent as one entry."""

    __slots__ = (
        "batches", "checkpoint", "count", "data", "is_removal", "is_transactional", "needs_lease", "sent_at",
    )  # fmt: skip

    def __init__(self, batches: list[PendingBatch], data: Buffer) -> None:
        self.batches = batches
        self.data = data
        count, needs_lease, is_transactional, is_removal = 0, False, False, False
        for batch in batches:  # once: `any` and a generator for each field take five times as long
            count += batch.count
            needs_lease |= batch.leased
            is_transactional |= batch.is_transactional
            is_removal |= batch.is_removal
        self.count = count
        self.needs_lease = needs_lease
        self.is_transactional = is_transactional
        self.is_removal = is_removal
        self.sent_at = time.monotonic()
        self.checkpoint: Checkpoint | None = None
        """The checkpoint that this entry carries."""


def _size(messages: Messages) -> int:
    return len(messages.payload if isinstance(messages, EncodedEntry) else messages)
