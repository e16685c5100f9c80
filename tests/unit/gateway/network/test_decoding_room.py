"""The memory of decoded requests: who enters, who waits for whom, and that nothing of it is lost."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.network.decoding_room import DECODED_FACTOR, DecodingRoom

SHARE = 1_000
HALF = SHARE // DECODED_FACTOR // 2
"""Bytes of a request that needs half of a client's share."""
HUGE = SHARE


@pytest.fixture
def room() -> DecodingRoom:
    return DecodingRoom(SHARE)


async def entered(room: DecodingRoom, *asked: tuple[str, int]) -> list[asyncio.Task[int]]:
    """Clients with the sizes of their requests."""
    tasks = [asyncio.create_task(room.enter(*each)) for each in asked]
    await turns()
    return tasks


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def done(tasks: list[asyncio.Task[int]]) -> list[bool]:
    return [task.done() for task in tasks]


async def test_a_client_waits_for_its_own_requests_in_turn(room: DecodingRoom) -> None:
    large = await room.enter("a", HUGE)  # a single one may have any size
    assert large == HUGE * DECODED_FACTOR
    waiting = await entered(room, *[("a", HALF)] * 3)
    assert done(waiting) == [False] * 3
    room.decoded("a", large, 0)
    await turns()
    assert done(waiting) == [True, True, False]
    room.decoded("a", waiting[0].result(), 0)
    await turns()
    assert done(waiting) == [True] * 3


async def test_the_requests_are_looked_through_once_a_turn(room: DecodingRoom, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client with very many connections may close them all at the same time."""
    looked = 0
    may_enter = DecodingRoom._waits_for_large

    def counted(room: DecodingRoom, client: object, wanted: int) -> bool:
        nonlocal looked
        looked += 1
        return may_enter(room, client, wanted)

    monkeypatch.setattr(DecodingRoom, "_waits_for_large", counted)
    large = await room.enter("a", HUGE)
    waiting = await entered(room, *[(f"client {number}", HUGE) for number in range(100)])
    assert looked <= 1 + 100
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await turns()
    assert looked <= 1 + 200
    room.decoded("a", large, 0)
    assert room.is_empty


@pytest.mark.parametrize("sizes", [[HUGE, HALF], [HALF] * 8])
async def test_nobody_waits_for_another_client_that_holds_its_share(room: DecodingRoom, sizes: list[int]) -> None:
    """Its requests wait for Pulsar, and more of them wait for room."""
    greedy = await entered(room, *[("greedy", size) for size in sizes])
    for task in greedy:
        if task.done():
            room.decoded("greedy", task.result(), task.result())
    await turns()
    assert not all(done(greedy))
    assert done(await entered(room, ("modest", HALF))) == [True]
    assert not greedy[-1].done()


async def test_one_client_at_a_time_has_a_request_above_its_share(room: DecodingRoom) -> None:
    """The memory is bounded."""
    first = await room.enter("a", HUGE)
    room.decoded("a", first, first)
    second, small = await entered(room, ("b", HUGE), ("c", HALF))
    assert not second.done() and small.done()
    room.decoded("c", small.result(), 0)
    room.answered("a", first)
    await turns()
    assert second.done()


async def test_a_large_request_that_keeps_little_makes_way(room: DecodingRoom) -> None:
    first = await room.enter("a", HUGE)
    room.decoded("a", first, 1)
    assert done(await entered(room, ("b", HUGE))) == [True]


async def test_a_full_room_is_entered_in_turn(room: DecodingRoom) -> None:
    held = [await room.enter(name, HALF) for name in "abc"]
    waiting = await entered(room, *[(name, HALF) for name in "defg"])
    assert done(waiting) == [False] * 4
    for name, room_bytes in zip("ab", held, strict=False):
        room.decoded(name, room_bytes, 0)
    await turns()
    assert done(waiting) == [True, True, False, False]


async def test_a_large_request_is_decoded_in_the_end(room: DecodingRoom) -> None:
    """Although others keep coming."""
    before = await room.enter("a", HALF)
    [large] = await entered(room, ("b", HUGE))
    [after] = await entered(room, ("c", HALF))
    assert not large.done() and not after.done()
    room.decoded("a", before, before)
    await turns()
    assert large.done() and not after.done()
    room.decoded("b", large.result(), 0)
    await turns()
    assert after.done()


@pytest.mark.parametrize("client", ["a", "b"])
async def test_who_gives_up_waiting_gives_back_its_room(room: DecodingRoom, client: str) -> None:
    held = await room.enter("a", HUGE)
    given_up, granted = await entered(room, ("a", HUGE), (client, HUGE))
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    room.decoded("a", held, 0)
    granted.cancel()  # it has its turn, and has not noticed yet
    await asyncio.gather(granted, return_exceptions=True)
    assert room.is_empty


async def test_two_who_give_up_at_the_same_time_harm_nobody(room: DecodingRoom) -> None:
    held = await room.enter("a", HUGE)
    [given_up] = await entered(room, ("a", 1))
    given_up.cancel()
    room.decoded("a", held, 0)  # before the cancelled one has noticed
    await asyncio.gather(given_up, return_exceptions=True)
    assert room.is_empty


async def test_who_gives_up_at_the_head_makes_way(room: DecodingRoom) -> None:
    await room.enter("a", HALF)
    large, behind = await entered(room, ("b", HUGE), ("c", HALF))
    assert not behind.done()
    large.cancel()
    await turns()
    assert behind.done()


async def test_what_is_kept_holds_up_nothing_but_the_memory_it_takes(room: DecodingRoom) -> None:
    """Some requests are answered after minutes, for instance of group members that wait for others."""
    room.decoded("a", await room.enter("a", HUGE), SHARE - 1)
    [again] = await entered(room, ("a", HUGE))
    room.decoded("a", again.result(), 1)
    [waiting] = await entered(room, ("a", 1))
    assert not waiting.done(), "the client has used its share"
    room.answered("a", 1)
    await turns()
    assert waiting.done()


Step = tuple[str, int, float]
"""A client, the size of its request, and which part of its room the decoded request keeps."""


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 60), st.floats(0, 1)), max_size=30))
async def test_all_are_decoded_within_the_memory(steps: list[Step]) -> None:
    room, largest = DecodingRoom(SHARE), 60 * DECODED_FACTOR
    held: list[tuple[str, int]] = []

    async def run(client: str, size: int, part: float) -> None:
        room_bytes = await room.enter(client, size)
        assert room.held_bytes <= 2.5 * SHARE + largest
        await asyncio.sleep(0)
        kept = int(part * room_bytes)
        room.decoded(client, room_bytes, kept)
        held.append((client, kept))

    running = [asyncio.create_task(run(*step)) for step in steps]
    async with asyncio.timeout(20):
        while not all(task.done() for task in running):
            await asyncio.sleep(0)
            if held:
                room.answered(*held.pop(0))
    for client, kept in held:
        room.answered(client, kept)
    await asyncio.gather(*running)
    assert room.is_empty
