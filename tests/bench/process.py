"""What a process uses of the machine. Linux only."""

import os
from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """User and system time so far, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int, *, peak: bool = False) -> float:
    """Resident memory now, or its maximum so far."""
    name = "VmHWM:" if peak else "VmRSS:"
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no {name} of process {pid}")
