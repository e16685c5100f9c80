"""The time of day that coordinators get."""

from __future__ import annotations

import time


class WallClock:
    """Milliseconds since the epoch. The clock never goes back, even if the system's clock is changed."""

    def __init__(self) -> None:
        self._offset_s = time.time() - time.monotonic()

    def now_ms(self) -> int:
        return int((time.monotonic() + self._offset_s) * 1000)
