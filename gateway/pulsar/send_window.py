"""How much a namespace's connection may have unacknowledged at a broker that it shares with other namespaces.

What a broker cannot write yet waits there, together with the entries of all others: the more one namespace sends, the
longer all wait. Within this window, the queue stays in the gateway, with its sender. It works like the congestion
window of TCP Vegas: it grows while acknowledgements take hardly longer than without a queue, and shrinks when they do.
How long they take without a queue is measured now and then, after everything was acknowledged.

A namespace that is alone at a broker has no limit, because smaller and more entries need more CPU.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable

MIN_BYTES, START_BYTES, MAX_BYTES = 128 * 1024, 512 * 1024, 64 * 1024 * 1024
ENTRIES = 2
"""Batches share an entry up to this part of the window, so that Pulsar can receive an entry while it writes one."""
MAX_QUEUEING = 1.0
"""An acknowledgement may take longer by this share of what it takes without a queue,"""
TOLERATED_S = 0.0003
"""and by this time: the gateway may have been busy."""
GROW, SHRINK = 1 / 16, 1 / 8
"""By these shares of the acknowledged bytes, the window changes."""
MEASURE_EVERY_S = 10.0
SHARED_FOR_S = 10.0
"""Namespaces share a broker for this time after another one than before has written."""
SILENT_S, MAX_SILENT_S = 0.1, 1.0
"""If nothing was acknowledged for this time, what is unacknowledged counts no longer: one partition may be stuck, and
must not keep the others from writing. It is longer at a broker that is slow, up to the second number: the first
acknowledgement may have taken long for another reason."""

Clock = Callable[[], float]


class Sharing:
    """Whether several namespaces write to a broker."""

    def __init__(self, now_s: Clock = time.monotonic) -> None:
        self._now_s = now_s
        self._latest = ""
        """The namespace that was the last one to write."""
        self._until_s = -math.inf

    def __bool__(self) -> bool:
        return self._until_s > -math.inf and self._now_s() < self._until_s

    def wrote(self, namespace: str) -> None:
        if namespace != self._latest:
            if self._latest:
                self._until_s = self._now_s() + SHARED_FOR_S
            self._latest = namespace


class SendWindow:
    """Counts what a namespace's connection has sent and the broker has not acknowledged."""

    def __init__(self, namespace: str, sharing: Sharing, now_s: Clock = time.monotonic) -> None:
        self.limit_bytes = float(START_BYTES)
        self.in_flight_bytes = 0
        self._namespace = namespace
        self._sharing = sharing
        self._now_s = now_s
        self._sizes: dict[object, int] = {}
        """By entry, the number of bytes that count."""
        self._waiting: dict[Callable[[], None], None] = {}
        self._called: Callable[[], None] | None = None
        self._draining = False
        """Nothing is sent until everything is acknowledged: the next entry will meet no queue."""
        self._measured_at_s = -math.inf
        self._fastest_s = self._fastest_before_s = math.inf
        """The shortest time until an acknowledgement in this measurement and in the one before."""
        self._progress_at_s = -math.inf
        self._timer: asyncio.TimerHandle | None = None

    @property
    def max_entry_bytes(self) -> int:
        """Batches that share an entry have at most this size together."""
        return int(self.limit_bytes / ENTRIES) if self._sharing else MAX_BYTES

    def admits(self, send: Callable[[], None]) -> bool:
        """Whether an entry may be sent now. Otherwise `send` is called later, and may send one then.

        Who waits is called in the order of asking.
        """
        if send == self._called:
            self._called = None
            return True
        if not self._sharing or (not self._waiting and self._has_room()):
            return True
        if not self._waiting:
            self._progress_at_s = self._now_s()
            self._look_later()
        self._waiting[send] = None
        return False

    def sent(self, entry: object, size_bytes: int) -> None:
        self._sharing.wrote(self._namespace)
        if self._sharing:
            self._sizes[entry] = size_bytes
            self.in_flight_bytes += size_bytes

    def acknowledged(self, entry: object, sent_at_s: float) -> None:
        """The broker has answered. Call `call_waiting` when there is time."""
        if entry not in self._sizes:
            return
        size_bytes = self._forget(entry)
        now_s = self._progress_at_s = self._now_s()
        took_s = now_s - sent_at_s
        self._fastest_s = min(self._fastest_s, took_s)
        fastest_s = min(self._fastest_s, self._fastest_before_s)
        if took_s > fastest_s * (1 + MAX_QUEUEING) + TOLERATED_S:
            self.limit_bytes = max(MIN_BYTES, self.limit_bytes - size_bytes * SHRINK)
        elif self._waiting:
            self.limit_bytes = min(MAX_BYTES, self.limit_bytes + size_bytes * GROW)
        if self._waiting and now_s - self._measured_at_s >= MEASURE_EVERY_S:
            self._measured_at_s = now_s
            self._fastest_before_s, self._fastest_s = self._fastest_s, math.inf
            self._draining = True

    def lost(self, entries: Iterable[object]) -> None:
        """The entries will not be acknowledged."""
        for entry in entries:
            self._forget(entry)

    def leave(self, send: Callable[[], None]) -> None:
        """Its caller waits no longer."""
        self._waiting.pop(send, None)

    def call_waiting(self) -> None:
        """Call those who wait, as long as there is room."""
        while self._waiting and self._has_room():
            self._called = send = next(iter(self._waiting))
            del self._waiting[send]
            send()
        self._called = None

    def _forget(self, entry: object) -> int:
        size_bytes = self._sizes.pop(entry, 0)
        self.in_flight_bytes -= size_bytes
        return size_bytes

    def _has_room(self) -> bool:
        if not self._sharing:
            return True
        self._draining = self._draining and self.in_flight_bytes > 0
        return not self._draining and self.in_flight_bytes < self.limit_bytes

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SILENT_S, self._look)

    def _look(self) -> None:
        """Notices that nothing is acknowledged, and that the broker is no longer shared."""
        self._timer = None
        fastest_s = min(self._fastest_s, self._fastest_before_s)
        slow_s = 4 * fastest_s if math.isfinite(fastest_s) else 0.0
        if self._now_s() - self._progress_at_s >= min(MAX_SILENT_S, max(SILENT_S, slow_s)):
            self._sizes.clear()
            self.in_flight_bytes = 0
        self.call_waiting()
        if self._waiting:
            self._look_later()
