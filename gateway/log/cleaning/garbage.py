"""The messages of a log's prefix that are no longer needed: aborted records, replaced records, old deletions.

All transactions of the prefix are decided. So the result stays true: to remove these messages late, or only some of
them, removes nothing that is needed. Messages without a compaction key are left to Pulsar.

Source: Kafka's LogCleaner and Cleaner.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from gateway.log.transactions.aborted_list import AbortedTransaction

MAX_KEYS = 200_000
"""Keys in memory at the same time, in about 50 MB. The keys of a topic with more are processed in several shares."""
MAX_REMOVED = 200_000
MAX_ABORTED = 1_000
"""Aborted transactions of one prefix; later ones are found by the next cleaning."""


class TooManyKeysError(Exception):
    """The keys must be divided into more shares."""


class SharedKeysError(Exception):
    """A message without a compaction key: Pulsar's compaction would remove a needed message, or bring back old values.
    """


class Share(NamedTuple):
    """A share of the keys, by their hashes."""

    number: int = 0
    of: int = 1


ALL = Share()


class ViewRecord(NamedTuple):
    """A record of the compacted view. `producer_id` is that of its transaction, None without one."""

    offset: int
    key: bytes | None
    compaction_key: bytes | None
    is_deletion: bool
    producer_id: int | None


class _Latest(NamedTuple):
    compaction_key: bytes | None
    unneeded: bool
    """A deletion that all consumers have seen, and no older record of the key is left."""


class Garbage:
    """The garbage of a prefix, whose records are added in order."""

    def __init__(self, aborted: Sequence[AbortedTransaction], deletions_before: int, share: Share = ALL) -> None:
        """``aborted``: all that have a record in the prefix. Deletions from offset ``deletions_before`` are kept."""
        self.compaction_keys: list[bytes] = []
        """The compaction keys of the messages to remove."""
        self.aborted: set[AbortedTransaction] = set()
        """The aborted transactions of which the view still has records."""
        self._of_producer: dict[int, list[AbortedTransaction]] = {}
        for each in sorted(aborted, key=_last_offset):
            self._of_producer.setdefault(each.producer_id, []).append(each)
        self._deletions_before = deletions_before
        self._share = share
        self._latest: dict[bytes, _Latest] = {}
        self.finished = False
        """The prefix has ended: further records are only checked."""

    @property
    def is_full(self) -> bool:
        return len(self.compaction_keys) >= MAX_REMOVED or len(self.aborted) >= MAX_ABORTED

    def add_marker(self, compaction_key: bytes | None) -> None:
        """The marker is not needed to know that the transaction is decided. Raises SharedKeysError."""
        if self.finished and compaction_key is None:  # Pulsar's compaction would remove it, and it is still needed
            raise SharedKeysError
        if self._share.number == 0 and not self.finished:
            self._remove(compaction_key)

    def add(self, record: ViewRecord) -> None:
        """Raises TooManyKeysError and SharedKeysError."""
        if record.producer_id is not None and record.key is not None and record.compaction_key is None:
            raise SharedKeysError
        if self.finished:
            # Pulsar would remove it, and older values would stay.
            if record.is_deletion and record.compaction_key is None:
                raise SharedKeysError
            return
        aborted = self._transaction_of(record)
        if aborted is not None:
            self.aborted.add(aborted)
            if self._share.number == 0:
                self._remove(record.compaction_key)
        elif record.key is not None:
            self._add_committed(record, blake2b(record.key, digest_size=16).digest())

    def _add_committed(self, record: ViewRecord, digest: bytes) -> None:
        if int.from_bytes(digest[:4], "big") % self._share.of != self._share.number:
            return
        before = self._latest.get(digest)
        if before is not None:
            self._remove(before.compaction_key)
        elif len(self._latest) >= MAX_KEYS:
            raise TooManyKeysError
        unneeded = record.is_deletion and before is None and record.offset < self._deletions_before
        self._latest[digest] = _Latest(record.compaction_key, unneeded)

    def finish(self) -> None:
        """The end of the prefix. A message that was replicated twice has its compaction key twice: the later one stays.
        """
        for each in self._latest.values():
            if each.unneeded:
                self._remove(each.compaction_key)
        needed = {each.compaction_key for each in self._latest.values() if not each.unneeded}
        self.compaction_keys = [key for key in dict.fromkeys(self.compaction_keys) if key not in needed]
        self._latest.clear()
        self.finished = True

    def _transaction_of(self, record: ViewRecord) -> AbortedTransaction | None:
        if record.producer_id is None:
            return None
        found = self._of_producer.get(record.producer_id, [])
        number = bisect_left(found, record.offset, key=_last_offset)
        return found[number] if number < len(found) and found[number].first_offset <= record.offset else None

    def _remove(self, compaction_key: bytes | None) -> None:
        if compaction_key is not None:
            self.compaction_keys.append(compaction_key)


def _last_offset(aborted: AbortedTransaction) -> int:
    return aborted.last_offset
