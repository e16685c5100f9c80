"""Kafka Streams with exactly_once_v2: a word count whose process is killed, and that restores its counts elsewhere.

STREAMS_LINES is the number of lines; `make transactions` counts more.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.integration.confluent import Record, create_topic, produce
from tests.integration.native import Admin, wait_for
from tests.support.java_programs.streams_application import WordCount, await_counts, counts
from tests.support.names import unique_topic

PARTITIONS = 2
LINES = int(os.environ.get("STREAMS_LINES", "600"))
WORDS = [f"word{number}" for number in range(7)]
EARLY = "early"
"""Counted at the beginning and at the very end: in between, only the compacted part of the changelog has its count."""
KILLS = 2
WITHIN_S = 120.0 + LINES / 50
pytestmark = pytest.mark.timeout(300 + LINES // 50)


@pytest.fixture
def await_compaction(bootstrap: str, request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Waits until Pulsar has compacted a topic of the gateway; Kafka's topics are compacted or not."""
    if request.node.callspec.params["bootstrap"] == "kafka":
        return lambda topic: None
    admin = Admin(request.getfixturevalue("pulsar"))

    def wait(topic: str) -> None:
        for partition in range(PARTITIONS):
            is_compacted = partial(has_compacted_ledger, admin, f"{topic}-partition-{partition}")
            wait_for(is_compacted, "the changelog is compacted", WITHIN_S)

    return wait


def has_compacted_ledger(admin: Admin, topic: str) -> bool:
    found: int = admin.topic("GET", topic, "/internalStats")["compactedLedger"]["ledgerId"]
    return found >= 0


def test_every_word_is_counted_once(bootstrap: str, tmp_path: Path, await_compaction: Callable[[str], None]) -> None:
    """At the last start, the counts come from a changelog that was compacted."""
    source, target, application_id = (unique_topic(name) for name in ("lines", "counts", "words"))
    create_topic(bootstrap, source, PARTITIONS)
    create_topic(bootstrap, target, PARTITIONS)
    lines = [f"{WORDS[number % 7]} {WORDS[number * number % 7]}" for number in range(LINES)]
    for number in (*range(20), LINES - 1):
        lines[number] += f" {EARLY}"
    expected = Counter(word for line in lines for word in line.split())
    with WordCount(tmp_path, bootstrap, application_id, source, target) as application:
        for part in range(KILLS + 1):
            write(bootstrap, source, lines[LINES * part // (KILLS + 1) : LINES * (part + 1) // (KILLS + 1)])
            application.start()
            done = sum(expected.values()) * (part + 1) // (KILLS + 1)
            # Killed in the middle of its work; the last time, when all is done.
            total = done if part == KILLS else done * 2 // 3
            await_counts(bootstrap, target, PARTITIONS, total, application, WITHIN_S)
            application.kill()
            if part == KILLS - 1:
                await_compaction(f"{application_id}-counts-changelog")
    assert counts(bootstrap, target, PARTITIONS) == {word: [*range(1, count + 1)] for word, count in expected.items()}


def write(bootstrap: str, topic: str, lines: list[str]) -> None:
    for partition in range(PARTITIONS):
        records = [Record(line.encode()) for line in lines[partition::PARTITIONS]]
        produce(bootstrap, topic, records, partition=partition)
