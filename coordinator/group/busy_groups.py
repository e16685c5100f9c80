"""Groups that change in several steps, between which the coordinator serves other groups.

Their members change nothing meanwhile: they get the answers of a coordinator that loads, and ask again. Who leaves does
not ask again, and so leaves when the group has changed.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

Later = Callable[[int], object]
"""Called with the current time."""

TIMERS_AGAIN_MS = 100
"""Timers of such a group are due after this time again, if it still has them."""


class BusyGroups:
    def __init__(self) -> None:
        self._works: Counter[str] = Counter()
        """By group: what has begun. A step may begin further work."""
        self._later: dict[str, list[Later]] = {}

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._works

    def begin(self, group_id: str) -> None:
        self._works[group_id] += 1

    def later(self, group_id: str, call: Later) -> None:
        self._later.setdefault(group_id, []).append(call)

    def end(self, group_id: str, now_ms: int) -> None:
        self._works[group_id] -= 1
        if not self._works[group_id]:
            del self._works[group_id]
            with ExitStack() as calls:  # each is made, even if one before it fails
                for call in reversed(self._later.pop(group_id, ())):
                    calls.callback(call, now_ms)
