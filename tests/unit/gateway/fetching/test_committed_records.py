"""Readers of committed records in compacted topics: the gateway leaves out aborted records."""

from __future__ import annotations

from gateway.fetching.committed_records import committed_records
from gateway.log.transactions.aborted_list import AbortedTransaction
from protocol.kafka.batch import iter_headers
from protocol.kafka.offset_span import is_gap
from protocol.kafka.records import Record, encode_batch
from protocol.kafka.transaction_marker import MarkerType, TransactionMarker, encode_marker


def batch(base_offset: int, producer_id: int, count: int = 1, *, transactional: bool = True) -> bytes:
    records = [Record(delta, 1, b"key", b"value", ()) for delta in range(count)]
    return bytes(
        encode_batch(
            records, base_offset=base_offset, producer_id=producer_id, producer_epoch=0, base_sequence=0,
            transactional=transactional,
        )
    )  # fmt: skip


def marker(offset: int, producer_id: int) -> bytes:
    return bytes(encode_marker(TransactionMarker(MarkerType.ABORT, producer_id, 0, 0), 1, offset))


def test_batches_without_records_stand_for_what_was_aborted() -> None:
    chunks = [
        batch(0, 1) + batch(1, 2, count=3) + batch(4, 1) + marker(5, 1),
        batch(6, 1) + batch(7, 1, transactional=False),
    ]
    found = committed_records(chunks, [AbortedTransaction(1, 4, 5, 0), AbortedTransaction(3, 0, 9, 0)])
    headers = [header for part in found for _, header in iter_headers(part)]
    assert [(header.base_offset, header.last_offset, is_gap(header)) for header in headers] == [
        (0, 0, False), (1, 3, False), (4, 4, True), (5, 5, True), (6, 6, False), (7, 7, False),
    ]  # fmt: skip


def test_bytes_without_aborted_records_are_not_copied() -> None:
    chunks = [batch(0, 1), batch(1, 2)]
    assert committed_records(chunks, []) == chunks
    found = committed_records(chunks, [AbortedTransaction(1, 5, 6, 0)])
    assert all(part is chunk for part, chunk in zip(found, chunks, strict=True))
