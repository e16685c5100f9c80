"""Where a process spends its processor time: samples of its stacks by py-spy, with the frames of C libraries."""

import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.support.gateway_process import REPOSITORY

SAMPLES_A_SECOND = 100
"""Each one stops the process for about a millisecond."""
END_S = 30.0
_FRAME = re.compile(r"^(?P<name>.*) \((?P<file>[^()]*?)(:\d+)?\)$")
_OWN = re.compile(rf"{re.escape(str(REPOSITORY))}/(gateway|coordinator|protocol)/.*\.py")
_KINDS = {
    "protobuf": re.compile(r"google/_upb|google/protobuf"),
    "checksums, compression": re.compile(r"crc32c|libz\.|cramjam|lz4|snappy|zstd|zstandard"),
    "event loop": re.compile(r"uvloop|libuv"),
    "C library": re.compile(r"/libc\.so|/libc-|ld-linux|vdso|libpthread"),
    "interpreter": re.compile(r"libpython|/Python-3|/cpython-|python3\.\d+/(?!site-packages)|lib-dynload|<frozen"),
}
"""The file of the innermost frame names the kind of work."""
PYTHON = "gateway's Python"
OTHER = "other libraries"
KINDS = (PYTHON, "interpreter", "event loop", "protobuf", "checksums, compression", "C library", OTHER)
_WAITS = re.compile(r"pthread_cond_|sem_(timed|clock)?wait|PyThread_acquire_lock")
"""Threads that wait look busy now and then."""


class Samples(NamedTuple):
    """Counts of samples outside the kernel."""

    kinds: Counter[str]
    rooms: Counter[str]
    """By folder of the innermost function of this project."""
    functions: Counter[str]

    def share(self, counts: Mapping[str, int], name: str) -> float:
        return counts.get(name, 0) / max(1, self.kinds.total())


def sampled(work: Callable[[], object], pid: int, folder: Path) -> Samples:
    """Sample the process during `work`. Raises RuntimeError when there is no py-spy."""
    file = folder / "stacks"
    command = [
        _py_spy(), "record", "--pid", str(pid), "--native", "--rate", str(SAMPLES_A_SECOND), "--format", "raw",
        "--full-filenames", "--output", str(file),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        if "Sampling" not in process.stdout.readline():
            raise RuntimeError(f"py-spy does not sample: {process.stdout.read()}")
        try:
            work()
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=END_S)
    return counted(file.read_text())


def _py_spy() -> str:
    found = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if found is None:
        raise RuntimeError("py-spy is missing: pip install py-spy")
    return found


def counted(stacks: str) -> Samples:
    """`stacks` has a line for each stack: frames, outermost first, separated by semicolons, and a count."""
    samples = Samples(Counter(), Counter(), Counter())
    for line in stacks.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [found.groupdict() for frame in stack.split(";") if (found := _FRAME.match(frame))]
        if not frames or _WAITS.search(stack) or _in_kernel(frames):
            continue
        samples.kinds[_kind(frames[-1]["file"])] += int(count)
        function = next((each for each in reversed(frames) if _kind(each["file"]) == PYTHON), None)
        if function is not None:
            file = Path(function["file"]).relative_to(REPOSITORY)
            samples.rooms[_room(file)] += int(count)
            samples.functions[f"{file.with_suffix('')}: {function['name']}"] += int(count)
    return samples


def _room(file: Path) -> str:
    return "/".join(file.parts[:-1][:2]) if len(file.parts) > 2 else str(file.with_suffix(""))


def _in_kernel(frames: list[dict[str, str]]) -> bool:
    """The event loop calls the C library to read, to write and to wait."""
    if _kind(frames[-1]["file"]) != "C library":
        return False
    caller = next((each["file"] for each in reversed(frames) if _kind(each["file"]) != "C library"), "")
    return "libuv" in caller


def _kind(file: str) -> str:
    if _OWN.match(file):
        return PYTHON
    return next((kind for kind, pattern in _KINDS.items() if pattern.search(file)), OTHER)
