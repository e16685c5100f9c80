"""A client of a trial: a small program around a public client library that executes commands; see drivers/lines.py."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import deploy.local

EXEC_BOUND = Path(deploy.local.__path__[0]) / "exec_bound.py"
ANSWER_TIMEOUT_S = 60.0
"""Added to the timeout that an action has itself."""
READ_BYTES = 1 << 16
STOP_TIMEOUT_S = 10.0


class ActionError(Exception):
    """The client reported an error; the message is the client's name of it."""


class NotApplicableError(Exception):
    """The client has no such feature; the message says which."""


class DriverEndedError(Exception):
    """The driver ended, or did not answer in time. Its process has ended."""


class Driver:
    """One process. With `send` and `receive`, two clients can act at the same time; `call` does both."""

    def __init__(self, command: Sequence[str], bootstrap: str, log_path: Path, env: Mapping[str, str]) -> None:
        bound = [sys.executable, str(EXEC_BOUND), str(os.getpid()), *command, bootstrap]
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                bound, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env={**os.environ, **env}
            )
        self._log_path = log_path
        self._unread = bytearray()

    def call(self, do: str, **arguments: Any) -> Any:
        """Raises ActionError, NotApplicableError, DriverEndedError."""
        self.send(do, **arguments)
        return self.receive(ANSWER_TIMEOUT_S + arguments.get("timeout_ms", 0) / 1000)

    def error(self, do: str, **arguments: Any) -> str:
        """The error that the action must end with."""
        try:
            result = self.call(do, **arguments)
        except ActionError as error:
            return str(error)
        raise AssertionError(f"{do} succeeded: {result}")

    def send(self, do: str, **arguments: Any) -> None:
        assert self._process.stdin is not None
        if self._process.stdin.closed:
            raise DriverEndedError("the client has ended")
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise DriverEndedError(self._end("the client ended")) from None

    def receive(self, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        answer = json.loads(self._line(time.monotonic() + timeout_s))
        if "unsupported" in answer:
            raise NotApplicableError(answer["unsupported"])
        if "error" in answer:
            raise ActionError(answer["error"])
        return answer["result"]

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """Close the input: clients shut down, or are killed after a time."""
        try:
            self._process.communicate(timeout=STOP_TIMEOUT_S)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue

    def _line(self, deadline: float) -> bytes:
        while b"\n" not in self._unread:
            if (data := self._read(deadline)) is None:
                raise DriverEndedError(self._end("the client does not answer"))
            if not data:
                raise DriverEndedError(self._end("the client ended"))
            self._unread += data
        line, _, rest = bytes(self._unread).partition(b"\n")
        self._unread[:] = rest
        return line

    def _read(self, deadline: float) -> bytes | None:
        """A line; None when the deadline has passed, empty at the end of the output."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(max(0.0, deadline - time.monotonic())):
                return None
        return os.read(self._process.stdout.fileno(), READ_BYTES)

    def _end(self, why: str) -> str:
        self.kill()
        lines = self._log_path.read_text(errors="replace").splitlines()
        return f"{why}: {lines[-1] if lines else 'it said nothing'}"
