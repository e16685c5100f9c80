"""Kafka Streams with exactly_once_v2: a word count whose process is killed, and that restores its counts elsewhere.

STREAMS_LINES is the number of lines; `make transactions` counts more.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.integration.confluent import Record, create_topic, produce
from tests.support.names import unique_topic
from tests.support.streams_application import WordCount
from tests.support.transactional_copier import committed_messages

PARTITIONS = 2
LINES = int(os.environ.get("STREAMS_LINES", "600"))
WORDS = [f"word{number}" for number in range(7)]
KILLS = 2
WITHIN_S = 120.0 + LINES / 50
pytestmark = pytest.mark.timeout(300 + LINES // 50)


def test_every_word_is_counted_once(bootstrap: str, tmp_path: Path) -> None:
    source, target, application_id = (unique_topic(name) for name in ("lines", "counts", "words"))
    create_topic(bootstrap, source, PARTITIONS)
    create_topic(bootstrap, target, PARTITIONS)
    lines = [f"{WORDS[number % 7]} {WORDS[number * number % 7]}" for number in range(LINES)]
    expected = Counter(word for line in lines for word in line.split())
    with WordCount(tmp_path, bootstrap, application_id, source, target) as application:
        for part in range(KILLS + 1):
            write(bootstrap, source, lines[LINES * part // (KILLS + 1) : LINES * (part + 1) // (KILLS + 1)])
            application.start()
            done = sum(expected.values()) * (part + 1) // (KILLS + 1)
            # Killed in the middle of its work; the last time, when all is done.
            await_counts(bootstrap, target, done if part == KILLS else done * 2 // 3, application)
            application.kill()
    assert counts(bootstrap, target) == {word: [*range(1, count + 1)] for word, count in expected.items()}


def write(bootstrap: str, topic: str, lines: list[str]) -> None:
    for partition in range(PARTITIONS):
        records = [Record(line.encode()) for line in lines[partition::PARTITIONS]]
        produce(bootstrap, topic, records, partition=partition)


def counts(bootstrap: str, topic: str) -> dict[str, list[int]]:
    """All counts of each word that a read_committed consumer reads, in order."""
    found: dict[str, list[int]] = defaultdict(list)
    for partition in range(PARTITIONS):
        for message in committed_messages(bootstrap, topic, partition):
            found[(message.key() or b"").decode()].append(int(message.value() or b""))
    return found


def await_counts(bootstrap: str, topic: str, total: int, application: WordCount) -> None:
    deadline = time.monotonic() + WITHIN_S
    while sum(map(len, counts(bootstrap, topic).values())) < total:
        application.check_alive()
        assert time.monotonic() < deadline, application.last_words()
        time.sleep(0.5)
