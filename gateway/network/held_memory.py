"""What the requests of one connection hold in the budgets of all connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import TypeVar

from gateway.network.request_budget import RequestBudget

T = TypeVar("T")


class HeldMemory:
    """Bytes of requests count from when they are received until they are answered."""

    def __init__(self, budget: RequestBudget) -> None:
        self.budget = budget
        """It counts the requests: the share of the client's cluster, once that is known."""
        self.request_bytes = 0
        """Bytes of requests, and of parts of requests."""
        self._decoding = budget.decoding
        self._decoded_bytes = 0
        self._sharer: Hashable = None
        """Who holds the decoded bytes, as `DecodingRoom` knows it."""

    def received(self, size_bytes: int) -> None:
        self.request_bytes += size_bytes
        self.budget.received(size_bytes)

    def released(self, size_bytes: int) -> None:
        self.request_bytes -= size_bytes
        self.budget.released(size_bytes)

    def move_to(self, budget: RequestBudget) -> None:
        """The requests count in another budget from now on. Decoding stays where it was."""
        before, self.budget = self.budget, budget
        before.released(self.request_bytes)
        budget.received(self.request_bytes)

    def decode_in(self, budget: RequestBudget) -> None:
        """Nothing is decoded yet."""
        self._decoding = budget.decoding

    async def decode(
        self, sharer: Hashable, frame_bytes: int, decode: Callable[[], Awaitable[tuple[T, int]]]
    ) -> tuple[T, int]:
        """Decode a request when there is room for it. Returns the request, and the bytes that it holds.

        ``decode`` returns the request, and the number of values in its lists.
        """
        if not self._decoded_bytes:
            self._sharer = sharer
        room, sharer = self._decoding, self._sharer
        room_bytes, kept_bytes = await room.enter(sharer, frame_bytes), 0
        try:
            decoded, values = await decode()
            kept_bytes = min(room_bytes, room.decoded_bytes(frame_bytes, values))
        finally:
            room.decoded(sharer, room_bytes, kept_bytes)
        self._decoded_bytes += kept_bytes
        return decoded, kept_bytes

    def answered(self, request_bytes: int, decoded_bytes: int) -> None:
        if decoded_bytes:
            self._decoded_bytes -= decoded_bytes
            self._decoding.answered(self._sharer, decoded_bytes)
        self.released(request_bytes)

    def close(self) -> None:
        """The client has disconnected."""
        self.answered(self.request_bytes, self._decoded_bytes)
