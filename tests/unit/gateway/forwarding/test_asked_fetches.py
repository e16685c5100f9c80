"""What leaders were asked for: how long they wait, and what is remembered of their answers."""

from __future__ import annotations

import asyncio

from gateway.forwarding.waiting_fetch import ASKED_WAIT_MS
from tests.unit.gateway.forwarding import test_forwarded_fetch
from tests.unit.gateway.forwarding.test_forwarded_fetch import Client, rows

size = test_forwarded_fetch.size


async def test_a_leader_does_not_wait_for_long_for_what_may_be_outdated() -> None:
    """Nothing tells it. It is asked again, as long as the client waits. Only if it has to collect, it waits."""
    client = Client()
    fetched = client.fetch({1: 0, 2: 0})
    waits_ms = [await client.answer_next({}) for _ in range(8)]
    assert set(waits_ms) == {0, ASKED_WAIT_MS} and not fetched.done()
    await client.answer_next({1: b"records", 2: b"records"})
    assert b"records" in {records for _, _, records in (await rows(fetched)).values()}
    client.fetches.forget()
    client.fetch({1: 0, 2: 0}, min_bytes=2)
    assert max([await client.answer_next({}) for _ in range(4)]) > ASKED_WAIT_MS
    client.fetches.forget()


async def test_the_ends_of_logs_are_remembered_as_far_as_others_leave_room() -> None:
    client = Client()
    await client.know({1: 0, 2: 0})
    known = client.fetches._asked.known
    assert len(known) == 2
    client.remembered.keeps(lambda: None, 99)
    assert client.fetches._asked.known == {}
    await client.know({1: 0, 2: 0})
    client.fetches.forget()
    assert client.remembered._count == 0


async def test_what_a_waiting_fetch_knows_is_not_forgotten() -> None:
    client = Client()
    fetched = client.fetch({1: 0, 2: 0})
    for _ in range(4):
        await client.answer_next({})
    assert len(client.fetches._asked.known) == 2
    client.remembered.keeps(client.fetches._asked._forget_for_others, 2)
    client.remembered.keeps(lambda: None, 99)
    assert len(client.fetches._asked.known) == 2 and not fetched.done()
    client.fetches.forget()


async def test_what_was_forgotten_for_others_does_not_make_a_fetch_wait() -> None:
    """One leader was asked by the fetch before, and still waits for records."""
    client = Client()
    await client.know({1: 0, 2: 0})
    fetched = client.fetch({1: 0, 2: 0})
    asked = await client.next_asked(2)
    quick, waiting = (next(each for each in asked.values() if number in each.offsets) for number in (1, 2))
    quick.say({1: b"records"})
    await rows(fetched)
    client.remembered.keeps(lambda: None, 100)
    fetched = client.fetch({1: 1, 2: 0})
    for each in (await client.next_asked(1)).values():
        each.say({1: b"more"})
    assert (await rows(fetched))[1][2] == b"more"
    waiting.say({})
    client.fetches.forget()


async def test_when_the_time_is_over_a_leader_is_not_asked_again_while_another_one_is_slow() -> None:
    """It would be asked without end, as fast as it answers."""
    client = Client()
    fetched = client.fetch({1: 0, 2: 0}, max_wait_ms=0)
    asked = await client.next_asked(2)
    quick, slow = (next(each for each in asked.values() if number in each.offsets) for number in (1, 2))
    quick.say({})
    await asyncio.sleep(0.05)
    assert client.asked.empty() and not fetched.done()
    slow.say({})
    assert set(await rows(fetched)) == {1, 2}
    client.fetches.forget()
