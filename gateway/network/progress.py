"""Whether a request that is being received will be whole soon, or holds memory for as long as its client likes."""

from __future__ import annotations

import asyncio

from gateway.network.pipeline import Pipeline
from gateway.network.request_budget import RECEIVE_S
from gateway.network.socket_state import sends_nothing
from protocol.framing import FrameReceiver, Part

HOPELESS_S = 60.0
"""A request that will take this time for its rest is not waited for."""
LEAST_S = 0.9
"""Nothing is said of a shorter time."""
RECORD_BYTES = 16 * 1024
"""So much more may have come, as a part of a record of TLS."""


class Progress:
    """Of the incomplete request of a connection. Only the time in which the gateway reads the connection counts."""

    __slots__ = ("_is_read", "_number", "_paused_s", "_since_s", "_size_bytes")

    def __init__(self) -> None:
        self._number, self._size_bytes, self._since_s = 0, 0, 0.0
        """A request, and what had come of it at a time."""
        self._is_read, self._paused_s = True, 0.0

    def pause(self, now_s: float) -> None:
        self._is_read, self._paused_s = False, now_s

    def resume(self, now_s: float) -> None:
        self._is_read = True
        self._since_s += now_s - max(self._paused_s, self._since_s)

    def is_slow(self, now_s: float, part: Part | None) -> bool:
        """At its pace, the rest takes longer than RECEIVE_S; than HOPELESS_S, as long as it is new.

        The pace is that since an earlier call.
        """
        if part is None or part.number != self._number:
            self._begin(now_s, part)
            return False
        until_s = now_s if self._is_read else self._paused_s
        read_s = until_s - self._since_s
        if read_s < LEAST_S:
            return False
        rest_bytes, gained_bytes = part.whole_bytes - part.size_bytes, part.size_bytes - self._size_bytes
        if read_s < RECEIVE_S:
            return rest_bytes * read_s > HOPELESS_S * (gained_bytes + RECORD_BYTES)
        if rest_bytes * read_s > RECEIVE_S * gained_bytes:
            return True
        self._begin(until_s, part)
        return False

    def _begin(self, now_s: float, part: Part | None) -> None:
        self._since_s = now_s
        self._number, self._size_bytes = (0, 0) if part is None else (part.number, part.size_bytes)


def waits_for_client(pipeline: Pipeline, receiver: FrameReceiver, transport: asyncio.Transport) -> bool:
    """A request that has come, or a part of one, waits for the client: it has to read, for example, or to go on."""
    if pipeline.is_blocked:
        return pipeline.has_backlog or receiver.mid_frame
    is_cut_off = receiver.mid_frame and not (receiver.has_uncut or pipeline.has_backlog)
    return is_cut_off and sends_nothing(transport)
