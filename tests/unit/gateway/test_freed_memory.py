"""Memory of freed buffers is used for the next ones. Each case is a process: the settings are those of a process."""

from __future__ import annotations

import subprocess
import sys

import pytest

PAGES = """
import resource, sys
from gateway.freed_memory import keep_for_buffers, return_to_system

MIB = 1024 * 1024

def pages_of(rounds):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        buffers = [bytearray(MIB) for _ in range(8)]
        del buffers
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if sys.argv[1] == "kept":
    keep_for_buffers()
pages_of(3)
print(pages_of(10))
return_to_system()
print(pages_of(1))
"""
BUFFERS_PAGES = 8 * 256


def pages(how: str) -> list[int]:
    """The pages that the kernel cleared for ten times eight buffers of 1 MiB, and for eight after the release."""
    done = subprocess.run([sys.executable, "-c", PAGES, how], capture_output=True, text=True, timeout=60, check=True)
    return [int(line) for line in done.stdout.split()]


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has these settings")
def test_the_kernel_clears_no_page_twice() -> None:
    by_default, _ = pages("default")
    kept, released = pages("kept")
    assert by_default > 5 * BUFFERS_PAGES
    assert kept < BUFFERS_PAGES // 10
    assert released > BUFFERS_PAGES // 2
