"""The aborted transactions of a log's prefix in memory, and those that checkpoints have."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gateway.log.transactions import log_prefix
from gateway.log.transactions.checkpoint import NO_ENTRY
from gateway.log.transactions.events import EntryEvents, Event
from gateway.log.transactions.log_prefix import LogPrefix
from gateway.log.transactions.past_aborted import EVERYTHING
from gateway.pulsar.position import Position
from protocol.kafka.transaction_marker import MarkerType, TransactionMarker

OPEN, OTHER = 1, 2


def abort(prefix: LogPrefix, offset: int) -> None:
    """A transaction of one record, and its marker."""
    marker = TransactionMarker(MarkerType.ABORT, OTHER, 0, 0)
    events = Event(offset, OTHER, 0, None), Event(offset + 1, OTHER, 0, marker)
    prefix.take(EntryEvents(Position(1, offset), offset + 2, events))


def test_checkpoints_are_not_read_again_if_nothing_else_was_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, while other clusters append much after the newest checkpoint, it is read for each of their entries."""
    monkeypatch.setattr(log_prefix, "MAX_ABORTED", 4)
    monkeypatch.setattr(log_prefix, "KEPT_ABORTED", 2)
    prefix = LogPrefix("topic", cast(Any, None), cast(Any, None), NO_ENTRY, lambda _: None, lambda: None)
    prefix.take(EntryEvents(Position(1, 0), 1, [Event(0, OPEN, 0, None)]))
    abort(prefix, 1)
    checkpoint, entry = prefix.place(Position(1, 1), 3), Position(1, 2)
    checkpoint = checkpoint._replace(aborted=tuple(prefix.state.aborted_from_to(0, 3)))
    prefix.checkpoints.written(entry, checkpoint.offset)
    for offset in range(3, 11, 2):
        abort(prefix, offset)
    assert prefix.state.aborted_from == 3
    while prefix.past.known_to(0) != EVERYTHING:
        wanted = prefix.past.wanted(0)
        if wanted == NO_ENTRY:
            prefix.past.ended(NO_ENTRY, prefix.state.aborted_from)
        else:
            assert wanted == entry
            prefix.past.found(entry, checkpoint, 0)
    abort(prefix, 11)
    assert prefix.state.aborted_from == 3
    assert prefix.past.known_to(0) == EVERYTHING
