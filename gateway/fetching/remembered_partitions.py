"""What connections remember of the partitions that they fetch: all together, a bounded number.

It makes their next fetches cheap, and is kept while they are idle. If there is too much of it, connections forget it,
and their next fetch takes longer.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable

FOR_A_CONNECTION = 5
"""The average over all connections that a gateway may have."""
Forget = Callable[[], None]


class RememberedPartitions:
    def __init__(self, most: float = math.inf) -> None:
        self._most = most
        self._count = 0
        self._counts: OrderedDict[Forget, int] = OrderedDict()

    def keeps(self, forget: Forget, count: int) -> None:
        """A connection remembers so many now. `forget` is called if others need the room: first for those that have
        called this longest ago.

        One that needs more than there is for all of them keeps it alone.
        """
        self._count += count - self._counts.pop(forget, 0)
        if count:
            self._counts[forget] = count
        while self._count > self._most and len(self._counts) > 1:
            oldest, freed = self._counts.popitem(last=False)
            self._count -= freed
            oldest()
