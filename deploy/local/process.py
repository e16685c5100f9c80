"""What all locally started servers have in common: a free port, a bounded lifetime, and a log that explains a failed
start."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

# Below Linux's ephemeral range, so that no outgoing connection gets the port of a server that is being restarted.
PORT_RANGE = range(20_000, 32_000)
PORT_ATTEMPTS = 100
STOP_GRACE_S = 15.0
PROBE_INTERVAL_S = 0.1
LOG_TAIL_BYTES = 4_096


class StartError(RuntimeError):
    """A server did not become ready. The message has the end of its log."""


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that is free now, and that no other caller of this function gets while this process lives."""
    return free_ports(1, host)[0]


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """As `free_port`, `count` ports with consecutive numbers."""
    for first in random.sample(PORT_RANGE, PORT_ATTEMPTS):
        ports = [*range(first, first + count)]
        if all(_reserve(host, port) and is_free(host, port) for port in ports):
            return ports
    raise StartError(f"no free port found on {host} in {PORT_ATTEMPTS} attempts")


def is_free(host: str, port: int) -> bool:
    """No socket listens on the port at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _reserve(host: str, port: int) -> bool:
    """Reserve a port for this process through an abstract socket, which the kernel frees when the process ends. Linux
    only."""
    if sys.platform != "linux":
        return True
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        holder.bind(f"\0kafka-gateway {host}:{port}")
    except OSError:
        holder.close()
        return False
    holder.detach()
    return True


def bound(command: Sequence[str]) -> list[str]:
    """The command, of a process that the kernel kills when the thread that starts it ends. On Linux."""
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("exec_bound.py")), str(os.getpid()), *command]


class Process(Protocol):
    """The part of `subprocess.Popen` that is used here."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, number: int, /) -> None: ...


class ChildProcess:
    """One child process that writes to a log file and does not outlive this process.

    On Linux the kernel kills the child when the thread that called `start` ends, so call it from a thread that lives
    long enough. The child has its own session: Ctrl-C in a terminal reaches only the parent, which then stops the
    child.
    """

    def __init__(self, name: str, log_path: Path) -> None:
        self.name = name
        self.log_path = log_path
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise StartError(f"{self.name} is not started")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        def start_command(log_path: Path) -> Process:
            with log_path.open("ab") as log:
                return subprocess.Popen(
                    bound(command),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=None if env is None else {**os.environ, **env},
                    start_new_session=True,
                )

        self.start_by(start_command)

    def start_by(self, start: Callable[[Path], Process]) -> None:
        """`start` gets the path of the log, and returns the child process."""
        if self.running:
            raise StartError(f"{self.name} is already running")
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        self._process = start(self.log_path)

    def wait_until(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Poll `ready` until it is true. Raises StartError when the process ends or the time has passed."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            if self._process is None or (code := self._process.poll()) is not None:
                raise StartError(f"{self.name} ended while starting (exit code {code}).\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise StartError(f"{self.name} was not ready after {timeout_s:.0f} s.\n{self.log_tail()}")
            time.sleep(PROBE_INTERVAL_S)

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """SIGTERM, then SIGKILL after `grace_s`. Returns when the process has ended."""
        self._signal(signal.SIGTERM)
        if self._process is not None:
            try:
                self._process.wait(grace_s)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """SIGKILL: the process does no shutdown work. Returns when it has ended."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def log_tail(self) -> str:
        """The end of the log with its path, for error messages."""
        if not self.log_path.exists():
            return f"{self.log_path}: no log was written"
        with self.log_path.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            return f"{self.log_path}:\n{log.read().decode(errors='replace')}"

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self.running:
            self._process.send_signal(number)
