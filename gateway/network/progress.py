"""Whether a request that is being received will be whole soon, or holds memory for as long as its client likes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from gateway.network.pipeline import Pipeline
from gateway.network.request_budget import RECEIVE_S
from gateway.network.socket_state import sends_nothing, unread_bytes
from protocol.framing import FrameReceiver, Part

HOPELESS_S, RECENT_S = 60.0, 2.0
"""A request that, as fast as in the last RECENT_S, will take HOPELESS_S for its rest is not waited for."""
RECORD_BYTES = 16 * 1024
"""So much more may have come, as a part of a record of TLS."""
BEHIND_BYTES = 4_096
"""With so much that is not read yet, this gateway is slower than the client: while memory is short, it reads no more
than this in one turn of the event loop."""


class Progress:
    """Of the incomplete request of a connection. Only the time in which the gateway reads the connection counts."""

    __slots__ = ("_before", "_is_hopeless", "_is_late", "_is_read", "_number", "_paused_s", "_recently")

    def __init__(self) -> None:
        self._number = 0
        """Of the request."""
        self._before = self._recently = _NOTHING
        self._is_late = self._is_hopeless = False
        """As it was found last: for RECEIVE_S, and for RECENT_S."""
        self._is_read, self._paused_s = True, 0.0

    def pause(self, now_s: float) -> None:
        self._is_read, self._paused_s = False, now_s

    def resume(self, now_s: float) -> None:
        self._is_read = True
        if self._number:
            self._before = self._before.without(self._paused_s, now_s)
            self._recently = self._recently.without(self._paused_s, now_s)

    def is_slow(self, now_s: float, part: Part | None, is_behind: Callable[[], bool] = lambda: False) -> bool:
        """Whether the rest takes longer than RECEIVE_S, as fast as it came in that time; than HOPELESS_S, as fast as in
        RECENT_S. It is looked at again and again. ``is_behind``: the gateway has not read what has come."""
        if part is None or part.number != self._number:
            self._begin_anew(now_s, part)
            return False
        now = _Mark(now_s if self._is_read else self._paused_s, part.size_bytes)
        rest_bytes = part.whole_bytes - part.size_bytes
        if now.at_s - self._recently.at_s >= RECENT_S:
            self._is_hopeless = self._recently.rest_s(now, rest_bytes, RECORD_BYTES) > HOPELESS_S
            self._is_late = self._is_late and self._recently.rest_s(now, rest_bytes) > RECEIVE_S
            self._recently = now
        if now.at_s - self._before.at_s >= RECEIVE_S:
            self._is_late = self._before.rest_s(now, rest_bytes) > RECEIVE_S
            self._before = now
        if not (self._is_hopeless or self._is_late):
            return False
        if self._is_read and is_behind():  # for example, the process has stood still
            self._begin_anew(now_s, part)
        return self._is_hopeless or self._is_late

    def _begin_anew(self, now_s: float, part: Part | None) -> None:
        self._number = 0 if part is None else part.number
        self._before = self._recently = _Mark(now_s, 0 if part is None else part.size_bytes)
        self._is_late = self._is_hopeless = False


class _Mark(NamedTuple):
    """What had come of a request at a time."""

    at_s: float
    size_bytes: int

    def without(self, paused_s: float, resumed_s: float) -> _Mark:
        """The same as if there had been no pause."""
        return self._replace(at_s=self.at_s + resumed_s - max(paused_s, self.at_s))

    def rest_s(self, now: _Mark, rest_bytes: int, uncounted_bytes: int = 0) -> float:
        """The time for the rest, as fast as it came from this mark on."""
        return rest_bytes * (now.at_s - self.at_s) / max(1, now.size_bytes - self.size_bytes + uncounted_bytes)


_NOTHING = _Mark(0.0, 0)


def is_behind(transport: asyncio.Transport) -> bool:
    """Much has arrived that this gateway has not read yet, as far as that is known."""
    return (unread_bytes(transport) or 0) >= BEHIND_BYTES


def waits_for_client(pipeline: Pipeline, receiver: FrameReceiver, transport: asyncio.Transport) -> bool:
    """A request that has come, or a part of one, waits for the client: it has to read, for example, or to go on."""
    if pipeline.is_blocked:
        return pipeline.has_backlog or receiver.mid_frame
    is_cut_off = receiver.mid_frame and not (receiver.has_uncut or pipeline.has_backlog)
    return is_cut_off and sends_nothing(transport)
