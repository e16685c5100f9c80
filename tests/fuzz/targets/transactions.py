"""Transactions in logs: records of `__transaction_state`, markers, and checkpoints in entries' properties."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from random import Random

from coordinator.state_machine import MalformedRecordError
from coordinator.topics import TopicPartition
from coordinator.transaction.metadata import TransactionMetadata
from coordinator.transaction.records.transaction_log import decode_transaction, encode_transaction
from coordinator.transaction.states import TransactionState
from gateway.log.transactions.aborted_list import AbortedTransaction
from gateway.log.transactions.checkpoint import (
    Checkpoint,
    MalformedCheckpointError,
    decode_checkpoint,
    encode_checkpoint,
)
from gateway.log.transactions.events import events_of
from gateway.log.transactions.state import EndedTransaction, OpenTransaction, PartitionTransactions
from gateway.pulsar.position import Position
from protocol.kafka.batch import CorruptBatch, InvalidBatch, iter_headers
from protocol.kafka.records import Record, encode_batch
from protocol.kafka.transaction_marker import MarkerType, TransactionMarker, encode_marker
from tests.fuzz.target import Target, reason
from tests.fuzz.targets.records import sign_batch

_LENGTH = struct.Struct(">H")


def _record_seeds(random: Random) -> Sequence[bytes]:
    partitions = frozenset(TopicPartition(topic, number) for topic in ("t", "ü") for number in range(3))
    values = [
        TransactionMetadata(
            producer_id=7, producer_epoch=3, timeout_ms=60_000, state=state, last_update_ms=9, start_ms=8,
            partitions=frozenset() if state is TransactionState.EMPTY else partitions, previous_producer_id=6,
            next_producer_id=8, client_version=2,
        )
        for state in TransactionState
    ]  # fmt: skip
    records = [encode_transaction("id", value, version) for value in values for version in (0, 1)]
    records.append(encode_transaction("id", None, 1))
    return [_LENGTH.pack(len(key)) + (b"\0" if value is None else b"\1" + value) + key for key, value in records]


def check_record(data: bytes) -> str:
    """The length of the key, whether there is a value, value, key."""
    if len(data) < 3:
        return "short"
    key_bytes = _LENGTH.unpack_from(data)[0]
    end = max(3, len(data) - key_bytes)
    key, value = data[end:], data[3:end] if data[2] else None
    try:
        decoded = decode_transaction(key, value)
    except MalformedRecordError as error:
        return reason(error).replace("\n", " ")
    if decoded is None:
        return "unknown kind"
    transactional_id, metadata = decoded
    for version in (0, 1):
        try:
            record = encode_transaction(transactional_id, metadata, version)
        except ValueError:  # another version has more fields
            continue
        again = decode_transaction(record.key, record.value)
        assert again is not None
        assert version == 0 or metadata is None or metadata.state is TransactionState.EMPTY or again == decoded
    return "removed" if metadata is None else metadata.state.name


def _checkpoint_seeds(random: Random) -> Sequence[bytes]:
    opened = {number: OpenTransaction(number, 10 * number, number - 1) for number in range(4)}
    ended = {number: EndedTransaction(number, number) for number in range(3)}
    aborted = tuple(AbortedTransaction(number, number, 20 + number, 20) for number in range(2))
    found = [
        Checkpoint(Position(3, 4), 50, {}),
        Checkpoint(Position(3, 4), 50, opened),
        Checkpoint(Position(3, 4), 50, opened, aborted, 9, Position(3, 2), ended),
    ]
    return [encode_checkpoint(each).encode() for each in found]


def check_checkpoint(data: bytes) -> str:
    try:
        checkpoint = decode_checkpoint(data.decode("latin-1"))
    except MalformedCheckpointError as error:
        return reason(error)
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint
    assert checkpoint.transactions().last_stable_offset(checkpoint.offset) <= checkpoint.offset
    return f"{min(len(checkpoint.open), 3)} open"


def _batch_seeds(random: Random) -> Sequence[bytes]:
    data = [
        bytes(
            encode_batch(
                [Record(0, 1, b"k", b"v")], producer_id=producer_id, producer_epoch=1, base_sequence=0,
                transactional=True,
            )
        )
        for producer_id in (5, 6)
    ]  # fmt: skip
    markers = [bytes(encode_marker(TransactionMarker(kind, 5, 1, 2), 9)) for kind in MarkerType]
    return [*data, *markers, *(data[0] + data[1] + marker for marker in markers), markers[0] + data[0] + markers[1]]


def check_events(data: bytes) -> str:
    """Of whole batches, which entries are checked for."""
    try:
        end = sum(max(0, header.last_offset_delta) + 1 for _, header in iter_headers(data))
        events = events_of(data, 0)
    except (CorruptBatch, InvalidBatch) as error:
        return reason(error)
    transactions = PartitionTransactions()
    for event in events:
        event.apply_to(transactions)
    assert all(0 <= each.first_offset <= each.last_offset for each in transactions.aborted_from_to(0, 2**63))
    if all(event.offset < end for event in events):
        assert 0 <= transactions.last_stable_offset(end) <= end
    kinds = {None if event.marker is None else event.marker.type.name for event in events}
    return f"{sorted(map(str, kinds))} {len(transactions.open)} open"


TARGETS = (
    Target("transaction records", _record_seeds, check_record),
    Target("transaction checkpoints", _checkpoint_seeds, check_checkpoint),
    Target("transaction markers", _batch_seeds, check_events, repair=sign_batch),
)
