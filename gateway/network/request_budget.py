"""The memory of all requests: those that are being received, that wait, and that are handled.

Above the budget the gateway stops reading, and continues when requests are answered. One connection that has sent a
part of a request is still read, so that at least one request always becomes complete; it has a limited time for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from gateway.network.decoding_room import DecodingRoom
from gateway.observability.metrics import Tally

RESUME_BELOW = 0.75
"""Waiting connections are woken below this fraction of the budget, so that not every answer wakes all of them."""
RESUME_S = 1.0
"""While the held bytes stay between that fraction and the budget, waiting connections are woken at this interval."""
RECEIVE_S = 10.0
"""The time that a client has for the rest of its request while others wait for the memory."""
WOKEN_AT_ONCE = 100
"""Waiting connections that may read again in one turn of the event loop: each takes microseconds."""


class Reading(Protocol):
    """A connection."""

    @property
    def mid_frame(self) -> bool: ...

    def regulate_reading(self) -> None: ...

    def close(self, reason: str) -> None: ...


class RequestBudget:
    """Bytes count from when they are received until their request is answered."""

    def __init__(
        self, budget_bytes: int, held_bytes: Tally, on_exhausted: Callable[[], None], whole: RequestBudget | None = None
    ) -> None:
        """`on_exhausted` is called when all connections have to `regulate_reading`.

        With a `whole`, this is the share of one cluster: its bytes count in `whole`, too, and both must have room.
        """
        self._whole = whole
        self._budget_bytes = budget_bytes
        self._on_exhausted = on_exhausted
        self._held = held_bytes
        self._waiting: dict[Reading, None] = {}
        self._first: Reading | None = None
        self._deadline: asyncio.TimerHandle | None = None
        """Of the first one, while its time runs."""
        self._left_s = 0.0
        """The time that the first one has left while it does not run."""
        self._resume: asyncio.TimerHandle | None = None
        self._is_waking = False
        self.decoding = DecodingRoom(budget_bytes)
        """Decoded requests may need the same size again, and half of it more."""

    def received(self, size_bytes: int) -> None:
        if self._whole is not None:
            self._whole.received(size_bytes)
        before = self._held.value
        self._held.value = before + size_bytes
        if before < self._budget_bytes <= self._held.value:
            self._on_exhausted()

    def released(self, size_bytes: int) -> None:
        if self._whole is not None:
            self._whole.released(size_bytes)
        self._held.value -= size_bytes
        if not (self._waiting or self._first):
            return
        if self._held.value <= RESUME_BELOW * self._budget_bytes:
            self._wake()
        elif self._resume is None and not self.exhausted:
            self._resume = asyncio.get_running_loop().call_later(RESUME_S, self._wake_if_room)

    @property
    def exhausted(self) -> bool:
        return self._held.value >= self._budget_bytes

    @property
    def is_short(self) -> bool:
        """This budget is exhausted, or that of all clusters."""
        whole = self._whole
        return self._held.value >= self._budget_bytes or (whole is not None and whole.exhausted)

    def is_first(self, connection: Reading) -> bool:
        """The connection is read although memory is short, and has a limited time for the rest of its request."""
        return self._first is connection or (self._whole is not None and self._whole.is_first(connection))

    def may_read(self, connection: Reading) -> bool:
        """False: the connection's `regulate_reading` is called when there is room."""
        is_known = self._waiting or self._first is connection
        if self._held.value < self._budget_bytes and self._whole is None and not is_known:
            return True
        has_turn = self._may_read(connection)
        if self._whole is None:
            return has_turn
        if not has_turn:
            self._whole.leave_to_share(connection)
            return False
        may_read = self._whole.may_read(connection)
        if self._first is connection:  # while it waits for the whole budget, it cannot be too slow
            self._count_time(connection, runs=may_read)
        return may_read

    def leave_to_share(self, connection: Reading) -> None:
        """The connection waits for its share of the budget. It calls `may_read` again when the share has room."""
        self._waiting.pop(connection, None)
        if self._first is connection:
            self._choose_first()

    def _may_read(self, connection: Reading) -> bool:
        if self._first is connection and not connection.mid_frame:  # otherwise its time would run on
            self._choose_first()
        if self._held.value < self._budget_bytes:
            self._waiting.pop(connection, None)
            return True
        if self._first is None and connection.mid_frame:
            self._let_first_read(connection)
        if self._first is connection:
            return True
        self._waiting[connection] = None
        return False

    def forget(self, connection: Reading) -> None:
        """The connection was closed, or does not read until it has handled its requests."""
        if self._whole is not None:
            self._whole.forget(connection)
        self._waiting.pop(connection, None)
        if self._first is connection:
            self._choose_first()

    def _wake_if_room(self) -> None:
        self._resume = None
        if not self.exhausted:
            self._wake()

    def _wake(self) -> None:
        self._end_first()
        if not self._is_waking:
            self._wake_some()

    def _wake_some(self) -> None:
        """In their order, as long as there is room: others go on while thousands are woken."""
        woken, self._is_waking = 0, False
        while self._waiting and woken < WOKEN_AT_ONCE and not self.exhausted:
            connection = next(iter(self._waiting))
            del self._waiting[connection]
            connection.regulate_reading()
            woken += 1
        if self._waiting and not self.exhausted:
            self._is_waking = True
            self._wake_soon()
        elif self._waiting and self._first is None:  # those that were woken do not receive a part of a request
            self._choose_first()

    def _wake_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self._wake_some)

    def _choose_first(self) -> None:
        self._end_first()
        first = next((each for each in self._waiting if each.mid_frame), None)
        if first is not None:
            del self._waiting[first]
            self._let_first_read(first)
            first.regulate_reading()

    def _let_first_read(self, connection: Reading) -> None:
        self._first, self._left_s = connection, RECEIVE_S
        self._count_time(connection, runs=True)

    def _end_first(self) -> None:
        if self._first is not None:
            self._count_time(self._first, runs=False)
        self._first = None

    def _count_time(self, connection: Reading, *, runs: bool) -> None:
        loop = asyncio.get_running_loop()
        if runs and self._deadline is None:
            self._deadline = loop.call_later(self._left_s, self._too_slow, connection)
        elif not runs and self._deadline is not None:
            self._left_s = self._deadline.when() - loop.time()
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self, connection: Reading) -> None:
        if self._first is connection:
            connection.close("a request was not received in time, while memory is short")
