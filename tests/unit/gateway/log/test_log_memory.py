"""What an open log takes of the memory: a gateway may lead ten thousand partitions."""

from __future__ import annotations

import tracemalloc

from gateway.log.bounds.log_bounds import LogBounds
from gateway.log.partition_log import PartitionLog
from gateway.log.shared import Shared
from gateway.pulsar.position import Position
from tests.unit.gateway.log.log_scene import Scene

LOGS = 100
MAX_BYTES = 10_000


def _open(shared: Shared, count: int) -> list[PartitionLog]:
    return [PartitionLog(f"topic-{number}", shared, LogBounds(Position(3, 4), 5, 0)) for number in range(count)]


async def test_an_open_log_takes_few_kilobytes() -> None:
    """Empty deques, sets and events were half of it. A producer, the last entries and the catalog come in addition."""
    shared = Scene().log._shared
    _open(shared, LOGS)  # what is made once
    tracemalloc.start()
    try:
        logs = _open(shared, LOGS)
        bytes_of_each = tracemalloc.get_traced_memory()[0] / len(logs)
    finally:
        tracemalloc.stop()
    assert bytes_of_each < MAX_BYTES
