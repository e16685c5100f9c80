"""Snapshots in the security log: the records as of one entry, in messages of their own.

    key    ["snapshot", [ledger, entry], number, how many]
    value  [[key, value], ...]

The entry is the one as of which the records are; number is the message's own place among how many there are.

A snapshot counts when all its messages are there. Records that others wrote while it was written lie before it, and are
newer than it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from gateway.pulsar.position import Position
from gateway.security.records import Record, UnreadableRecordError

MAX_ENTRY_BYTES = 1024 * 1024
"""What is written together stays below this, unless it is one large record."""
_KIND = "snapshot"
_PREFIX = f'["{_KIND}",'.encode()


def encode_snapshot(behind: Position, records: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The messages, keys and values."""
    chunks: list[list[tuple[str, str]]] = [[]]
    size_bytes = 0
    for key, value in records:
        if chunks[-1] and size_bytes > MAX_ENTRY_BYTES // 2:  # escaped, quotes take twice their size
            chunks.append([])
            size_bytes = 0
        chunks[-1].append((key.decode(), value.decode()))
        size_bytes += len(key) + len(value)
    return [
        (
            json.dumps([_KIND, [*behind], number, len(chunks)], separators=(",", ":")).encode(),
            json.dumps(chunk).encode(),
        )
        for number, chunk in enumerate(chunks)
    ]


class Replay:
    """The records that count, of all that lie behind an entry."""

    def __init__(self, behind: Position) -> None:
        self._behind = behind
        self._is_needed = behind != Position(-1, -1)
        self._chunks: dict[int, list[Record]] = {}
        self._count = 0
        self._changes: list[Record] = []

    def take(self, records: Iterable[Record]) -> None:
        """Of the next entry."""
        for key, value in records:
            if not key.startswith(_PREFIX):
                self._changes.append((key, value))
            elif value is not None:
                _, behind, number, count = json.loads(key)
                if Position(*behind) == self._behind:
                    self._count = count
                    self._chunks[number] = [(each.encode(), content.encode()) for each, content in json.loads(value)]

    def records(self) -> Iterator[Record]:
        """Oldest first. Raises UnreadableRecordError if a part of the snapshot is missing."""
        if self._is_needed and (not self._count or len(self._chunks) < self._count):
            raise UnreadableRecordError(f"the snapshot behind {self._behind} is not whole")
        for number in range(self._count):
            yield from self._chunks[number]
        yield from self._changes

    @staticmethod
    def changes(records: Iterable[Record]) -> Iterator[Record]:
        """Those that are no part of a snapshot."""
        return (record for record in records if not record[0].startswith(_PREFIX))
