"""Flink's exactly-once sink: its process is killed, and another process commits what the checkpoint names."""

import time
from pathlib import Path

import pytest

from tests.integration.confluent import Record, create_topic, produce
from tests.support.java_programs.flink_application import Copier
from tests.support.java_programs.transactional_copier import committed_values
from tests.support.names import unique_topic

PARTITIONS = 2
PARTS = 3
RECORDS_A_PART = 500
WITHIN_S = 120.0
pytestmark = pytest.mark.timeout(420)


def test_a_killed_job_goes_on_from_its_checkpoint(bootstrap: str, tmp_path: Path) -> None:
    source, target, job = (unique_topic(name) for name in ("flink-in", "flink-out", "flink-job"))
    create_topic(bootstrap, source, PARTITIONS)
    create_topic(bootstrap, target, PARTITIONS)
    written: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    with Copier(tmp_path, bootstrap, job, source, target) as copier:
        for part in range(PARTS):
            for partition in range(PARTITIONS):
                added = [b"%d-%d-%d" % (partition, part, number) for number in range(RECORDS_A_PART)]
                produce(bootstrap, source, [Record(value) for value in added], partition=partition)
                written[partition] += added
            copier.start()
            # Killed in the middle of its work; the last time, when all is done.
            left = 0 if part == PARTS - 1 else RECORDS_A_PART // 2
            await_copied(bootstrap, target, len(written[0]) - left, copier)
            copier.kill()
    assert sorted(copied(bootstrap, target)) == sorted(written)


def copied(bootstrap: str, topic: str) -> list[list[bytes]]:
    """The committed values of each partition, in order."""
    return [committed_values(bootstrap, topic, partition) for partition in range(PARTITIONS)]


def await_copied(bootstrap: str, topic: str, records: int, copier: Copier) -> None:
    """Until each partition has so many."""
    deadline = time.monotonic() + WITHIN_S
    while min(map(len, copied(bootstrap, topic))) < records:
        copier.check_alive()
        assert time.monotonic() < deadline, copier.last_words()
        time.sleep(0.3)
