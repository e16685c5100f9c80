"""Producer ids for InitProducerId: unique without asking anybody."""

from __future__ import annotations

import secrets

_BLOCK_BITS = 16
_RANDOM_BITS = 46


class ProducerIds:
    """Blocks of 65,536 ids that begin at a random number of 46 bits: two gateways will not meet."""

    def __init__(self) -> None:
        self._next = self._end = 0

    def allocate(self) -> int:
        """A positive int64."""
        if self._next == self._end:
            self._next = secrets.randbits(_RANDOM_BITS) << _BLOCK_BITS
            self._end = self._next + (1 << _BLOCK_BITS)
        self._next += 1
        return self._next - 1
