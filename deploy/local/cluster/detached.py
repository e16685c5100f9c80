"""A process that outlives the command which started it: a file tells its id, and a lock on that file that it lives.

The process inherits the locked file. The kernel lets go of the lock when the process is gone, however it ended, and a
process that got the same id later never holds it.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy.local.process import ChildProcess, StartError

POLL_S = 0.05
STOP_GRACE_S = 15.0
EXEC_BOUND = Path(__file__).parents[1] / "exec_bound.py"


class DetachedProcess:
    """Known by its folder: whoever opens that can signal the process."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.log_path = folder / "log"
        self._pid_path = folder / "pid"

    @property
    def pid(self) -> int | None:
        """None if it does not run."""
        try:
            with self._pid_path.open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return None
        except BlockingIOError:
            return int(self._pid_path.read_text() or 0) or None
        return None

    @property
    def running(self) -> bool:
        return self.pid is not None

    def start(self, command: Sequence[str], env: Mapping[str, str] | None = None, *, bound: bool = False) -> None:
        """`bound` lets it die with the calling process. Raises StartError if it runs already."""
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._pid_path, os.O_RDWR | os.O_CREAT)
        try:
            self._lock(descriptor)
            if bound:
                command = [sys.executable, str(EXEC_BOUND), str(os.getpid()), *command]
            with self.log_path.open("ab") as log:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, pass_fds=[descriptor],
                    env=None if env is None else {**os.environ, **env}, start_new_session=True,
                )  # fmt: skip
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, str(process.pid).encode(), 0)
            process.returncode = 0  # nobody waits for it: the lock tells
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartError(f"{self.name} is already running") from None

    def signal(self, number: signal.Signals) -> None:
        pid = self.pid
        if pid is not None:
            os.kill(pid, number)

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """SIGTERM, then SIGKILL. Returns once the process is gone."""
        self.signal(signal.SIGTERM)
        if not self.wait_gone(grace_s):
            self.kill()

    def kill(self) -> None:
        """SIGKILL: no shutdown work is done. Returns once the process is gone."""
        self.signal(signal.SIGKILL)
        self.wait_gone(STOP_GRACE_S)

    def wait_gone(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while self.running:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True

    def log_tail(self) -> str:
        return ChildProcess(self.name, self.log_path).log_tail()
