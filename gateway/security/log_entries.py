"""The entries of `~security`: the records of a change are messages that share an entry."""

from __future__ import annotations

from collections.abc import Iterator

import structlog

from gateway.pulsar.reader import Entry
from gateway.security.records import Record
from gateway.security.snapshots import MAX_ENTRY_BYTES
from protocol.pulsar.entry import EntryError, iter_messages

log = structlog.get_logger()


def records_of(entry: Entry) -> list[Record]:
    """No record if the entry is unreadable."""
    try:
        return list(each_record(entry))
    except EntryError as error:
        report_unreadable(entry, error)
        return []


def each_record(entry: Entry) -> Iterator[Record]:
    """Raises EntryError."""
    if entry.is_marker:
        return
    for message in iter_messages(entry.metadata, entry.payload, 2 * MAX_ENTRY_BYTES):
        if message.key is not None:
            yield message.key, None if message.null_value else bytes(message.value)


def report_unreadable(entry: Entry, error: EntryError) -> None:
    log.warning("unreadable entry in the security log", position=entry.position, error=str(error))
