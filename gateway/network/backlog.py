"""The requests of one connection that were read and do not run yet."""

from __future__ import annotations

from collections.abc import Callable

MAX_EXPECTED = 256
MAX_EXPECTED_BYTES = 8 * 1024 * 1024
"""The number, and the approximate size, of a connection's waiting requests for which work may begin."""


class Backlog(list[bytearray]):
    """Their frames, in order. For the first ones, work may have begun: these are expected.

    A list, because an empty deque takes 760 bytes, and most connections are idle.
    """

    __slots__ = ("_expected", "_expected_bytes")

    def __init__(self) -> None:
        super().__init__()
        self._expected = self._expected_bytes = 0

    @property
    def has_unexpected(self) -> bool:
        """There are requests for which nothing has begun."""
        return len(self) > self._expected

    def take_next(self) -> bytearray:
        """Remove and return the first frame."""
        frame = self.pop(0)
        if self._expected:
            self._expected -= 1
            self._expected_bytes -= len(frame)
        return frame

    def expect(self, begin: Callable[[bytearray], bool]) -> None:
        """Begin the work for the next requests, until ``begin`` returns False because none can be begun."""
        while self._expected < min(len(self), MAX_EXPECTED) and self._expected_bytes < MAX_EXPECTED_BYTES:
            frame = self[self._expected]
            if not begin(frame):
                return
            self._expected += 1
            self._expected_bytes += len(frame)

    def drop(self) -> None:
        self.clear()
        self._expected = self._expected_bytes = 0
