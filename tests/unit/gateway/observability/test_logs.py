"""Events that clients can cause do not fill the log."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
import structlog
from structlog.testing import capture_logs

from gateway.log.entries.log_entry import from_pulsar
from gateway.observability.log_output import LogOutput
from gateway.observability.logs import MAX_FACT_CHARACTERS, SPARSE_S, SparseLog, configure, flush
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry
from protocol.pulsar.pulsar_commands_pb2 import BrokerEntryMetadata, MessageMetadata


@pytest.fixture
def restored_logs() -> Iterator[None]:
    before, hook = structlog.get_config(), sys.unraisablehook
    yield
    structlog.configure(**before)
    sys.unraisablehook = hook


def test_each_event_has_a_line_a_second() -> None:
    now_s = 0.0
    log = SparseLog(structlog.get_logger(), lambda: now_s)
    with capture_logs() as lines:
        for _ in range(3):
            log.error("one", number=1)
        log.error("other")
        now_s = SPARSE_S
        log.error("one", number=2)
        log.error("one", number=3)
    assert [(line["event"], line["left_out"], line.get("number")) for line in lines] == [
        ("one", 0, 1),
        ("other", 0, None),
        ("one", 2, 2),
    ]


def test_long_texts_are_cut() -> None:
    with capture_logs() as lines:
        SparseLog(structlog.get_logger()).info("one", client_id="x" * 30_000, number=1)
    [line] = lines
    assert (line["client_id"], line["number"]) == ("x" * MAX_FACT_CHARACTERS, 1)


class Fails:
    def __del__(self) -> None:
        raise ValueError("cannot be raised")


def test_exceptions_that_cannot_be_raised_have_one_line_a_second(
    capfd: pytest.CaptureFixture[str], restored_logs: None
) -> None:
    configure("info", json=True)
    for _ in range(100):
        Fails()
    assert flush()
    [line] = capfd.readouterr().err.splitlines()
    assert "cannot be raised" in line and "exception ignored" in line


@pytest.mark.parametrize("json", [True, False])
def test_what_a_client_is_called_writes_no_other_lines(
    capfd: pytest.CaptureFixture[str], json: bool, restored_logs: None
) -> None:
    configure("info", json=json)
    structlog.get_logger().info("one", client_id="x\nforged", topic="\x1b[2J")
    assert flush()
    [line] = capfd.readouterr().err.splitlines()
    assert "forged" in line
    assert "\x1b[2J" not in line


@pytest.mark.parametrize("file", ["/dev/full", "/dev/null"])
def test_lines_that_cannot_be_written_are_lost(file: str) -> None:
    descriptor = os.open(file, os.O_WRONLY if file == "/dev/full" else os.O_RDONLY)
    try:
        output = LogOutput(str, descriptor)
        output.start()
        for number in range(3):
            output.info(str(number))
            assert output.flush()
    finally:
        os.close(descriptor)


def test_unreadable_entries_do_not_fill_the_log() -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=1)
    entry = Entry(Position(1, 2), BrokerEntryMetadata(index=5), metadata, memoryview(b"\xff"))
    with capture_logs() as lines:
        for _ in range(1_000):
            from_pulsar(entry, max_bytes=1_000)
    assert len(lines) < 100
