"""Clients that hold memory with requests whose rest comes slowly, while others need it."""

from __future__ import annotations

import asyncio

import pytest

from gateway.config.limits import MIB
from gateway.network.progress import Progress
from gateway.network.server import WATCH_S
from protocol.framing import Part
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.network.connection_harness import frame
from tests.unit.gateway.network.server_harness import Client, server_of

KB = 1024
BUDGET = MIB


def beginning(whole_bytes: int, size_bytes: int) -> bytes:
    """The beginning of a request."""
    return whole_bytes.to_bytes(4, "big") + b"n1".ljust(size_bytes - 4)


class Scene:
    """Time goes on when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self.now_s = loop.time()
        monkeypatch.setattr(loop, "time", lambda: self.now_s)
        self.server, self.dispatcher = server_of(requests_budget_bytes=BUDGET)
        self._monkeypatch = monkeypatch
        self.clients: list[Client] = []

    def connect(self) -> Client:
        client = Client(self.server)
        self._monkeypatch.setattr(client.transport, "abort", client.lose)
        self.clients.append(client)
        return client

    async def after(self, time_s: float) -> None:
        """As the server does while memory is short."""
        self.now_s += time_s
        await self.server._give_up_slow()

    @property
    def held_bytes(self) -> int:
        return int(self.server.metrics.request_bytes.value)


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


async def test_a_request_that_trickles_is_given_up_soon(scene: Scene) -> None:
    slow, quick = scene.connect(), scene.connect()
    slow.feed(beginning(10 * MIB, BUDGET + 8 * KB), BUDGET)
    await scene.after(0)
    quick.feed(frame("n2", KB))
    assert not quick.transport.written, "memory is short"
    for _ in range(2):
        assert not slow.lost
        slow.feed(b"", 4 * KB)
        await scene.after(WATCH_S)
    assert slow.lost and scene.held_bytes < BUDGET
    quick.feed(b"")
    assert quick.transport.written == b"2;"


async def test_it_may_go_on_while_there_is_memory(scene: Scene) -> None:
    slow = scene.connect()
    slow.feed(beginning(BUDGET, BUDGET // 2 + 20 * KB), BUDGET // 2)
    for _ in range(20):
        slow.feed(b"", KB)
        await scene.after(10)
    assert not slow.lost
    scene.server.requests.received(BUDGET // 2)
    await scene.after(0)
    assert slow.lost, "it was slow before"


async def test_a_client_that_sends_request_after_request_is_not_slow(scene: Scene) -> None:
    """Each is incomplete when it is looked at."""
    busy = scene.connect()
    half = 100 * KB
    request = frame("n1", 2 * half)
    busy.feed(request[:half])
    for _ in range(20):
        scene.now_s += WATCH_S
        assert not busy.connection.holds_for_client(scene.now_s)
        busy.feed(request[half:] + request[:half])
        await let_callbacks_run()
    assert len(scene.dispatcher.begun) == 20


async def test_one_that_is_not_read_is_not_slow(scene: Scene) -> None:
    """Another one is received meanwhile."""
    scene.server.requests.received(BUDGET // 2)
    first, second = scene.connect(), scene.connect()
    second.feed(beginning(10 * MIB, KB))
    first.feed(beginning(10 * MIB, BUDGET // 2))
    await scene.after(0)
    assert first.transport.reading != second.transport.reading
    read = first if first.transport.reading else second
    for _ in range(9):
        read.feed(bytes(MIB))
        await scene.after(WATCH_S)
    assert not first.lost and not second.lost


def test_only_the_time_in_which_it_is_read_counts() -> None:
    progress, part = Progress(), Part(1, MIB, 2 * MIB)
    assert not progress.is_slow(100, part)
    progress.pause(100.5)
    assert not progress.is_slow(200, part)
    progress.resume(300)
    assert not progress.is_slow(301, part)
    assert progress.is_slow(302, part)
    assert not progress.is_slow(303, Part(2, MIB, 2 * MIB)), "another request"
    progress.pause(303)
    assert not progress.is_slow(400, Part(3, MIB, 2 * MIB)), "it was first seen while it was not read"
    progress.resume(500)
    assert not progress.is_slow(501.5, Part(3, MIB, 2 * MIB))


def test_what_comes_at_a_good_pace_has_its_time() -> None:
    progress, slow = Progress(), Progress()
    for each in (progress, slow):
        assert not each.is_slow(0, Part(1, 0, 10 * MIB))
        assert not each.is_slow(5, Part(1, MIB, 10 * MIB)), "it would take 50 s"
    assert slow.is_slow(10, Part(1, 2 * MIB, 10 * MIB))
    assert slow.is_slow(11.5, Part(1, 7 * MIB, 10 * MIB)), "as it was found last"
    assert not slow.is_slow(12, Part(1, 7 * MIB, 10 * MIB)), "it has become quick"
    assert not progress.is_slow(10, Part(1, 5 * MIB, 10 * MIB))
    assert not progress.is_slow(15, Part(1, 6 * MIB, 10 * MIB)), "it is measured anew"
    assert progress.is_slow(20, Part(1, 6 * MIB, 10 * MIB))


def test_what_this_gateway_has_not_read_yet_is_no_fault_of_the_client() -> None:
    """The process may have stood still."""
    progress, part = Progress(), Part(1, MIB, 10 * MIB)
    assert not progress.is_slow(0, part)
    assert not progress.is_slow(5, part, lambda: True)
    assert not progress.is_slow(6, part, lambda: False), "it is measured anew"
    assert progress.is_slow(7, part, lambda: False)
    progress.pause(7)
    assert progress.is_slow(8, part, lambda: True), "it is not read, so something may always have come"


def test_what_stops_after_a_good_beginning_is_slow_soon() -> None:
    progress = Progress()
    assert not progress.is_slow(0, Part(1, 0, 10 * MIB))
    assert not progress.is_slow(1, Part(1, 8 * MIB, 10 * MIB))
    assert not progress.is_slow(2, Part(1, 8 * MIB, 10 * MIB))
    assert not progress.is_slow(3, Part(1, 8 * MIB, 10 * MIB))
    assert progress.is_slow(4, Part(1, 8 * MIB + 1, 10 * MIB))


def test_a_small_request_of_which_hardly_anything_comes_is_slow_in_the_end() -> None:
    """There may be thousands of them."""
    progress = Progress()
    assert not progress.is_slow(0, Part(1, 100, 4_000))
    assert not progress.is_slow(9, Part(1, 101, 4_000))
    assert progress.is_slow(10, Part(1, 102, 4_000))


async def test_one_that_goes_on_quickly_after_it_stood_still_is_not_given_up(scene: Scene) -> None:
    """There was memory while it stood still."""
    client = scene.connect()
    client.feed(beginning(BUDGET, BUDGET // 2), BUDGET // 2)
    for _ in range(30):
        await scene.after(10)
    for _ in range(2):
        client.feed(bytes(BUDGET // 5))
        await scene.after(2)
    scene.server.requests.received(BUDGET // 2)
    await scene.after(0)
    assert not client.lost
