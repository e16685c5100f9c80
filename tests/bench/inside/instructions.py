"""Instructions of a batch, counted by valgrind: the same in every run, whatever other load the machine has.

valgrind counts no system calls, and every instruction the same: copies of large buffers look cheaper than they are.
"""

import ctypes
import mmap
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.gateway_process import REPOSITORY

BEGIN = "count"
"""The worker's argument."""
DUMP, TOGGLE, START = 0x43540000, 0x43540002, 0x43540004
"""Callgrind's client requests (callgrind.h)."""
_TOTALS = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)
_REQUEST = bytes.fromhex("4889f8 31d2 48c1c703 48c1c70d 48c1c73d 48c1c733 4887db 4889d0 c3".replace(" ", ""))
"""A request to valgrind on x86-64 (valgrind.h): rax has the arguments, and the rotations have no effect elsewhere."""


def count(sources: Path, cases: Sequence[str]) -> list[float]:
    """Thousands of instructions a batch, by case. `sources` is the work tree of a commit. Raises RuntimeError."""
    with tempfile.TemporaryDirectory(prefix="kafka-gateway-inside-") as folder:
        out = Path(folder) / "callgrind.out"
        command = [
            "valgrind", "--tool=callgrind", "--instr-atstart=no", "--collect-atstart=no", f"--callgrind-out-file={out}",
            sys.executable, "-P", "-m", "tests.bench.inside.worker", BEGIN,
        ]  # fmt: skip
        environment = {"PYTHONPATH": f"{sources}:{REPOSITORY}", "PYTHONHASHSEED": "0", "PATH": "/usr/bin:/bin"}
        text = "".join(f"{case}\n" for case in cases)
        done = subprocess.run(command, env=environment, input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr[-2_000:])
        batches = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith(BEGIN)]
        totals = [int(_TOTALS.findall(Path(f"{out}.{n}").read_text())[-1]) for n in range(1, len(cases) + 1)]
        return [total / number / 1000 for total, number in zip(totals, batches, strict=True)]


class Counter:
    """Runs in the process whose instructions are counted."""

    def __init__(self) -> None:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(_REQUEST)
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        self._page = page
        self._ask: Callable[[object], int] = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(address)
        self._arguments = {code: (ctypes.c_uint64 * 6)(code) for code in (DUMP, TOGGLE, START)}

    def request(self, code: int) -> None:
        self._ask(self._arguments[code])
