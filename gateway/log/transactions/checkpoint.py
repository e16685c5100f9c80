"""The open transactions at a position of a partition's log, so that a new leader need not read the log before it.

A checkpoint describes a prefix of the log, which never changes: an old checkpoint is as correct as a new one, only
more entries follow it. Checkpoints are properties of the log's own entries. Each also has the transactions that were
aborted since the previous checkpoint, and the position of the previous one. The property's value is text: base64 of

    int8 version, 0 or 1 | int64 ledger | int64 entry | int64 offset
    | int64 ledger, int64 entry of the entry with the previous one | int64 aborted from | int32 count of open ones
    | from version 1 on: int32 count of ended ones
    | for each open transaction: int64 producer id | int16 producer epoch | int32 coordinator epoch | int64 first offset
    | for each ended one: int64 producer id | int16 producer epoch | int32 coordinator epoch
    | for each aborted one: int64 producer id | int64 first offset | int64 last offset | int64 stable offset

A gateway that does not know version 1 reads the log from its flag on.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from gateway.log.transactions.aborted_list import AbortedTransaction
from gateway.log.transactions.state import EndedTransaction, OpenTransaction, PartitionTransactions
from gateway.pulsar.position import Position

NO_ENTRY = Position(-1, -1)
MAX_ENDED = 1_000
"""The number of ended producers in a checkpoint (about 20 KB). An earlier coordinator's marker comes soon, if late."""
_VERSION, _FIRST_WITH_ENDED = 1, 1
_HEAD = struct.Struct(">bqqqqqqi")
_HEAD_CHARACTERS = 4 * -(-_HEAD.size // 3)
_COUNT = struct.Struct(">i")
_OPEN = struct.Struct(">qhiq")
_ENDED = struct.Struct(">qhi")
_ABORTED = struct.Struct(">qqqq")


class MalformedCheckpointError(ValueError):
    """The text is not a checkpoint: anybody may write properties."""


class Checkpoint(NamedTuple):
    """The state at `position`, the last entry that the checkpoint covers. `offset` is the next offset after that entry.

    `aborted` are the transactions whose markers lie from `aborted_from` on, in the order of the markers. The entry
    at `before` has the older ones; `NO_ENTRY` if there are none. `ended` are the last markers of the producers whose
    markers are the newest, by producer id, the latest at the end.
    """

    position: Position
    offset: int
    open: Mapping[int, OpenTransaction]
    aborted: tuple[AbortedTransaction, ...] = ()
    aborted_from: int = 0
    before: Position = NO_ENTRY
    ended: Mapping[int, EndedTransaction] = MappingProxyType({})

    def transactions(self) -> PartitionTransactions:
        """The state to begin with before the entries after `position` are read."""
        found = PartitionTransactions(self.open, self.offset, self.ended)
        found.add_older(self.aborted, self.aborted_from)
        return found


def encode_checkpoint(checkpoint: Checkpoint) -> str:
    position, offset, open_, aborted, aborted_from, before, ended = checkpoint
    head = _HEAD.pack(_VERSION, *position, offset, *before, aborted_from, len(open_))
    parts = [head, _COUNT.pack(len(ended))]
    for producer_id, (producer_epoch, first_offset, coordinator_epoch) in open_.items():
        parts.append(_OPEN.pack(producer_id, producer_epoch, coordinator_epoch, first_offset))
    parts += [_ENDED.pack(producer_id, *epochs) for producer_id, epochs in ended.items()]
    parts += [_ABORTED.pack(*each) for each in aborted]
    return b64encode(b"".join(parts)).decode()


def decode_place(text: str) -> Checkpoint:
    """The checkpoint without its transactions, which are not checked: this takes no longer if there are many.

    Raises MalformedCheckpointError.
    """
    try:
        head = b64decode(text[:_HEAD_CHARACTERS], validate=True)
        version, ledger_id, entry_id, offset, before_ledger, before_entry, aborted_from, _ = _HEAD.unpack_from(head)
    except (ValueError, struct.error) as error:
        raise MalformedCheckpointError(str(error)) from error
    if not 0 <= version <= _VERSION:
        raise MalformedCheckpointError(f"version {version}")
    before = Position(before_ledger, before_entry)
    found = Checkpoint(Position(ledger_id, entry_id), offset, {}, aborted_from=aborted_from, before=before)
    _check(found)
    return found


def decode_checkpoint(text: str) -> Checkpoint:
    """Raises MalformedCheckpointError."""
    try:
        data = b64decode(text, validate=True)
        version, ledger_id, entry_id, offset, before_ledger, before_entry, aborted_from, open_count = _HEAD.unpack_from(
            data
        )
        if not 0 <= version <= _VERSION:
            raise MalformedCheckpointError(f"version {version}")
        end, ended_count = _HEAD.size, 0
        if version >= _FIRST_WITH_ENDED:
            (ended_count,) = _COUNT.unpack_from(data, end)
            end += _COUNT.size
        open_rows, end = _rows(_OPEN, open_count, data, end)
        ended_rows, end = _rows(_ENDED, ended_count, data, end)
        aborted = tuple(AbortedTransaction(*row) for row in _ABORTED.iter_unpack(data[end:]))
    except (ValueError, struct.error) as error:
        raise MalformedCheckpointError(str(error)) from error
    open_ = {
        producer_id: OpenTransaction(producer_epoch, first_offset, coordinator_epoch)
        for producer_id, producer_epoch, coordinator_epoch, first_offset in open_rows
    }
    ended = {producer_id: EndedTransaction(*epochs) for producer_id, *epochs in ended_rows}
    before = Position(before_ledger, before_entry)
    found = Checkpoint(Position(ledger_id, entry_id), offset, open_, aborted, aborted_from, before, ended)
    _check(found)
    return found


def _rows(row: struct.Struct, count: int, data: bytes, start: int) -> tuple[list[tuple[int, ...]], int]:
    """The rows, and the index where they end. Raises MalformedCheckpointError."""
    end = start + count * row.size
    if count < 0 or end > len(data):
        raise MalformedCheckpointError(f"{count} transactions in {len(data) - start} bytes")
    return [*row.iter_unpack(data[start:end])], end


def _check(found: Checkpoint) -> None:
    """Raises MalformedCheckpointError."""
    offset, aborted_from = found.offset, found.aborted_from
    if not (found.position.is_possible and found.before.is_possible):
        raise MalformedCheckpointError(f"from {found.before} to {found.position}")
    if not 0 <= aborted_from <= offset or any(not 0 <= each.first_offset < offset for each in found.open.values()):
        raise MalformedCheckpointError(f"transactions that begin after the checkpoint at {offset}")
    if any(not aborted_from <= each.last_offset < offset for each in found.aborted):
        raise MalformedCheckpointError(f"transactions that were not aborted from {aborted_from} to {offset}")
