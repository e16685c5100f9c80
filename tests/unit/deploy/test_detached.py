"""Processes that outlive the process that started them."""

import signal
import sys
from pathlib import Path

import pytest

from deploy.local.cluster.detached import DetachedProcess
from deploy.local.process import StartError

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]


def test_life(tmp_path: Path) -> None:
    process = DetachedProcess("sleeper", tmp_path / "node")
    assert process.pid is None
    process.start(SLEEPER, bound=True)
    try:
        same = DetachedProcess("sleeper", tmp_path / "node")
        assert same.running and same.pid == process.pid
        with pytest.raises(StartError, match="sleeper is already running"):
            same.start(SLEEPER)
        same.kill()
        assert not process.running and process.pid is None
        process.start(SLEEPER, bound=True)
        assert same.running
    finally:
        process.stop()
    assert not same.running


def test_a_suspended_process_is_killed(tmp_path: Path) -> None:
    process = DetachedProcess("sleeper", tmp_path)
    process.start(SLEEPER, bound=True)
    process.signal(signal.SIGSTOP)
    assert process.running
    process.stop(grace_s=0.1)
    assert not process.running
