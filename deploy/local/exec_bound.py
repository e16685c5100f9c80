"""Run a command that dies with its parent: `exec_bound.py PARENT_PID COMMAND [ARG…]`.

A program of its own, because code between fork and exec in a process with threads may deadlock.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent_pid = int(sys.argv[1])
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # the parent died before the call above took effect
        sys.exit("the parent process is gone")
    os.execvp(sys.argv[2], sys.argv[2:])


main()
