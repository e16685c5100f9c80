"""Kafka Connect with an exactly-once source (KIP-618): each line of a file becomes one record, though the worker is
killed."""

from __future__ import annotations

import time
from pathlib import Path

from tests.integration.confluent import create_topic
from tests.support.java_programs.connect_worker import ConnectWorker
from tests.support.java_programs.transactional_copier import committed_values
from tests.support.names import unique_topic

KILLS = 2
CHUNK = 50
"""Lines that are appended together: the source writes them in one transaction."""
PART = 6 * CHUNK
LINES = PART * (KILLS + 1)
WITHIN_S = 90.0
FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"


def test_every_line_becomes_one_record(bootstrap: str, tmp_path: Path) -> None:
    topic, group = unique_topic("lines"), unique_topic("connect")
    create_topic(bootstrap, topic)
    file = tmp_path / "lines.txt"
    file.touch()
    lines = [b"line %d" % number for number in range(LINES)]
    with ConnectWorker(tmp_path, bootstrap, group) as worker:
        for part in range(KILLS + 1):
            worker.start(WITHIN_S)
            if part == 0:
                source = {"file": str(file), "topic": topic, "tasks_max": "1"}
                exactly_once = {"exactly_once_support": "required", "transaction_boundary": "poll"}
                worker.create("lines", WITHIN_S, connector_class=FILE_SOURCE, **source, **exactly_once)
            for start in range(part * PART, (part + 1) * PART, CHUNK):
                append(file, lines[start : start + CHUNK])
                # Killed in the middle of its work; the last time, when all is done.
                await_records(bootstrap, topic, start if part < KILLS else start + CHUNK, worker)
            worker.kill()
    assert committed_values(bootstrap, topic, 0) == lines


def append(file: Path, lines: list[bytes]) -> None:
    with file.open("ab") as out:
        out.writelines(line + b"\n" for line in lines)


def await_records(bootstrap: str, topic: str, count: int, worker: ConnectWorker) -> None:
    deadline = time.monotonic() + WITHIN_S
    while len(committed_values(bootstrap, topic, 0)) < count:
        assert time.monotonic() < deadline, worker.last_words()
        time.sleep(0.2)
