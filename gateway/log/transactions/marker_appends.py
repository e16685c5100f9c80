"""Markers that are being written to a log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol

from gateway.log.entries.message_entry import EncodedEntry
from protocol.kafka.transaction_marker import TransactionMarker


class AppendControl(Protocol):
    """Queues a control batch of one offset. Raises KafkaError."""

    def __call__(
        self, data: memoryview, done: Callable[[int, Exception | None], None], messages: EncodedEntry | None
    ) -> None: ...


class MarkerForm(NamedTuple):
    """How a topic stores its markers: whether as a Pulsar message, and whether with the time of the append."""

    as_message: bool = False
    log_append_time: bool = False


class Ending:
    """A marker that is being written to the log."""

    def __init__(self, marker: TransactionMarker) -> None:
        self.marker = marker
        self.written: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(self, error: Exception | None) -> None:
        if error is None:
            self.written.set_result(None)
        else:
            self.written.set_exception(error)
            self.written.exception()  # the waiting callers may have been cancelled
