"""The end of a log is read for its idempotent producers with little memory: many logs are read at the same time."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gateway.config.limits import Limits
from gateway.log.entries.decoding import DecodingThreads
from gateway.log.writing import producer_scan
from gateway.log.writing.producer_scan import Tail, read_tail
from protocol.kafka.records import Record, encode_batch
from tests.unit.gateway.log.fake_pulsar import FakeTopic

ENTRIES, RECORDS, ENTRY_BYTES = 100, 50, 50_000
AHEAD_BYTES = 300_000


async def test_little_is_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_scan, "SCANNED_AHEAD_BYTES", AHEAD_BYTES)
    topic = FakeTopic()
    records = [Record(delta, 1_000, None, bytes(ENTRY_BYTES // RECORDS), ()) for delta in range(RECORDS)]
    for number in range(ENTRIES):
        batch = encode_batch(records, producer_id=1, producer_epoch=0, base_sequence=number * RECORDS)
        topic.write(bytes(batch), RECORDS, "gateway", number)
    taken, most_ahead = 0, 0

    def take(entry: object) -> None:
        nonlocal taken, most_ahead
        most_ahead = max(most_ahead, topic.readers[-1].next_entry - taken)
        taken += 1

    decoding = DecodingThreads(1)
    try:
        pulsar, tail = cast(Any, topic), Tail(topic.last, topic.last)
        stats = await topic.internal_stats("topic")
        await read_tail(pulsar, pulsar, "topic", stats, tail, Limits(), decoding, take)
    finally:
        decoding.close()
    assert taken == ENTRIES
    assert most_ahead * ENTRY_BYTES <= 2 * AHEAD_BYTES
