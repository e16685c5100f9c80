"""What a namespace has unacknowledged at a shared broker: enough to keep the broker busy, and hardly a queue."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable

import pytest

from gateway.pulsar.send_window import (
    MEASURE_EVERY_S,
    MIN_BYTES,
    SHARED_FOR_S,
    SILENT_S,
    START_BYTES,
    SendWindow,
    Sharing,
)

KIB = 1024
ENTRY_BYTES = 16 * KIB


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Scene:
    """A window of the namespace ``flood``. Another one wrote just now, if ``shared``."""

    def __init__(self, *, shared: bool = True) -> None:
        self.clock = Clock()
        self.sharing = Sharing(self.clock)
        self.window = SendWindow("flood", self.sharing, self.clock)
        self.sharing.wrote("flood")
        if shared:
            self.share()

    def share(self) -> None:
        self.sharing.wrote("quiet")
        self.sharing.wrote("flood")

    def fill(self, entry_bytes: int = ENTRY_BYTES) -> list[int]:
        """Send until the window admits no more. Returns the entries."""
        numbers = itertools.count()
        sent = []
        while self.window.admits(print):
            sent.append(next(numbers))
            self.window.sent(sent[-1], entry_bytes)
        self.window.leave(print)
        return sent


class Sender:
    """A partition that always has something to write."""

    def __init__(self, window: SendWindow, send: Callable[[Sender], None]) -> None:
        self.window = window
        self.send = send

    def pump(self) -> None:
        while self.window.admits(self.pump):
            self.send(self)


class SimulatedBroker:
    """Writes one entry after the other at a constant rate. Each has to travel, too."""

    def __init__(self, clock: Clock, bytes_per_s: float, travel_s: float) -> None:
        self.clock, self.bytes_per_s, self.travel_s = clock, bytes_per_s, travel_s
        self.free_at_s = 0.0
        self.written_bytes = 0
        self.entries: list[tuple[float, int, float, Sender]] = []
        self.numbers = itertools.count()

    def send(self, sender: Sender) -> None:
        self.free_at_s = max(self.free_at_s, self.clock.now_s) + ENTRY_BYTES / self.bytes_per_s
        number = next(self.numbers)
        sender.window.sent(number, ENTRY_BYTES)
        heapq.heappush(self.entries, (self.free_at_s + self.travel_s, number, self.clock.now_s, sender))

    def run(self, seconds: float) -> float:
        """Acknowledge for so long. Returns the longest queue in seconds, in the second half of the time."""
        began_s, longest_s = self.clock.now_s, 0.0
        while self.clock.now_s < began_s + seconds:
            self.clock.now_s, number, sent_s, sender = heapq.heappop(self.entries)
            self.written_bytes += ENTRY_BYTES
            sender.window.acknowledged(number, sent_s)
            sender.pump()
            sender.window.call_waiting()
            if self.clock.now_s > began_s + seconds / 2:
                longest_s = max(longest_s, self.free_at_s - self.clock.now_s)
        return longest_s


async def test_a_namespace_that_is_alone_has_no_limit() -> None:
    scene = Scene(shared=False)
    assert scene.window.max_entry_bytes > START_BYTES
    for number in range(1_000):
        assert scene.window.admits(print)
        scene.window.sent(number, 1_000_000)


async def test_the_limit_holds_while_another_namespace_writes() -> None:
    scene = Scene()
    assert len(scene.fill()) == START_BYTES // ENTRY_BYTES
    assert scene.window.max_entry_bytes < START_BYTES
    scene.clock.now_s += SHARED_FOR_S + 1
    assert scene.window.admits(print)
    scene.share()
    assert not scene.window.admits(print)


async def test_who_waits_is_called_in_the_order_of_asking_and_sends_once() -> None:
    scene = Scene()
    entries, order = scene.fill(), []

    class Waiter:
        def __init__(self, name: str) -> None:
            self.name = name

        def send(self) -> None:
            while scene.window.admits(self.send):
                order.append(self.name)
                scene.window.sent(f"{self.name}{len(order)}", ENTRY_BYTES)

    for waiter in (Waiter("a"), Waiter("b"), Waiter("c")):
        waiter.send()
    assert order == []
    for entry in entries:
        scene.window.acknowledged(entry, scene.clock.now_s - 1.0)
    scene.window.call_waiting()
    assert order[:9] == list("abcabcabc")
    assert len(order) >= MIN_BYTES // ENTRY_BYTES


@pytest.mark.parametrize("travel_s", [0.0003, 0.005, 0.05])
@pytest.mark.parametrize("bytes_per_s", [20e6, 200e6])
@pytest.mark.parametrize("partitions", [1, 50])
async def test_a_broker_is_kept_busy_with_hardly_a_queue(travel_s: float, bytes_per_s: float, partitions: int) -> None:
    """Also one that is far away: what travels is no queue."""
    scene = Scene()
    broker = SimulatedBroker(scene.clock, bytes_per_s, travel_s)
    for sender in [Sender(scene.window, broker.send) for _ in range(partitions)]:
        sender.pump()
    seconds, longest_s = 0.0, 0.0
    while seconds < MEASURE_EVERY_S + 2:
        longest_s = broker.run(1.0)
        scene.share()
        seconds += 1
    assert broker.written_bytes / seconds > 0.75 * bytes_per_s
    assert longest_s < 2.5 * (travel_s + 0.0003) + 2 * MIN_BYTES / bytes_per_s


async def test_a_broker_that_gets_slower_is_measured_again() -> None:
    scene = Scene()
    broker = SimulatedBroker(scene.clock, 50e6, 0.001)
    Sender(scene.window, broker.send).pump()
    broker.run(3.0)
    broker.travel_s = 0.02
    for _ in range(int(2.5 * MEASURE_EVERY_S)):
        scene.share()
        before = broker.written_bytes
        broker.run(1.0)
    assert broker.written_bytes - before > 0.75 * 50e6


async def test_a_stuck_partition_keeps_the_others_waiting_for_a_moment_only() -> None:
    scene = Scene()
    scene.fill()
    called = asyncio.Event()
    assert not scene.window.admits(called.set)
    scene.clock.now_s += 2 * SILENT_S
    async with asyncio.timeout(20 * SILENT_S):
        await called.wait()
    assert scene.window.in_flight_bytes == 0
    scene.window.acknowledged(0, scene.clock.now_s - 1.0)  # it comes after all
    assert scene.window.in_flight_bytes == 0


async def test_the_moment_is_short_although_the_first_acknowledgement_took_long() -> None:
    """As after a broker was away: how long one takes without a queue is not known yet."""
    scene = Scene()
    slow, *_ = scene.fill()
    called: list[float] = []
    assert not scene.window.admits(lambda: called.append(scene.clock.now_s))
    scene.clock.now_s += 8.0
    scene.window.acknowledged(slow, 8.0)
    acknowledged_s = scene.clock.now_s
    while not called:
        scene.share()
        scene.clock.now_s += SILENT_S
        scene.window._look()
    assert called[0] - acknowledged_s < 2.0


async def test_who_waits_is_called_when_the_other_namespace_writes_no_more() -> None:
    scene = Scene()
    scene.fill()
    called = asyncio.Event()
    assert not scene.window.admits(called.set)
    scene.clock.now_s += SHARED_FOR_S
    async with asyncio.timeout(20 * SILENT_S):
        await called.wait()


async def test_what_is_lost_makes_room() -> None:
    scene = Scene()
    entries = scene.fill()
    called: list[bool] = []
    assert not scene.window.admits(lambda: called.append(True))
    scene.window.lost(entries)
    scene.window.call_waiting()
    assert called == [True]
    assert scene.window.in_flight_bytes == 0
