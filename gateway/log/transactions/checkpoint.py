"""What was open at a place of a partition's log, so that a new leader need not read what lies before it.

A fact about a prefix that does not change: an old checkpoint is as true as a new one, and only has more behind it. It
travels as a property of the log's own entries, whose values are text: base64 of

    int8 version, 0 | int64 ledger | int64 entry | int64 offset
    | for each open transaction: int64 producer id | int16 producer epoch | int32 coordinator epoch | int64 first offset
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import NamedTuple

from gateway.log.transactions.state import OpenTransaction, PartitionTransactions
from gateway.pulsar.position import Position

_VERSION = 0
_HEAD = struct.Struct(">bqqq")
_OPEN = struct.Struct(">qhiq")


class MalformedCheckpointError(ValueError):
    """Anybody may write properties."""


class Checkpoint(NamedTuple):
    """At `position`, the first entry that it does not cover, whose first offset is `offset`."""

    position: Position
    offset: int
    open: Mapping[int, OpenTransaction]

    def transactions(self) -> PartitionTransactions:
        """The state from which the entries from `position` on are to be read."""
        return PartitionTransactions(self.open, aborted_from=self.offset)


def encode_checkpoint(checkpoint: Checkpoint) -> str:
    (ledger_id, entry_id, *_), offset, open_ = checkpoint
    parts = [_HEAD.pack(_VERSION, ledger_id, entry_id, offset)]
    for producer_id, (producer_epoch, first_offset, coordinator_epoch) in open_.items():
        parts.append(_OPEN.pack(producer_id, producer_epoch, coordinator_epoch, first_offset))
    return b64encode(b"".join(parts)).decode()


def decode_checkpoint(text: str) -> Checkpoint:
    """Raises MalformedCheckpointError."""
    try:
        data = b64decode(text, validate=True)
        version, ledger_id, entry_id, offset = _HEAD.unpack_from(data)
        rows = list(_OPEN.iter_unpack(data[_HEAD.size :]))
    except (ValueError, struct.error) as error:
        raise MalformedCheckpointError(str(error)) from error
    if version != _VERSION:
        raise MalformedCheckpointError(f"version {version}")
    if offset < 0 or any(not 0 <= first_offset < offset for *_, first_offset in rows):
        raise MalformedCheckpointError(f"transactions that begin behind the checkpoint at {offset}")
    open_ = {
        producer_id: OpenTransaction(producer_epoch, first_offset, coordinator_epoch)
        for producer_id, producer_epoch, coordinator_epoch, first_offset in rows
    }
    return Checkpoint(Position(ledger_id, entry_id), offset, open_)
