"""Settings of Python's garbage collector, so that it does not visit all objects each time.

The time of a full collection depends on the number of objects, and the event loop is blocked for it: 130 ms for the
objects of 110 MB. So the objects that survive a collection are frozen: the next one only visits newer objects. Frozen
objects are still deleted when nothing refers to them any more. Reference cycles among them, which need the collector,
are deleted in the one collection in `THAW_S` that visits all objects.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping

THAW_S = 3600.0
_THRESHOLDS = (10_000, 5, 1_000)
"""With Python's own thresholds the collector takes a tenth of the CPU under load. With a first one of 50,000, it
blocked a busy gateway for 60 ms at a time, 140 at the most, after some hundred topics had been deleted. With a second
one of 20, it did so for up to 45 ms while 100,000 offsets were committed."""
_OLDEST_GENERATION = 2


class GarbageCollection:
    """The garbage collection of the process, changed between `start` and `stop`."""

    def __init__(self) -> None:
        self._before = gc.get_threshold()
        self._thawed_s = 0.0

    def start(self) -> None:
        gc.callbacks.append(_freeze_survivors)
        gc.set_threshold(*_THRESHOLDS)
        self._collect_all()

    def stop(self) -> None:
        """May be called without `start`."""
        if _freeze_survivors in gc.callbacks:
            gc.callbacks.remove(_freeze_survivors)
        gc.set_threshold(*self._before)
        gc.unfreeze()

    def keep_house(self) -> None:
        """Call it from time to time."""
        if time.monotonic() - self._thawed_s >= THAW_S:
            self._collect_all()

    def _collect_all(self) -> None:
        self._thawed_s = time.monotonic()
        gc.unfreeze()
        gc.collect()


def _freeze_survivors(phase: str, info: Mapping[str, int]) -> None:
    if phase == "stop" and info["generation"] == _OLDEST_GENERATION:
        gc.freeze()
