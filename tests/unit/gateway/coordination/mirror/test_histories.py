"""A group that commits here and reads in another cluster, while its coordinator moves and Pulsar fails.

It starts where it has read last, here or there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.coordination.group_partition import GroupPartition
from gateway.coordination.mirror import schedule
from gateway.coordination.mirror.cursors import Cursor, TopicCursors
from gateway.coordination.mirror.schedule import MirrorKey
from gateway.pulsar.errors import ServiceNotReadyError
from gateway.pulsar.position import Position
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.coordination.fake_coordinator import FakeCoordinator
from tests.unit.gateway.coordination.mirror.mirror_harness import T0, FakeCursors, Harness

GROUP, SUBSCRIPTION = "g", ("t-0", "g")


@pytest.fixture(autouse=True)
def no_pauses() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("COALESCE_MS", "START_EVERY_MS", "PAUSE_FIRST_MS"):
            patch.setattr(schedule, name, 1)
        yield


class PulsarCursors(FakeCursors):
    """An acknowledgement before the cursor has no effect: only one that was found to be ahead is set back."""

    async def _subscriptions(self, topic: str) -> TopicCursors:
        found = await super()._subscriptions(topic)
        bare = {name: Cursor(Position(1, self.bare_offset or 0), None) for _, name in self.bare}
        return TopicCursors({**found.by_name, **bare}, ())

    def knows(self, topic: str, name: str) -> bool:
        return False

    async def move(self, topic: str, name: str, offset: int, log: object, found: Cursor | None) -> bool:
        known = -1 if found is None else found.position.entry_id
        if (topic, name) in self.bare and known <= offset < (self.bare_offset or 0):
            return True
        return await super().move(topic, name, offset, log, found)


class World:
    def __init__(self) -> None:
        self.harness = Harness(PulsarCursors())
        self.harness.cursors.replicated = True
        self.committed = self.start = 0
        self._commits_wait = False

    async def run(self, action: str, number: int) -> None:
        await getattr(self, action)(number)

    async def commit(self, number: int) -> None:
        self.committed = self.start = number
        self._commits_wait = True
        self.harness.commit(GROUP, T0, number)

    async def read_there(self, number: int) -> None:
        """The other cluster moves the subscription, which loses its offset. What was committed here is there."""
        if self._commits_wait:
            await self.mirror_all(number)
        cursors = self.harness.cursors
        if SUBSCRIPTION in cursors.bare or SUBSCRIPTION in cursors.offsets:
            self.start += 1 + number
            cursors.offsets.pop(SUBSCRIPTION, None)
            cursors.bare, cursors.bare_offset = {SUBSCRIPTION}, self.start

    async def take_over(self, number: int) -> None:
        self.harness.mirror.partition_loaded(cast(GroupPartition, FakeCoordinator({GROUP: {T0: self.committed}})), [])

    async def fail(self, number: int) -> None:
        self.harness.cursors.failures.append(ServiceNotReadyError("moving"))

    async def wait(self, number: int) -> None:
        await let_callbacks_run()

    async def mirror_all(self, number: int) -> None:
        await self.harness.until_mirrored()
        self._commits_wait = False

    async def check(self) -> None:
        await let_callbacks_run()
        await self.mirror_all(0)
        self.harness.cursors.failures.clear()
        await let_callbacks_run()
        await self.mirror_all(0)
        found = await self.harness.mirror.offsets(GROUP, {T0: self.committed})
        assert found.get(T0, self.committed) == self.start


ACTIONS = ["commit", "read_there", "take_over", "fail", "wait", "mirror_all"]
COMPARED_AND_MOVED = [("commit", 3), ("read_there", 0), ("fail", 0), ("take_over", 0)]


@settings(max_examples=100, deadline=None)
@given(script=st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 9)), max_size=20))
@example(script=COMPARED_AND_MOVED)
def test_a_group_starts_where_it_has_read_last(script: list[tuple[str, int]]) -> None:
    async def play() -> None:
        world = World()
        world.harness.committed[MirrorKey(GROUP, T0)] = 0
        for action, number in script:
            await world.run(action, number)
        await world.check()
        await world.harness.mirror.stop()

    asyncio.run(play())
