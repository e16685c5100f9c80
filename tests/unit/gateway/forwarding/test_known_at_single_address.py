"""A single address: requests for what this gateway leads are handled without being decoded, until the fleet changes.

That they are answered alike is compared in `handlers`, for each API.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.forwarding.known_at_single_address import KnownAtSingleAddress
from gateway.log.reading import receipt_lookup
from protocol.pulsar.pulsar_commands_pb2 import ServerError
from tests.bench.inside.forward import LEADER, FakeLeader
from tests.bench.inside.scene import SINGLE_ADDRESS
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.handlers.both_ways import TOPIC, Way
from tests.unit.gateway.handlers.records.test_known_produce import batch, request

VERSION = 9


class Scene:
    """A client that has written to a topic which this gateway leads, and may lead no more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(receipt_lookup, "LOOK_UP_AFTER_S", 0)
        self.way = Way(SINGLE_ADDRESS)
        self.links: list[FakeLeader] = []
        self.taken: list[bool] = []
        """For each request, whether it was not decoded."""
        real = KnownAtSingleAddress.handle

        def handle(known: KnownAtSingleAddress, *arguments: Any) -> bool:
            self.taken.append(real(known, *arguments))
            return self.taken[-1]

        monkeypatch.setattr(KnownAtSingleAddress, "handle", handle)
        monkeypatch.setattr(self.way.scene._services._peers, "open", self._open)

    def _open(self, member: Any, address: str, on_lost: Any, principal: str | None = None) -> FakeLeader:
        self.links.append(FakeLeader(member, address, memoryview(bytearray(65_536)), on_lost))
        return self.links[-1]

    def lose_leadership(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fleet = self.way.scene.fleet
        monkeypatch.setattr(type(fleet), "epoch", fleet.epoch + 1)
        monkeypatch.setattr(fleet, "leader", lambda topic, partition: LEADER)
        monkeypatch.setattr(fleet, "leads", lambda topic, partition: False)

    def write(self, count: int = 1) -> None:
        self.way.client.ask(request(VERSION, batch(count)))


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    made = Scene(monkeypatch)
    await made.way.answers(*(request(VERSION, batch()) for _ in range(3)))
    assert made.taken == [False, True], "the topic was unknown when the first one came"
    yield made
    made.way.client.connection.connection_lost(None)


async def test_a_new_leader_gets_batches_when_those_to_this_gateway_are_answered(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.write()
    await let_callbacks_run()
    assert scene.taken[2:] == [True] and not scene.way.client.received
    scene.lose_leadership(monkeypatch)
    scene.write()
    await let_callbacks_run()
    assert scene.taken[2:] == [True, False] and not any(link.asked.taken() for link in scene.links)
    scene.way.broker.say(scene.way.broker.answers())
    async with asyncio.timeout(5):
        while not (scene.links and scene.links[0].asked.sent):
            await asyncio.sleep(0)
    assert len(scene.way.client.received) == 1
    scene.links[0].say(scene.links[0].answers())
    await scene.way.scene.until_answered([scene.way.client])


async def test_refused_batches_are_answered(scene: Scene) -> None:
    """They no longer count as unanswered, either: a later batch to another leader would wait for ever."""
    broker = scene.way.broker
    broker.error = ServerError.UnknownError
    assert TOPIC.encode() in (await scene.way.answers(request(VERSION, batch())))[0]
    broker.error = None
    await scene.way.answers(request(VERSION, batch()))
    handler: Any = scene.way.client.connection._pipeline._handler
    while not hasattr(handler, "_produce_order"):
        handler = handler._handler
    assert handler._produce_order.is_drained(-2)
