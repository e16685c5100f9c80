"""What earlier searches by time have passed over: a later one need not read it again.

A log that was copied has old timestamps but new publish times, so Pulsar cannot tell where to begin. A search that
reads the log from its beginning may take longer than its client waits; the client's next request goes on from there.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from gateway.pulsar.position import Position

MAX_KNOWN = 1_000


class Passed(NamedTuple):
    """No record before the entry at ``position`` has a later timestamp than ``latest`` (-1 if none has one)."""

    position: Position
    latest: int


class PassedTimes:
    """Of one log. Logs only grow at their end, so what is known stays true."""

    def __init__(self) -> None:
        self._known: list[Passed] = []
        """Positions increase. So do timestamps, unless compaction has removed late records: bisection then finds a
        position that is right, but perhaps not the last one."""

    def learn(self, passed: Passed) -> None:
        if self._known and passed.position <= self._known[-1].position:
            return
        self._known.append(passed)
        if len(self._known) > MAX_KNOWN:
            del self._known[::2]

    def before(self, timestamp: int) -> Passed | None:
        """The last known position before which every record is older than ``timestamp``."""
        at = bisect_left(self._known, timestamp, key=lambda known: known.latest)
        return self._known[at - 1] if at else None
