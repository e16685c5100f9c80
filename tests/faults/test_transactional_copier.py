"""Kafka's TransactionalMessageCopier: the output equals the input, in order, though copiers abort and are killed.

COPIER_RECORDS=100000 is the size of Kafka's own system test.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.integration.confluent import Record, committed, create_topic, produce, watermarks
from tests.integration.transactional import await_markers
from tests.support.java_programs.transactional_copier import (
    Copier,
    await_copied,
    committed_values,
    copying,
    keep_copying,
)
from tests.support.names import unique_topic

PARTITIONS = 2
RECORDS = int(os.environ.get("COPIER_RECORDS", "1500")) // PARTITIONS
TRANSACTION_SIZE = 20 if RECORDS < 10_000 else 500
WITHIN_S = 60.0 + RECORDS / 100
pytestmark = pytest.mark.timeout(300 + RECORDS // 50)


def test_copiers_that_are_killed(bootstrap: str, tmp_path: Path) -> None:
    source, target = unique_topic("copied-from"), unique_topic("copied-to")
    for topic in (source, target):
        create_topic(bootstrap, topic, PARTITIONS)
    written = [[b"%d-%d" % (partition, number) for number in range(RECORDS)] for partition in range(PARTITIONS)]
    for partition, values in enumerate(written):
        produce(bootstrap, source, [Record(value) for value in values], partition=partition)
    copiers = [
        Copier(tmp_path, bootstrap, source, target, partition, TRANSACTION_SIZE) for partition in range(PARTITIONS)
    ]
    with copying(copiers):
        for number, copier in enumerate(copiers):
            await_copied(copier, RECORDS * (number + 1) // (PARTITIONS + 1), WITHIN_S)
            copier.kill()
        keep_copying(copiers, WITHIN_S)
    await_markers(bootstrap)
    assert [committed_values(bootstrap, target, partition) for partition in range(PARTITIONS)] == written
    ends = [watermarks(bootstrap, source, partition)[1] for partition in range(PARTITIONS)]
    assert committed(bootstrap, f"{target}-copiers", source, PARTITIONS) == ends
    assert any(copier.restarts for copier in copiers)
