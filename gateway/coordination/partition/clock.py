"""The time of day that coordinators get."""

from __future__ import annotations

import time


class WallClock:
    """Milliseconds since the epoch that never go back, whatever is done to the system's clock."""

    def __init__(self) -> None:
        self._offset_s = time.time() - time.monotonic()

    def now_ms(self) -> int:
        return int((time.monotonic() + self._offset_s) * 1000)
