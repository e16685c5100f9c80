"""While Pulsar does not answer, the other gateways say whether they have evicted this one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from coordinator.fleet.leadership import LeadershipState
from coordinator.fleet.messages import Member
from gateway.fleet.eviction_check import MAX_ASKED, EvictionCheck
from gateway.fleet.fleet import Fleet
from gateway.fleet.peers import PeerLostError, R
from protocol.kafka.messages.message import Message
from protocol.kafka.messages.topics import MetadataResponse
from tests.unit.gateway.fleet.fleet_scene import CONFIG, OWN, fleet_of, member_of

OWN_ID, OTHERS = 0, [member_of(f"other {number}", number) for number in range(1, 6)]
SILENCE_S = CONFIG.dead_after_ms / 1000 + 1
WITHIN_S = 5.0


class FakePeers:
    """Gateways that name these brokers; those without an entry do not answer."""

    def __init__(self, brokers: dict[int, list[int]]) -> None:
        self.brokers = brokers
        self.asked: list[int] = []

    async def ask(self, member: Member, version: int, request: Message, response: type[R], timeout_s: float) -> R:
        self.asked.append(member.node_id)
        await asyncio.sleep(0)
        if member.node_id not in self.brokers:
            raise PeerLostError("no answer")
        answer = MetadataResponse(
            brokers=[
                MetadataResponse.MetadataResponseBroker(node_id=node_id, host="h", port=1)
                for node_id in self.brokers[member.node_id]
            ]
        )
        assert isinstance(answer, response)
        return answer


@pytest.mark.parametrize(
    ("brokers", "expected"),
    [
        pytest.param({1: [0, 1, 2], 2: [0, 1, 2]}, False, id="all still name it"),
        pytest.param({1: [0, 1, 2], 2: [1, 2]}, True, id="one has read of the eviction"),
        pytest.param({2: [0, 1, 2]}, False, id="one answers, and still names it"),
        pytest.param({}, None, id="none answers"),
    ],
)
async def test_what_others_say(brokers: dict[int, list[int]], expected: bool | None) -> None:
    check = EvictionCheck(FakePeers(brokers))
    await check.ask(OWN_ID, OTHERS[:2])
    assert check.is_evicted is expected


async def test_an_eviction_is_remembered_until_there_is_a_lease() -> None:
    """Others may be without Pulsar, too, and know nothing of it."""
    peers = FakePeers({1: [1, 2]})
    check = EvictionCheck(peers)
    await check.ask(OWN_ID, OTHERS[:2])
    peers.brokers = {1: [0, 1, 2]}
    await check.ask(OWN_ID, OTHERS[:2])
    assert check.is_evicted
    check.reset()
    await check.ask(OWN_ID, OTHERS[:2])
    assert not check.is_evicted


async def test_others_are_asked_in_turns() -> None:
    peers = FakePeers({})
    check = EvictionCheck(peers)
    await check.ask(OWN_ID, OTHERS)
    assert len(peers.asked) == MAX_ASKED
    await check.ask(OWN_ID, OTHERS)
    assert {*peers.asked} == {member.node_id for member in OTHERS}


async def test_without_others_nothing_is_concluded() -> None:
    check = EvictionCheck(FakePeers({}))
    await check.ask(OWN_ID, [])
    assert check.is_evicted is False


async def checking(fleet: Fleet, until: Callable[[], bool]) -> None:
    task = asyncio.create_task(fleet._keep_checking())
    try:
        async with asyncio.timeout(WITHIN_S):
            while not until():
                await asyncio.sleep(0)
    finally:
        task.cancel()


@pytest.mark.parametrize(
    ("brokers", "expected"),
    [
        ({1: [0, 1]}, LeadershipState.DOUBTFUL),
        ({1: [1]}, LeadershipState.PRESUMED_DEAD),
        ({}, LeadershipState.PRESUMED_DEAD),
    ],
)
async def test_the_state_follows(brokers: dict[int, list[int]], expected: LeadershipState) -> None:
    """Before the others have answered, it is not known that they evicted this gateway."""
    fleet = fleet_of([member_of(OWN, OWN_ID), OTHERS[0]], held=False, silence_s=SILENCE_S)
    peers = FakePeers(brokers)
    fleet.ask_about_eviction(peers)
    assert fleet.state is LeadershipState.DOUBTFUL
    await checking(fleet, lambda: len(peers.asked) > 0 and fleet.state is expected)


async def test_nobody_is_asked_with_a_lease() -> None:
    fleet = fleet_of([member_of(OWN, OWN_ID), OTHERS[0]], held=True, silence_s=SILENCE_S)
    peers = FakePeers({1: [1]})
    fleet.ask_about_eviction(peers)
    turns = iter(range(100))
    await checking(fleet, lambda: next(turns, None) is None)
    assert peers.asked == []
