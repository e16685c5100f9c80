"""The control batch that ends a transaction in a partition (KIP-98): one record, which takes one offset.

Key:    int16 version 0 | int16 type: 0 abort, 1 commit
Value:  int16 version 0 | int32 coordinator epoch

The batch has the transactional and the control bit, the producer's id and epoch, and no sequence. Source: Kafka's
ControlRecordType and EndTransactionMarker.
"""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from protocol.kafka.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, NO_SEQUENCE, BatchHeader, Buffer, InvalidBatch
from protocol.kafka.records import Record, encode_batch, iter_records

MARKER_OFFSETS: Final = 1
_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_VERSION: Final = 0
_MAX_BYTES: Final = 64 * 1024
"""The limit for the records of a control batch, which is never compressed."""


class MarkerType(IntEnum):
    """Other types of control records are used only in Kafka's own Raft logs."""

    ABORT = 0
    COMMIT = 1


class TransactionMarker(NamedTuple):
    type: MarkerType
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


def encode_marker(
    marker: TransactionMarker,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = 0,
    *,
    log_append_time: bool = False,
) -> bytearray:
    """`log_append_time`: the timestamp is set by the broker. Raises ValueError for values that do not fit into the
    format."""
    try:
        key = _KEY.pack(_VERSION, marker.type)
        value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    except struct.error as error:
        raise ValueError(str(error)) from error
    return encode_batch(
        [Record(0, timestamp_ms, key, value)],
        base_offset=base_offset,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        base_sequence=NO_SEQUENCE,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
        log_append_time=log_append_time,
    )


def decode_marker(buffer: Buffer, position: int, header: BatchHeader) -> TransactionMarker | None:
    """The marker in the control batch at `position`; None if it has no record, or a record that ends no transaction.

    A log cleaner may remove the record of a control batch. Raises InvalidBatch.
    """
    if header.record_count == 0:
        return None
    if position + LOG_OVERHEAD_BYTES + header.batch_length > len(buffer) or header.size_bytes < HEADER_BYTES:
        raise InvalidBatch(f"control batch at byte {position} of {len(buffer)} is cut short")
    record = next(iter_records(buffer, position, header, _MAX_BYTES), None)
    if record is None:
        raise InvalidBatch(f"control batch that counts {header.record_count} records")
    key, value = record.key or b"", record.value or b""
    if len(key) < _KEY.size:
        raise InvalidBatch(f"control record with a key of {len(key)} bytes")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidBatch(f"control record of version {version}")
    if number not in tuple(MarkerType):
        return None
    if len(value) < _VALUE.size:
        raise InvalidBatch(f"transaction marker with a value of {len(value)} bytes")
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < 0:
        raise InvalidBatch(f"transaction marker of version {version}")
    return TransactionMarker(MarkerType(number), header.producer_id, header.producer_epoch, coordinator_epoch)
