"""What the batches of an entry change in a partition's transactions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import structlog

from gateway.log.entries.log_entry import Buffer
from gateway.log.transactions.state import PartitionTransactions
from gateway.observability.logs import SparseLog
from gateway.pulsar.position import Position
from protocol.kafka.batch import BatchHeader, InvalidBatch, iter_headers, iter_transactional
from protocol.kafka.transaction_marker import TransactionMarker, decode_marker

log = SparseLog(structlog.get_logger())


class Event(NamedTuple):
    """A transactional batch at an offset: a producer's data, or a marker."""

    offset: int
    producer_id: int
    producer_epoch: int
    marker: TransactionMarker | None

    def apply_to(self, transactions: PartitionTransactions) -> None:
        if self.marker is None:
            transactions.data_appended(self.producer_id, self.producer_epoch, self.offset)
        else:
            transactions.marker_appended(self.marker, self.offset)


class EntryEvents(NamedTuple):
    """The events of one entry. ``next_offset`` is the offset after the entry; it is set if there are events."""

    position: Position
    next_offset: int = -1
    events: Sequence[Event] = ()
    base_offset: int = -2
    """Set in entries that are read from the log, if gateways wrote them."""
    is_copy: bool = False
    """Another cluster's gateway has written it, as far as that was read from the log."""


def events_of(data: Buffer, base_offset: int) -> list[Event]:
    """The events of whole batches, with or without assigned offsets. ``base_offset`` is the first offset."""
    return [] if next(iter_transactional(data), None) is None else list(_events(data, base_offset))


def _events(data: Buffer, offset: int) -> Iterator[Event]:
    for position, header in iter_headers(data):
        if header.is_transactional and header.producer_id >= 0:
            if not header.is_control:
                yield Event(offset, header.producer_id, header.producer_epoch, None)
            elif (marker := _marker(data, position, header)) is not None:
                yield Event(offset, header.producer_id, header.producer_epoch, marker)
        offset += header.last_offset_delta + 1


def _marker(data: Buffer, position: int, header: BatchHeader) -> TransactionMarker | None:
    try:
        return decode_marker(data, position, header)
    except InvalidBatch as error:  # gateways never write such a marker; native producers may write anything
        log.error("unreadable control batch", position=header.base_offset, reason=str(error))
        return None
