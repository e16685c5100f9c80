"""Timestamps of records, and the search by timestamp."""

from __future__ import annotations

import time
from typing import Any

from tests.clients.lab import Lab, expect, record, shown

FEATURE = "timestamps"
CLOCK_TOLERANCE_MS = 60_000


def written(lab: Lab) -> Any:
    """records keep the time they are given"""
    topic = lab.topic()
    times = [_base_ms() + n * 1000 for n in range(10)]
    lab.client.produce(topic, [record(b"v", timestamp=each) for each in times])
    expect(shown(lab.witness.fetch(topic, 10), "timestamp"), [[each] for each in times])


def read(lab: Lab) -> Any:
    """times of records are read"""
    topic = lab.topic()
    times = [_base_ms() + n * 1000 for n in range(10)]
    lab.witness.produce(topic, [record(b"v", timestamp=each) for each in times])
    found = lab.client.fetch(topic, 10)
    expect([each.get("timestamp", times[index]) for index, each in enumerate(found)], times)
    return "timestamp" in found[0]


def searched(lab: Lab) -> Any:
    """offsets by time: before, between, at, after"""
    topic = lab.topic()
    base_ms = _base_ms()
    lab.witness.produce(topic, [record(b"v", timestamp=base_ms + n * 1000) for n in range(20)])
    asked = [base_ms - 5, base_ms + 6_500, base_ms + 7_000, base_ms + 19_000, base_ms + 19_001]
    found = [lab.client.call("offset_at", topic=topic, partition=0, timestamp=each) for each in asked]
    expect(found, [0, 7, 7, 19, None])


def of_the_server(lab: Lab) -> Any:
    """message.timestamp.type=LogAppendTime"""
    topic = lab.topic(message_timestamp_type="LogAppendTime")
    lab.client.produce(topic, [record(b"v") for _ in range(3)])
    lab.witness.produce(topic, [record(b"v", timestamp=_base_ms())])
    times = [time_ms for (time_ms,) in shown(lab.witness.fetch(topic, 4), "timestamp")]
    assert all(abs(time_ms - time.time() * 1000) < CLOCK_TOLERANCE_MS for time_ms in times)
    found = lab.client.fetch(topic, 4)
    expect([each.get("timestamp", times[index]) for index, each in enumerate(found)], times)


def _base_ms() -> int:
    """An hour ago: within the retention time."""
    return int(time.time() - 3600) * 1000
