"""Markers that are being written to a log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from gateway.errors import KafkaError
from gateway.log.entries.message_entry import EncodedEntry, encode_marker_entry
from protocol.kafka.batch import parse_header
from protocol.kafka.errors import ErrorCode
from protocol.kafka.transaction_marker import TransactionMarker, encode_marker


class AppendControl(Protocol):
    """Queues a control batch of one offset. Raises KafkaError."""

    def __call__(
        self, data: memoryview, done: Callable[[int, Exception | None], None], messages: EncodedEntry | None
    ) -> None: ...


class MarkerForm(NamedTuple):
    """How a topic stores its markers: as a Pulsar message or not, kept by compaction or not, with which time."""

    as_message: bool = False
    compacted: bool = False
    log_append_time: bool = False


class MarkerAppends:
    """The markers of one log, at most one of each producer."""

    def __init__(self, append: AppendControl) -> None:
        self._append = append
        self._endings: dict[int, _Ending] = {}

    def __contains__(self, producer_id: int) -> bool:
        """Whether a marker of this producer is being written."""
        return producer_id in self._endings

    def find(self, marker: TransactionMarker) -> Awaitable[None] | None:
        """The outcome of the same marker, which the coordinator sends again. Raises KafkaError if there is another."""
        ending = self._endings.get(marker.producer_id)
        if ending is None:
            return None
        if ending.marker == marker:
            return asyncio.shield(ending.written)
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "another marker of the producer is being written")

    def append(self, marker: TransactionMarker, form: MarkerForm) -> Awaitable[None]:
        """Completes when the marker is in the log. Raises KafkaError."""
        now_ms = int(time.time() * 1000)
        data = memoryview(encode_marker(marker, now_ms, log_append_time=form.log_append_time))
        entry = encode_marker_entry(parse_header(data), marker, compacted=form.compacted) if form.as_message else None
        ending = self._endings[marker.producer_id] = _Ending(marker)

        def done(_: int, error: Exception | None) -> None:
            del self._endings[marker.producer_id]
            ending.done(error)

        try:
            self._append(data, done, entry)
        except KafkaError:
            del self._endings[marker.producer_id]
            raise
        return asyncio.shield(ending.written)


class _Ending:
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
