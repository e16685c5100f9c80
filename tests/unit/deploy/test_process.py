"""Child processes with small Python programs as children."""

import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.process import PORT_RANGE, ChildProcess, StartError, free_port, free_ports

WAIT_S = 20.0
SLEEPER = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPER}"


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def started(tmp_path: Path, program: str) -> ChildProcess:
    """A child that has written its first line."""
    child = ChildProcess("child", tmp_path / "child.log")
    child.start(python(program))
    child.wait_until(lambda: "up" in child.log_path.read_text(), WAIT_S)
    return child


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_free_port_can_be_bound() -> None:
    port = free_port()
    assert port in PORT_RANGE
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_free_ports_follow_each_other_and_are_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = free_ports(3)
    assert [second, third] == [first + 1, first + 2]
    monkeypatch.setattr("deploy.local.process.random.sample", lambda *_: [third])
    with pytest.raises(StartError, match="no free port"):
        free_port()


def test_a_port_in_use_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr("deploy.local.process.random.sample", lambda *_: [port])
        with pytest.raises(StartError, match="no free port"):
            free_port()


def test_stop_ends_the_process_in_good_order(tmp_path: Path) -> None:
    program = (
        f"import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('bye', flush=True))); {SLEEPER}"
    )
    child = started(tmp_path, program)
    child.stop()
    assert not child.running
    assert "bye" in child.log_path.read_text()


def test_stop_kills_what_does_not_end(tmp_path: Path) -> None:
    child = started(tmp_path, STUBBORN)
    pid = child.pid
    child.stop(grace_s=0.1)
    assert not alive(pid)


def test_kill_and_stop_of_an_ended_process_do_nothing(tmp_path: Path) -> None:
    child = started(tmp_path, SLEEPER)
    child.kill()
    child.kill()
    child.stop()
    assert not child.running


def test_a_stopped_process_starts_again_and_keeps_its_log(tmp_path: Path) -> None:
    child = started(tmp_path, SLEEPER)
    with pytest.raises(StartError, match="already running"):
        child.start(python(SLEEPER))
    child.kill()
    child.start(python(SLEEPER))
    child.wait_until(lambda: child.log_path.read_text().count("up") == 2, WAIT_S)
    child.kill()


def test_the_environment_is_added_to(tmp_path: Path) -> None:
    child = ChildProcess("child", tmp_path / "child.log")
    child.start(python(f"import os; print(os.environ['PATH'], os.environ['EXTRA']); {SLEEPER}"), env={"EXTRA": "42"})
    child.wait_until(lambda: "up" in child.log_path.read_text(), WAIT_S)
    child.kill()
    assert f"{os.environ['PATH']} 42" in child.log_path.read_text()


def test_a_failed_start_shows_the_log(tmp_path: Path) -> None:
    child = ChildProcess("child", tmp_path / "child.log")
    child.start(python("raise SystemExit('no such setting')"))
    with pytest.raises(StartError, match=r"child ended while starting \(exit code 1\)(?s:.*)no such setting"):
        child.wait_until(lambda: False, WAIT_S)


def test_a_start_that_takes_too_long_shows_the_log(tmp_path: Path) -> None:
    child = started(tmp_path, SLEEPER)
    with pytest.raises(StartError, match=r"child was not ready after 0 s(?s:.*)up"):
        child.wait_until(lambda: False, 0)
    child.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
def test_a_killed_parent_takes_its_child_along(tmp_path: Path) -> None:
    parent_program = (
        "import pathlib, sys, time\n"
        "from deploy.local.process import ChildProcess\n"
        f"child = ChildProcess('child', pathlib.Path({str(tmp_path / 'child.log')!r}))\n"
        f"child.start([sys.executable, '-c', {SLEEPER!r}])\n"
        "child.wait_until(lambda: 'up' in child.log_path.read_text(), 20)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(python(parent_program), stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child_pid = int(parent.stdout.readline())
        child = os.pidfd_open(child_pid)
        parent.send_signal(signal.SIGKILL)
    ended, _, _ = select.select([child], [], [], WAIT_S)  # a pidfd is readable once its process has ended
    os.close(child)
    assert ended
