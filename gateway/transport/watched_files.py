"""Files with certificates and keys, which are renewed while the gateway runs."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from pathlib import Path

CHECK_S = 2.0
"""The interval between two checks."""
RETRY_S = 30.0
"""After this time, files that could not be used are read again, although they have not changed."""


class WatchedFiles:
    def __init__(self, paths: Sequence[Path]) -> None:
        """Create this object before the files are read, so that no change is missed."""
        self.paths = tuple(paths)
        self._seen = self._look()
        self._retry_s = math.inf

    async def have_changed(self) -> bool:
        """Whether the files have changed since the last call, or have to be read again."""
        seen = await asyncio.to_thread(self._look)
        before, self._seen = self._seen, seen
        if seen == before and time.monotonic() < self._retry_s:
            return False
        self._retry_s = math.inf
        return True

    def not_used(self) -> None:
        """The files could not be used, perhaps for a moment only: for example, the process had too many open files."""
        self._retry_s = time.monotonic() + RETRY_S

    async def next_change(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            if await self.have_changed():
                return

    def _look(self) -> list[tuple[int, ...] | None]:
        """Identifies the content of each file, and who may read it; follows symbolic links, which may change."""
        return [_fingerprint(path) for path in self.paths]


def _fingerprint(path: Path) -> tuple[int, ...] | None:
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size
