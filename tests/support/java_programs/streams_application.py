"""Kafka Streams with exactly_once_v2: WordCount.java, in a process that a test may kill."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path

from deploy.local.jars import artifact_classpath
from tests.support.java_programs.java_application import JavaApplication
from tests.support.java_programs.java_clients import SOURCES
from tests.support.java_programs.transactional_copier import committed_messages

VERSION = "3.9.2"


class WordCount(JavaApplication):
    """Counts the words of `source` into `target`. After a restart, it restores its counts from the changelog."""

    def __init__(self, work_dir: Path, bootstrap: str, application_id: str, source: str, target: str) -> None:
        classpath = artifact_classpath("org.apache.kafka", "kafka-streams", VERSION)
        super().__init__(work_dir, SOURCES / "streams" / "WordCount.java", classpath, ["-Xmx256m"])
        self._work_dir = work_dir
        self._starts = 0
        self._arguments = (bootstrap, application_id, source, target)

    def start(self) -> None:
        """Start with an empty state directory, as on another machine."""
        self._starts += 1
        self.run(*self._arguments, str(self._work_dir / f"state-{self._starts}"))


def counts(bootstrap: str, topic: str, partitions: int) -> dict[str, list[int]]:
    """All counts of each word that a read_committed consumer reads, in order."""
    found: dict[str, list[int]] = defaultdict(list)
    for partition in range(partitions):
        for message in committed_messages(bootstrap, topic, partition):
            found[(message.key() or b"").decode()].append(int(message.value() or b""))
    return found


def await_counts(
    bootstrap: str, topic: str, partitions: int, total: int, application: WordCount, within_s: float
) -> None:
    deadline = time.monotonic() + within_s
    while sum(map(len, counts(bootstrap, topic, partitions).values())) < total:
        application.check_alive()
        assert time.monotonic() < deadline, application.last_words()
        time.sleep(0.5)
