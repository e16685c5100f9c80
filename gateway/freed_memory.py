"""What glibc does with freed memory: it keeps some for the next buffers. Without glibc, nothing changes.

By default, glibc returns the memory of a large buffer to the system when it is freed. For the next buffer it gets new
memory, and the kernel clears each page at its first use: this was a third of the CPU where old records are read.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

KEPT_BYTES = 32 * 1024 * 1024
"""More free memory than this, at the end of the heap, is returned at once; the rest by `return_to_system`."""
MAX_BUFFER_BYTES = 8 * 1024 * 1024
"""The memory of larger buffers is returned at once. A message of Pulsar has 5 MiB by default."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt, from malloc.h."""


def keep_for_buffers() -> None:
    """Call it once in a process, before buffers are used."""
    set_parameter = _glibc("mallopt")
    set_parameter(_M_TRIM_THRESHOLD, KEPT_BYTES)
    set_parameter(_M_MMAP_THRESHOLD, MAX_BUFFER_BYTES)


def return_to_system() -> None:
    """Call it from time to time. Also returns free memory between buffers."""
    _glibc("malloc_trim")(0)


def _glibc(function: str) -> Callable[..., object]:
    found: Callable[..., object] = getattr(ctypes.CDLL(None), function, lambda *_arguments: None)
    return found
