"""A process that outlives the command that started it. A file has its id; a lock on that file shows that it runs.

The process inherits the locked file. The kernel releases the lock when the process ends, in whatever way, and a process
that gets the same id later never holds it.
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
    """Identified by its folder: every object with the same folder controls the same process."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.log_path = folder / "log"
        self._pid_path = folder / "pid"

    @property
    def pid(self) -> int | None:
        """The process id, None if the process does not run."""
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
        """Start the process. A `bound` process dies with the calling one. Raises StartError if it runs already."""
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
            process.returncode = 0  # the lock shows whether the process runs, so nothing waits for it
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
        """SIGTERM, then SIGKILL. Returns when the process has ended."""
        self.signal(signal.SIGTERM)
        if not self.wait_gone(grace_s):
            self.kill()

    def kill(self) -> None:
        """SIGKILL: the process does no shutdown work. Returns when it has ended."""
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
