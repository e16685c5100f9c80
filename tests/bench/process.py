"""What a process uses of the machine. Linux only."""

import os
from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """User and system time so far, all threads."""
    return user_seconds(pid) + system_seconds(pid)


def user_seconds(pid: int) -> float:
    return _stat(pid, 11) / os.sysconf("SC_CLK_TCK")


def system_seconds(pid: int) -> float:
    """The time in the kernel."""
    return _stat(pid, 12) / os.sysconf("SC_CLK_TCK")


def waiting_seconds(pid: int) -> float:
    """The time in which its main thread could have run, but every core was busy with others."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def idle_seconds() -> float:
    """Of all cores of the machine, also while they wait for a disk."""
    fields = Path("/proc/stat").read_text().partition("\n")[0].split()
    return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")


def _stat(pid: int, field: int) -> int:
    """A number of /proc/PID/stat; 0 is the field behind the name of the process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[field])


def resident_mb(pid: int, *, peak: bool = False) -> float:
    """Resident memory now, or its maximum so far."""
    name = "VmHWM:" if peak else "VmRSS:"
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no {name} of process {pid}")


def children(pid: int) -> list[int]:
    """The ids of its child processes."""
    return [other for other in map(int, filter(str.isdigit, os.listdir("/proc"))) if _parent(other) == pid]


def _parent(pid: int) -> int | None:
    try:
        return _stat(pid, 1)
    except (FileNotFoundError, ProcessLookupError):  # it has ended in the meantime
        return None
