"""Whether a request that is being received will be whole soon, or holds memory for as long as its client likes."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from gateway.network.pipeline import Pipeline
from gateway.network.request_budget import RECEIVE_S
from gateway.network.socket_state import sends_nothing
from protocol.framing import FrameReceiver, Part

HOPELESS_S, RECENT_S = 60.0, 2.0
"""A request that, as fast as in the last RECENT_S, will take HOPELESS_S for its rest is not waited for."""
RECORD_BYTES = 16 * 1024
"""So much more may have come, as a part of a record of TLS."""


class Progress:
    """Of the incomplete request of a connection. Only the time in which the gateway reads the connection counts."""

    __slots__ = ("_before", "_is_read", "_number", "_paused_s", "_recently")

    def __init__(self) -> None:
        self._number = 0
        """Of the request."""
        self._before = self._recently = _NOTHING
        self._is_read, self._paused_s = True, 0.0

    def pause(self, now_s: float) -> None:
        self._is_read, self._paused_s = False, now_s

    def resume(self, now_s: float) -> None:
        self._is_read = True
        if self._number:
            self._before = self._before.without(self._paused_s, now_s)
            self._recently = self._recently.without(self._paused_s, now_s)

    def is_slow(self, now_s: float, part: Part | None) -> bool:
        """Whether the rest takes longer than RECEIVE_S, as fast as it came in that time; than HOPELESS_S, as fast as in
        RECENT_S. It is looked at again and again."""
        if part is None or part.number != self._number:
            self._number = 0 if part is None else part.number
            self._before = self._recently = _Mark(now_s, 0 if part is None else part.size_bytes)
            return False
        now = _Mark(now_s if self._is_read else self._paused_s, part.size_bytes)
        rest_bytes = part.whole_bytes - part.size_bytes
        if now.at_s - self._recently.at_s >= RECENT_S:
            if self._recently.rest_s(now, rest_bytes, RECORD_BYTES) > HOPELESS_S:
                return True
            self._recently = now
        if now.at_s - self._before.at_s >= RECEIVE_S:
            if self._before.rest_s(now, rest_bytes) > RECEIVE_S:
                return True
            self._before = now
        return False


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


def waits_for_client(pipeline: Pipeline, receiver: FrameReceiver, transport: asyncio.Transport) -> bool:
    """A request that has come, or a part of one, waits for the client: it has to read, for example, or to go on."""
    if pipeline.is_blocked:
        return pipeline.has_backlog or receiver.mid_frame
    is_cut_off = receiver.mid_frame and not (receiver.has_uncut or pipeline.has_backlog)
    return is_cut_off and sends_nothing(transport)
