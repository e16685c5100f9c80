"""Producer ids for InitProducerId, unique without coordination between gateways."""

from __future__ import annotations

import secrets
import time
from bisect import bisect_right

_BLOCK_BITS = 16
_RANDOM_BITS = 46
MARK_EVERY_S = 0.05


class ProducerIds:
    """Blocks of 65,536 ids that begin at a random number of 46 bits, so that two gateways do not collide."""

    def __init__(self) -> None:
        self._next = self._end = 0
        self._marks: list[int] = []
        self._marked_at: list[float] = []
        """When the ids in ``_marks``, all of the present block, were allocated (monotonic clock)."""

    def allocate(self) -> int:
        """A new producer id, a positive int64."""
        now = time.monotonic()
        if self._next == self._end:
            self._next = secrets.randbits(_RANDOM_BITS) << _BLOCK_BITS
            self._end = self._next + (1 << _BLOCK_BITS)
            self._marks.clear()
            self._marked_at.clear()
        if not self._marks or now - self._marked_at[-1] >= MARK_EVERY_S:
            self._marks.append(self._next)
            self._marked_at.append(now)
        self._next += 1
        return self._next - 1

    def allocated_after(self, producer_id: int, moment_s: float) -> bool:
        """Whether the id was allocated here after that moment, so that nobody used it before. False also if unknown."""
        at = bisect_right(self._marks, producer_id) - 1
        return at >= 0 and producer_id < self._next and self._marked_at[at] > moment_s
