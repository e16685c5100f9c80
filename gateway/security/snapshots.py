"""Snapshots in the security log: the records as of one entry, in separate messages.

    key    ["snapshot", [ledger, entry], number, count]
    value  [[key, value], ...]

The snapshot includes all records up to the entry; number is the message's index among the count of messages. Bytes of
a key or value that are not UTF-8 are halves of surrogate pairs in JSON (Python's `surrogateescape`): nobody can read
such a record, but the snapshot has to keep it, because unreadable records deny everything.

A snapshot is valid when all its messages exist. Records that other gateways write meanwhile may precede its messages in
the log, although they are newer than the snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from gateway.pulsar.position import Position
from gateway.security.records import Record, UnreadableRecordError

MAX_ENTRY_BYTES = 1024 * 1024
"""Messages that are written together stay below this size, unless there is one large record."""
_KIND = "snapshot"
_PREFIX = f'["{_KIND}",'.encode()


def encode_snapshot(behind: Position, records: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The keys and values of the messages."""
    chunks: list[list[tuple[str, str]]] = [[]]
    size_bytes = 0
    for key, value in records:
        if chunks[-1] and size_bytes > MAX_ENTRY_BYTES // 2:  # half the limit: escaped quotes take twice their size
            chunks.append([])
            size_bytes = 0
        chunks[-1].append((_to_text(key), _to_text(value)))
        size_bytes += len(key) + len(value)
    return [
        (
            json.dumps([_KIND, [*behind], number, len(chunks)], separators=(",", ":")).encode(),
            json.dumps(chunk).encode(),
        )
        for number, chunk in enumerate(chunks)
    ]


class Replay:
    """Collects the valid records from all entries after a position."""

    def __init__(self, behind: Position) -> None:
        self._behind = behind
        self._is_needed = behind != Position(-1, -1)
        self._chunks: dict[int, list[Record]] = {}
        self._count = 0
        self._changes: list[Record] = []

    def take(self, records: Iterable[Record]) -> None:
        """Add the records of the next entry."""
        for key, value in records:
            if not key.startswith(_PREFIX):
                self._changes.append((key, value))
            elif value is not None:
                self._take_part(key, value)

    def _take_part(self, key: bytes, value: bytes) -> None:
        """A malformed part counts as missing: no error if it belongs to another snapshot, or was written again."""
        try:
            _, behind, number, count = json.loads(key)
            if Position(*behind) != self._behind or number not in range(count):
                return
            chunk: list[Record] = [(_to_bytes(each), _to_bytes(content)) for each, content in json.loads(value)]
        except (ValueError, TypeError, AttributeError, RecursionError):
            return
        self._count = count
        self._chunks[number] = chunk

    def records(self) -> Iterator[Record]:
        """Return the records, oldest first. Raises UnreadableRecordError if a part of the snapshot is missing."""
        if self._is_needed and not (self._count and all(number in self._chunks for number in range(self._count))):
            raise UnreadableRecordError(f"the snapshot after {self._behind} is incomplete")
        for number in range(self._count):
            yield from self._chunks[number]
        yield from self._changes

    @staticmethod
    def changes(records: Iterable[Record]) -> Iterator[Record]:
        """The records that are not part of a snapshot."""
        return (record for record in records if not record[0].startswith(_PREFIX))


def _to_text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


def _to_bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
