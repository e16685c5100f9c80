"""Record batches without those of aborted transactions.

In other topics the clients skip them: the response lists the aborted transactions, and each ends at its marker. In a
compacted topic the marker may be removed: clients would skip all later records of the producer.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.log.entries.log_entry import Buffer
from gateway.log.transactions.aborted_list import AbortedTransaction
from protocol.kafka.batch import iter_transactional, parse_header
from protocol.kafka.offset_span import gap_batch


def committed_records(chunks: Sequence[Buffer], aborted: Sequence[AbortedTransaction]) -> list[Buffer]:
    """Whole batches. Others without records replace those of the aborted transactions, and their markers."""
    if not aborted:
        return [*chunks]
    by_producer: dict[int, list[AbortedTransaction]] = {}
    for each in aborted:
        by_producer.setdefault(each.producer_id, []).append(each)
    return [part for chunk in chunks for part in _committed(chunk, by_producer)]


def _committed(chunk: Buffer, aborted: dict[int, list[AbortedTransaction]]) -> list[Buffer]:
    parts: list[Buffer] = []
    view, done = memoryview(chunk), 0
    for position in iter_transactional(chunk):
        header = parse_header(chunk, position)
        found = aborted.get(header.producer_id, ())
        if any(each.first_offset <= header.base_offset <= each.last_offset for each in found):
            if position > done:
                parts.append(view[done:position])
            parts.append(gap_batch(header.base_offset, header.last_offset_delta + 1))
            done = position + header.size_bytes
    if done < len(view):
        parts.append(view[done:] if done else chunk)
    return parts
