"""Gateways forked from a process that has imported their code.

Of what a gateway does before it is ready, importing takes nine tenths of the CPU, and a test run starts well over a
hundred gateways.
"""

import ctypes
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gateway.cli import main

PR_SET_PDEATHSIG = 1
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__])


class ForkedGateway:
    """`kafka-gateway` with these arguments. It has what `ChildProcess` needs of `subprocess.Popen`.

    The kernel kills it when the process that forked it ends, which ends with this one.
    """

    def __init__(self, arguments: Sequence[str], log_path: Path, constants: Mapping[str, float] = {}) -> None:
        """`constants`: new values of module constants, by their full names."""
        self._arguments = arguments
        self._process = _CONTEXT.Process(target=_run, args=(arguments, log_path, constants), daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Raises TimeoutExpired."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self._arguments, timeout)
        return code

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def _run(arguments: Sequence[str], log_path: Path, constants: Mapping[str, float]) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    nothing, log = os.open(os.devnull, os.O_RDONLY), os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for standard, stream in enumerate((nothing, log, log)):
        os.dup2(stream, standard)
    os.closerange(3, 1024)  # also the pipe whose end tells the forking process that nobody needs it any more
    for name, value in constants.items():
        module, _, constant = name.rpartition(".")
        assert hasattr(importlib.import_module(module), constant), name
        setattr(importlib.import_module(module), constant, value)
    sys.argv = ["kafka-gateway", *arguments]
    main()
