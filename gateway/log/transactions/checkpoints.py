"""The checkpoints in a log's entries: when the next one is written, and where the newest one is.

Each entry that a gateway writes to a log with transactions has a checkpoint, or the position of the entry with the
newest one. So the last entry leads to everything that has to be known about the log before it. In entries that were
replicated from other clusters, the positions are those of the other clusters, and are ignored.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import NamedTuple

from gateway.log.bounds.transaction_flag import CHECKPOINT, CHECKPOINT_AT
from gateway.log.entries.entry_stream import read_entries
from gateway.log.entries.log_entry import gateway_properties
from gateway.log.reading.positions import back_from
from gateway.log.resources import Resources
from gateway.log.transactions.checkpoint import (
    Checkpoint,
    MalformedCheckpointError,
    decode_checkpoint,
    decode_place,
    encode_checkpoint,
)
from gateway.log.transactions.cleaned import end_of_view
from gateway.pulsar.position import Position, first_index, parse_position
from gateway.pulsar.reader import Entry, Start
from protocol.pulsar.frames import encode_metadata_properties

EVERY_BYTES, EVERY_ENTRIES, EVERY_ABORTED = 4 * 1024 * 1024, 1_000, 256
"""The distance between two checkpoints: a new leader reads this much in about a tenth of a second."""
AGAIN_AFTER_ENTRIES = 100
"""A checkpoint that was too large for its entry is tried again in an entry with more room, or after this number."""
MOST_ABORTED = 4_096
"""One checkpoint has about this number of aborted transactions at most (180 KB). If none was written for longer, for
example because other clusters wrote the log, several checkpoints are written later, one after the other: an entry
has no room for all of these transactions."""
LARGE_CHARACTERS = 256 * 1024
"""A checkpoint of this length is decoded in a thread: it has some thousands of open transactions, and takes 10 ms."""
LOOK_BACK_ENTRIES = (1, 8, 64)
"""The numbers of entries at the log's end that are searched for a checkpoint: native producers may have written after
it. If they wrote more, a property of the managed ledger has the position of a checkpoint that is not very old."""
KEPT_EVERY = 64
"""After this number of checkpoints, the property is updated: every 256 MB, or more often."""


class Tag(NamedTuple):
    """What an entry carries besides its batches: fields of its metadata, and the checkpoint in these fields."""

    fields: bytes = b""
    checkpoint: Checkpoint | None = None


MakeCheckpoint = Callable[[Checkpoint | None], Checkpoint]
"""Makes a checkpoint for the kept place or, if there is none, for what is resolved by now."""
NextTag = Callable[[int, int], Tag]
"""Arguments: the bytes of the entry that is about to be sent, and the bytes by which it may still grow."""


class Named(NamedTuple):
    """A checkpoint in the log: the entry that has it, and the offset up to which it reaches."""

    entry: Position
    offset: int


class Checkpoints:
    """The checkpoints of one log."""

    __slots__ = (
        "_aborted", "_aborted_since_place", "_again_after", "_bytes", "_entries", "_is_wanted", "_names",
        "_needed_bytes", "_places", "_sent_for", "newest",
    )  # fmt: skip

    def __init__(self) -> None:
        self.newest: Named | None = None
        self._bytes = self._entries = self._aborted = 0
        """Counted since the last checkpoint was sent."""
        self._names = encode_metadata_properties([(CHECKPOINT_AT, "")])
        """Until a checkpoint is known, entries say only that there are transactions: other clusters look for that."""
        self._places: list[Checkpoint] = []
        """Places after the newest checkpoint that need a checkpoint of their own. They lack aborted transactions."""
        self._aborted_since_place = 0
        self._sent_for: Checkpoint | None = None
        self._needed_bytes = 1
        """The size of the last checkpoint that was too large for its entry."""
        self._is_wanted = False
        """An entry is written for the sake of a checkpoint."""
        self._again_after = 0
        """The number of entries, counted as above, after which a checkpoint of this size is tried again."""

    def want(self) -> None:
        """The next entry needs a checkpoint."""
        self._is_wanted = True

    def is_far_behind(self, last: Position) -> bool:
        """Whether a new leader has to read much to get from the newest checkpoint to the log's end."""
        if self.newest is None or self._places or self._sent_for is not None:  # it does not reach as far as its entry
            return True
        ledger_id, entry_id = self.newest.entry
        return ledger_id != last.ledger_id or last.entry_id - entry_id >= EVERY_ENTRIES

    def next_tag(self, size_bytes: int, room_bytes: int, make: MakeCheckpoint | None) -> Tag:
        """The tag of the entry of ``size_bytes`` that is about to be sent. The tag may take ``room_bytes``."""
        self._bytes += size_bytes
        self._entries += 1
        has_room = room_bytes >= self._needed_bytes or self._entries > self._again_after > 0
        if make is not None and has_room and (self._is_wanted or self._is_due()):
            self._is_wanted = False
            place = self._places[0] if self._places else None
            checkpoint = make(place)
            fields = encode_metadata_properties([(CHECKPOINT, encode_checkpoint(checkpoint))])
            if len(fields) <= room_bytes:
                self._bytes = self._entries = self._aborted = self._again_after = 0
                self._needed_bytes, self._sent_for = 1, place
                return Tag(fields, checkpoint)
            self._needed_bytes, self._again_after = len(fields), self._entries + AGAIN_AFTER_ENTRIES - 1
        return Tag(self._names)

    def _is_due(self) -> bool:
        if self.newest is None or (self._places and self._places[0] is not self._sent_for):
            return True
        return self._bytes >= EVERY_BYTES or self._entries >= EVERY_ENTRIES or self._aborted >= EVERY_ABORTED

    def aborted(self) -> bool:
        """Count an aborted transaction for the next checkpoint. True if there are enough for one."""
        self._aborted += 1
        self._aborted_since_place += 1
        return self._aborted_since_place >= MOST_ABORTED

    def keep_place(self, place: Checkpoint) -> None:
        """Write a checkpoint for this place later, unless a checkpoint after it is written first."""
        self._aborted_since_place = 0
        self._places.append(place)

    def written(self, entry: Position, offset: int) -> None:
        """The entry with this checkpoint is in the log."""
        if self.newest is None or offset > self.newest.offset:
            self.newest = Named(entry, offset)
            self._names = encode_metadata_properties([(CHECKPOINT_AT, f"{entry.ledger_id}:{entry.entry_id}")])
            while self._places and self._places[0].offset <= offset:
                del self._places[0]

    def seen(self, entry: Entry) -> None:
        """An entry was read that another gateway may have written."""
        found = checkpoint_of(entry, decode_place if _has_large(entry) else decode_checkpoint)
        if found is not None:
            self.written(entry.position, found.offset)


def checkpoint_of(entry: Entry, decode: Callable[[str], Checkpoint]) -> Checkpoint | None:
    """The checkpoint that the entry itself has."""
    text = _property(entry, CHECKPOINT)
    if text is None or entry.index is None:
        return None
    try:
        found = decode(text)
    except MalformedCheckpointError:  # gateways never write malformed checkpoints
        return None
    is_behind = max(found.position, found.before) < entry.position
    return found if is_behind and found.offset <= first_index(entry.index, entry.num_messages) else None


async def _read_checkpoint_of(resources: Resources, topic: str, entry: Entry) -> Checkpoint | None:
    if _has_large(entry):
        return await resources.decoding.run(partial(checkpoint_of, entry, decode_checkpoint), topic)
    return checkpoint_of(entry, decode_checkpoint)


def _has_large(entry: Entry) -> bool:
    return len(_property(entry, CHECKPOINT) or "") >= LARGE_CHARACTERS


async def find_last(
    resources: Resources, topic: str, last: Position, *, compacted: bool = False
) -> tuple[Position, Checkpoint] | None:
    """The newest checkpoint that the log's end leads to, and its entry. Raises as ``read_checkpoint`` does.

    With ``compacted`` the topic is read as Pulsar's compaction has left it.
    """
    last = await end_of_view(resources, topic, last, compacted=compacted)
    if last.entry_id < 0:  # compaction has removed all entries
        return None
    for count in LOOK_BACK_ENTRIES:
        entry = await _last_with_some(resources, topic, last, count, compacted=compacted)
        if entry is None:
            continue
        found = await _read_checkpoint_of(resources, topic, entry)
        if found is not None:
            return entry.position, found
        return await _found_at(resources, topic, _named_by(entry), compacted=compacted)
    properties = await resources.admin.topics.managed_ledger_properties(topic)
    return await _found_at(resources, topic, _entry_at(properties.get(CHECKPOINT_AT, "")), compacted=compacted)


async def keep(resources: Resources, topic: str, entry: Position) -> None:
    """Store its position as a property, in case native producers write many entries after it. Raises PulsarError."""
    await resources.admin.topics.put_properties(topic, {CHECKPOINT_AT: f"{entry.ledger_id}:{entry.entry_id}"})


async def _found_at(
    resources: Resources, topic: str, position: Position | None, *, compacted: bool
) -> tuple[Position, Checkpoint] | None:
    found = None if position is None else await read_checkpoint(resources, topic, position, compacted=compacted)
    return None if position is None or found is None else (position, found)


async def read_checkpoint(
    resources: Resources, topic: str, position: Position, *, compacted: bool = False
) -> Checkpoint | None:
    """The checkpoint in that entry; None if compaction has removed it, or retention has, with all entries before it.

    Raises MalformedCheckpointError if the entry has no checkpoint, PulsarError and TimeoutError.
    """
    if await end_of_view(resources, topic, position, compacted=compacted) < position:
        return None
    async with aclosing(_entries(resources, topic, position, position, compacted=compacted)) as entries:
        async for entry in entries:
            if entry.position != position:
                break
            found = await _read_checkpoint_of(resources, topic, entry)
            if found is None:
                raise MalformedCheckpointError(f"the entry at {position} has no checkpoint")
            return found
    return None


async def _last_with_some(
    resources: Resources, topic: str, last: Position, count: int, *, compacted: bool
) -> Entry | None:
    stats = await resources.admin.topics.internal_stats(topic) if count > 1 else None
    start = last if stats is None else back_from(stats.ledgers, last, count - 1)
    if compacted and start == "earliest":  # not a short log: retention has removed the ledgers that were compacted
        return None
    found = None
    async with aclosing(_entries(resources, topic, start, last, compacted=compacted)) as entries:
        async for entry in entries:
            if _property(entry, CHECKPOINT) is not None or _named_by(entry) is not None:
                found = entry
    return found


def _entries(
    resources: Resources, topic: str, start: Start, last: Position, *, compacted: bool
) -> AsyncGenerator[Entry, None]:
    return read_entries(resources.client, topic, start, last, read_compacted=compacted, admin=resources.admin)


def _named_by(entry: Entry) -> Position | None:
    found = _entry_at(_property(entry, CHECKPOINT_AT) or "")
    return found if found is not None and found < entry.position else None


def _entry_at(text: str) -> Position | None:
    found = parse_position(text)
    return found if found is not None and min(found) >= 0 else None


def _property(entry: Entry, name: str) -> str | None:
    if entry.metadata.HasField("replicated_from"):
        return None
    key = name.encode()
    return next((p.value.decode(errors="replace") for p in gateway_properties(entry) if p.key == key), None)
