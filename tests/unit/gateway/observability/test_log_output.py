"""A log that nobody reads blocks nothing, and a log that is read is complete, whatever ends the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from gateway.observability.log_output import MAX_WAITING_LINES, LogOutput

LINES = 20_000
"""More than a pipe and the queue have room for."""
DEADLINE_S = 60


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    os.close(read)
    os.close(write)


def read_until(descriptor: int, is_complete: Callable[[list[str]], bool]) -> list[str]:
    text = b""
    while not (text.endswith(b"\n") and is_complete(text.decode().splitlines())):
        text += os.read(descriptor, 1_000_000)
    return text.decode().splitlines()


def dropped_line(count: int) -> str:
    return f"{count} dropped"


def written_in(lines: list[str]) -> int:
    return sum(line.startswith("line ") for line in lines)


def dropped_in(lines: list[str]) -> int:
    return sum(int(line.split()[0]) for line in lines if "dropped" in line)


@pytest.mark.parametrize("blocking", [True, False])
def test_a_pipe_that_nobody_reads_blocks_nothing(pipe: tuple[int, int], blocking: bool) -> None:
    read, write = pipe
    os.set_blocking(write, blocking)
    output = LogOutput(dropped_line, write)
    output.start()
    for number in range(LINES):
        output.info(f"line {number:06} {'x' * 100}")
    assert 0 < output.dropped < LINES
    lines = read_until(read, lambda lines: written_in(lines) + dropped_in(lines) == LINES)
    assert lines[0].startswith("line 000000 ")
    assert dropped_in(lines) == output.dropped
    assert output.flush()


def test_lines_that_cannot_be_written_are_counted() -> None:
    """Another descriptor than of the fixture: its reader has gone."""
    read, write = os.pipe()
    output = LogOutput(dropped_line, write)
    output.start()
    try:
        os.close(read)
        for number in range(3):
            output.info(f"line {number}")
            assert output.flush()
            assert output.dropped == number + 1
    finally:
        os.close(write)


def test_an_exception_does_not_end_the_log(pipe: tuple[int, int]) -> None:
    def failing_line(count: int) -> str:
        raise ValueError(count)

    output = LogOutput(failing_line, pipe[1])
    for number in range(LINES):
        output.info(str(number))
    output.start()
    assert output.flush()
    assert output.dropped == LINES
    output.info("line later")
    assert output.flush()
    assert output.dropped == LINES + 1, "as long as the line about them cannot be made"


def test_not_more_than_a_few_lines_wait(pipe: tuple[int, int]) -> None:
    output = LogOutput(dropped_line, pipe[1])
    for number in range(LINES):
        output.info(str(number))
    assert output.dropped == LINES - MAX_WAITING_LINES


END = {
    "returns": "",
    "exits": "sys.exit(0)",
    "fails": "raise ValueError('unexpected')",
    "is interrupted": "raise KeyboardInterrupt",
}


@pytest.mark.parametrize("end", END.values(), ids=[*END])
def test_the_last_lines_of_a_process_are_written(end: str) -> None:
    code = f"""
import structlog, sys
from gateway.observability import log_output, logs
log_output.FLUSH_S = {DEADLINE_S}
logs.configure("info")
for number in range(1000):
    structlog.get_logger().info("line", number=number)
{end}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert sum('"event": "line"' in line for line in done.stderr.splitlines()) == 1_000


def test_a_process_ends_though_nobody_reads_its_log(pipe: tuple[int, int]) -> None:
    """Also if it still wants to say why it ends."""
    code = f"""
import structlog
from gateway import cli
cli.logs.configure("info")
for number in range({LINES}):
    structlog.get_logger().info("line", number=number)
cli._complain("the reason")
"""
    done = subprocess.run([sys.executable, "-c", code], stderr=pipe[1], check=False, timeout=DEADLINE_S)
    assert done.returncode == 0


def test_the_line_about_dropped_lines_is_like_the_others(pipe: tuple[int, int]) -> None:
    code = f"""
import structlog
from gateway.observability import log_output, logs
log_output.FLUSH_S = {DEADLINE_S}
logs.configure("error")
for number in range({LINES}):
    structlog.get_logger().error("line", number=number)
print("logged", flush=True)
"""
    read, write = pipe
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=write) as process:
        assert process.stdout is not None and process.stdout.readline() == b"logged\n"  # nobody reads before
        is_complete = partial(_are_all, LINES)
        found = [json.loads(line) for line in read_until(read, is_complete)]
        assert process.wait(DEADLINE_S) == 0
    assert any(each["event"] == "log lines dropped" for each in found)


def _are_all(count: int, lines: list[str]) -> bool:
    """Each is there, or was counted as a dropped one."""
    return count == sum(int(json.loads(line).get("count", 1)) for line in lines)


def test_warnings_of_libraries_are_lines_of_the_log() -> None:
    code = """
import logging
from gateway.observability import logs
logs.configure("info")
logging.getLogger("aiohttp.server").warning("bad %s", "request")
logging.getLogger("aiohttp.server").info("hidden")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=DEADLINE_S)
    [line] = done.stderr.splitlines()
    assert '"event": "bad request"' in line
    assert '"logger": "aiohttp.server"' in line
