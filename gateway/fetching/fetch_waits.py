"""The fetches of a cluster's clients that wait for records, and the memory that they hold meanwhile.

Each has objects for its partitions, which take many times the size of its request, for as long as its client wants.
Above the budget, those that have waited longest get what there is: their clients ask again, and wait again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from protocol.kafka.messages.records import FetchRequest

WAITING_BYTES = 150
"""What a fetch that waits takes for each of its partitions: measured by a test."""
NAMED_BYTES = 400
"""What it takes for each partition that its request names: in a session (KIP-227), these are only changes."""


def held_bytes(request: FetchRequest, partitions: int) -> int:
    """What a fetch of this number of partitions takes while it waits."""
    return WAITING_BYTES * partitions + NAMED_BYTES * sum([len(topic.partitions) for topic in request.topics])


class FetchWaits:
    def __init__(self, budget_bytes: float = math.inf) -> None:
        self._budget_bytes = budget_bytes
        self._waiting: dict[Callable[[], None], int] = {}
        """With the bytes that each holds."""
        self._held_bytes = 0

    def begin(self, end_wait: Callable[[], None], size_bytes: int) -> None:
        """A fetch waits until `ended`. `end_wait` is called if the memory is wanted, but not in this call."""
        self._waiting[end_wait] = size_bytes
        self._held_bytes += size_bytes
        while self._held_bytes > self._budget_bytes:
            longest = next(iter(self._waiting))
            self.ended(longest)
            asyncio.get_running_loop().call_soon(longest)

    def ended(self, end_wait: Callable[[], None]) -> None:
        """The fetch has an answer, or was told to get one, or its client has gone."""
        self._held_bytes -= self._waiting.pop(end_wait, 0)
