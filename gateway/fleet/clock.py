"""The clock of leases: it never goes back, and continues while the machine is suspended."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def lease_now_ms() -> int:
    return int(time.clock_gettime(_CLOCK) * 1000)
