"""One connection on its way in: how often its address connects, and the time and the memory before its login."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.network.arrivals import Arrivals, UnauthenticatedClient

TOO_OFTEN = "connection rate exceeded"


class Arrival:
    """It is counted among the connections without login, under the host that it comes from, until `is_over`."""

    def __init__(self, arrivals: Arrivals, client: UnauthenticatedClient, end: Callable[[str], None]) -> None:
        self._arrivals = arrivals
        self._client = client
        self._end = end
        self._deadline: asyncio.TimerHandle | None = None
        """Closes the connection when the time for its login expires, or because its address connects too often."""
        self._host: str | None = None
        """The host under which the connection is counted."""

    def begin(self, address: str) -> None:
        """Count the connection, or close it because there are too many."""
        host = _host(address)
        if self._arrivals.arrived(host):
            self._host = host
        else:
            self._end("too many connections without login")

    def connects_too_often(self, address: str) -> bool:
        """Record a new connection. If True, it is closed after a while, and gets no answer until then."""
        throttle_time_s = self._arrivals.throttle_time_s(_host(address))
        if throttle_time_s:
            self.is_over()
            self.begin(address)  # so that only a bounded number of connections from one address wait to be closed
            self.end_after(throttle_time_s, TOO_OFTEN)
        return throttle_time_s > 0

    def end_after(self, time_s: float, reason: str) -> None:
        self._deadline = asyncio.get_running_loop().call_later(time_s, self._end, reason)

    def holds(self, size_bytes: int) -> None:
        """Set how many bytes of what the client has sent are in memory."""
        self._arrivals.holds(self._client, size_bytes)

    def is_over(self) -> None:
        """The client has logged in or disconnected."""
        self.holds(0)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self._host is not None:
            self._arrivals.left(self._host)
            self._host = None


def _host(address: str) -> str:
    return address.rpartition(":")[0]
