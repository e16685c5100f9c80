"""What TLS is between: the connection that it carries, and who watches how connections begin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

UNDECRYPTED_BYTES = "undecrypted bytes"
"""The name of the number of received bytes that the connection has not got, among a transport's extra information."""


class Watcher(Protocol):
    """Is informed of connections until their handshake is done, and limits them."""

    def arrived(self, host: str) -> bool:
        """Returns False if there is one connection too many."""

    def throttle_time_s(self, host: str) -> float:
        """0, or the time after which a new connection is closed because its address connects too often."""

    def left(self, host: str) -> None:
        """A connection that was accepted by `arrived` has finished its handshake, or is closed."""

    def take_turn(self, step: Callable[[], None]) -> None:
        """Run a step of a handshake, now or in a later turn of the event loop: it may take a millisecond."""

    def refused(self, reason: str, address: str, **facts: Any) -> None: ...


class Carried(asyncio.BufferedProtocol):
    """A connection that TLS carries."""

    has_to_log_in = False
    """The client has not logged in yet."""
