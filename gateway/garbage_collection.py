"""Python's garbage collector, kept from walking over all that lives each time; and memory given back to the system.

A full collection takes time by the number of objects, and the event loop stands still for it: 130 ms for those of
110 MB. So what has survived one is frozen: the next walks over what came since. Frozen objects still go when nobody
refers to them any more; cycles of them, which need the collector, wait for the one collection in `THAW_S` that walks
over everything.
"""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable, Mapping

THAW_S = 3600.0
_THRESHOLDS = (50_000, 20, 50)
"""Python's own have the collector take a tenth of the CPU under load."""
_OLDEST_GENERATION = 2


class GarbageCollection:
    """Of the process. Between `start` and `stop` it is as the module says."""

    def __init__(self) -> None:
        self._before = gc.get_threshold()
        self._thawed_s = 0.0
        self._malloc_trim = _find_malloc_trim()

    def start(self) -> None:
        gc.callbacks.append(_freeze_survivors)
        gc.set_threshold(*_THRESHOLDS)
        self._collect_all()

    def stop(self) -> None:
        """Also if it was not started."""
        if _freeze_survivors in gc.callbacks:
            gc.callbacks.remove(_freeze_survivors)
        gc.set_threshold(*self._before)
        gc.unfreeze()

    def keep_house(self) -> None:
        """To be called from time to time."""
        if time.monotonic() - self._thawed_s >= THAW_S:
            self._collect_all()
        self._malloc_trim(0)

    def _collect_all(self) -> None:
        self._thawed_s = time.monotonic()
        gc.unfreeze()
        gc.collect()


def _freeze_survivors(phase: str, info: Mapping[str, int]) -> None:
    if phase == "stop" and info["generation"] == _OLDEST_GENERATION:
        gc.freeze()


def _find_malloc_trim() -> Callable[[int], object]:
    """glibc's, to give the holes between buffers back to the system; elsewhere nothing."""
    trim: Callable[[int], object] = getattr(ctypes.CDLL(None), "malloc_trim", lambda _keep_bytes: None)
    return trim
