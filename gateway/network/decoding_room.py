"""The memory of decoded requests: a large request is decoded when there is room for it, and holds it until its answer.

It takes the memory also while it waits for Pulsar, so its room is not given to others meanwhile. Kafka does not bound
this memory; its bound for received requests (queued.max.request.bytes) stops the reading of all connections. Here, one
client's requests, however long they take, do not hold up those of others:

* One client may fill its share. Its further requests wait for its own, and no other client waits for them. There is
  room for half as much again, which other clients use.
* A request that is larger than a share counts as a share. Only one client at a time has such a request, so that the
  memory is bounded, and others with such a request wait. `RequestedTopics` bounds the time of look-ups in Pulsar.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

DECODED_FACTOR = 40
"""A decoded request takes at most this many times its size (measured: names and numbers become objects)."""
VALUE_BYTES = 256
"""Maximum size of each value of its lists: a name, or a row of values."""


class DecodingRoom:
    """Clients are named by any key. They enter first in, first out, except those who wait for their own requests."""

    def __init__(self, share_bytes: int) -> None:
        self._share_bytes = share_bytes
        self._room_bytes = share_bytes * 3 // 2
        self._waiting: dict[asyncio.Future[None], tuple[Hashable, int]] = {}
        self._held: dict[Hashable, int] = {}
        """The bytes of each client."""
        self._used_bytes = 0
        """The sum of these, with one share for a client that holds more."""
        self._above_share = self._being_decoded = 0
        self._is_letting_in = False

    @property
    def is_empty(self) -> bool:
        return not (self._held or self._waiting or self._being_decoded)

    @property
    def held_bytes(self) -> int:
        return sum(self._held.values())

    async def enter(self, client: Hashable, frame_bytes: int) -> int:
        """Wait until a request of this size may be decoded. Pass the result to `decoded`."""
        turn = asyncio.get_running_loop().create_future()
        wanted = DECODED_FACTOR * frame_bytes
        self._waiting[turn] = client, wanted
        self._let_in_soon()
        try:
            await turn
        except asyncio.CancelledError:
            if self._waiting.pop(turn, None) is None:  # the request already had its turn
                self.decoded(client, wanted, 0)
            else:
                self._let_in_soon()
            raise
        return wanted

    def decoded(self, client: Hashable, room_bytes: int, kept_bytes: int) -> None:
        """The request is decoded and keeps only `kept_bytes` of its room. Pass these to `answered`."""
        self._being_decoded -= 1
        self.answered(client, room_bytes - kept_bytes)

    def answered(self, client: Hashable, kept_bytes: int) -> None:
        """The client's requests were answered."""
        self._hold(client, -kept_bytes)
        self._let_in_soon()

    @staticmethod
    def decoded_bytes(frame_bytes: int, values: int) -> int:
        """The maximum memory of a decoded request, from the number of values in its lists."""
        return 2 * frame_bytes + VALUE_BYTES * values

    def _let_in_soon(self) -> None:
        """Once for all that changes in a turn of the event loop: very many requests may wait, of clients that leave."""
        if self._waiting and not self._is_letting_in:
            self._is_letting_in = True
            asyncio.get_running_loop().call_soon(self._let_in)

    def _let_in(self) -> None:
        self._is_letting_in = False
        passed: set[Hashable] = set()
        for turn, (client, wanted) in list(self._waiting.items()):
            if turn.cancelled() or client in passed:  # a waiting task has not seen it yet
                continue
            if self._waits_for_large(client, wanted):
                passed.add(client)
                continue
            if not self._fits(client, wanted):
                return
            del self._waiting[turn]
            self._being_decoded += 1
            self._hold(client, wanted)
            turn.set_result(None)

    def _waits_for_large(self, client: Hashable, wanted: int) -> bool:
        """For the client's own requests, or for another client's request above its share."""
        held = self._held.get(client, 0)
        return held >= self._share_bytes or (self._above_share > 0 and held + wanted > self._share_bytes)

    def _fits(self, client: Hashable, wanted: int) -> bool:
        """A request that is decoded alone always fits while any memory is left."""
        if self._being_decoded == 0:
            return self._used_bytes < self._room_bytes
        is_within_share = self._held.get(client, 0) + wanted <= self._share_bytes
        return is_within_share and self._used_bytes + wanted <= self._room_bytes

    def _hold(self, client: Hashable, more_bytes: int) -> None:
        before, share = self._held.pop(client, 0), self._share_bytes
        after = before + more_bytes
        if after:
            self._held[client] = after
        self._used_bytes += min(after, share) - min(before, share)
        self._above_share += (after > share) - (before > share)
