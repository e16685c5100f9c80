"""What was open at a place of a partition's log, so that a new leader need not read what lies before it.

A fact about a prefix that does not change: an old checkpoint is as true as a new one, and only has more behind it. It
travels as a property of the log's own entries, and so do the aborted transactions since the checkpoint before, to which
it leads. The property's value is text: base64 of

    int8 version, 0 | int64 ledger | int64 entry | int64 offset
    | int64 ledger, int64 entry of the entry with the checkpoint before | int64 aborted from | int32 count of open ones
    | for each open transaction: int64 producer id | int16 producer epoch | int32 coordinator epoch | int64 first offset
    | for each aborted one: int64 producer id | int64 first offset | int64 last offset | int64 stable offset
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import NamedTuple

from gateway.log.transactions.state import AbortedTransaction, OpenTransaction, PartitionTransactions
from gateway.pulsar.position import Position

NO_ENTRY = Position(-1, -1)
_VERSION = 0
_HEAD = struct.Struct(">bqqqqqqi")
_OPEN = struct.Struct(">qhiq")
_ABORTED = struct.Struct(">qqqq")


class MalformedCheckpointError(ValueError):
    """Anybody may write properties."""


class Checkpoint(NamedTuple):
    """At `position`, the last entry that it covers, behind which `offset` comes.

    `aborted` are those whose markers lie from `aborted_from` on, in the order of the markers. Older ones are told by
    the entry at `before`; `NO_ENTRY` if there are none.
    """

    position: Position
    offset: int
    open: Mapping[int, OpenTransaction]
    aborted: tuple[AbortedTransaction, ...] = ()
    aborted_from: int = 0
    before: Position = NO_ENTRY

    def transactions(self) -> PartitionTransactions:
        """The state from which the entries behind `position` are to be read."""
        found = PartitionTransactions(self.open, aborted_from=self.offset)
        found.add_older(self.aborted, self.aborted_from)
        return found


def encode_checkpoint(checkpoint: Checkpoint) -> str:
    position, offset, open_, aborted, aborted_from, before = checkpoint
    parts = [_HEAD.pack(_VERSION, *position, offset, *before, aborted_from, len(open_))]
    for producer_id, (producer_epoch, first_offset, coordinator_epoch) in open_.items():
        parts.append(_OPEN.pack(producer_id, producer_epoch, coordinator_epoch, first_offset))
    parts += [_ABORTED.pack(*each) for each in aborted]
    return b64encode(b"".join(parts)).decode()


def decode_checkpoint(text: str) -> Checkpoint:
    """Raises MalformedCheckpointError."""
    try:
        data = b64decode(text, validate=True)
        version, ledger_id, entry_id, offset, before_ledger, before_entry, aborted_from, count = _HEAD.unpack_from(data)
        open_end = _HEAD.size + max(0, count) * _OPEN.size
        rows = list(_OPEN.iter_unpack(data[_HEAD.size : open_end]))
        aborted = tuple(AbortedTransaction(*row) for row in _ABORTED.iter_unpack(data[open_end:]))
    except (ValueError, struct.error) as error:
        raise MalformedCheckpointError(str(error)) from error
    if version != _VERSION or len(rows) != count:
        raise MalformedCheckpointError(f"version {version}, {len(rows)} of {count} open transactions")
    if not 0 <= aborted_from <= offset or any(not 0 <= first_offset < offset for *_, first_offset in rows):
        raise MalformedCheckpointError(f"transactions that begin behind the checkpoint at {offset}")
    if any(not aborted_from <= each.last_offset < offset for each in aborted):
        raise MalformedCheckpointError(f"transactions that were not aborted from {aborted_from} to {offset}")
    open_ = {
        producer_id: OpenTransaction(producer_epoch, first_offset, coordinator_epoch)
        for producer_id, producer_epoch, coordinator_epoch, first_offset in rows
    }
    before = Position(before_ledger, before_entry)
    return Checkpoint(Position(ledger_id, entry_id), offset, open_, aborted, aborted_from, before)
