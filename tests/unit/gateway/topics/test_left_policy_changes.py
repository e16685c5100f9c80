"""Changes of policies that were left unfinished are finished, whenever they were left."""

from __future__ import annotations

import asyncio

import pytest

from gateway.topics import policy_changes
from gateway.topics.policy_changes import PolicyChanges, policy_change
from gateway.topics.topic_configs import DEFAULTS
from tests.unit.gateway.log.fake_admin import FakeTopics
from tests.unit.gateway.topics.test_policy_changes import NAME, At, all_done, pending


class Left:
    """Changes of one topic that were left unfinished."""

    def __init__(self) -> None:
        self.pulsar = FakeTopics()
        self.pulsar.properties[NAME], self.pulsar.policies[NAME] = {}, {}
        self.changes = PolicyChanges(self.pulsar.client, DEFAULTS)

    def leave(self, retention_ms: str) -> None:
        change = policy_change({}, {"kafka.config.retention.ms": retention_ms}, DEFAULTS)
        assert change is not None
        self.pulsar.properties[NAME] |= change.properties
        self.changes.finish_later(NAME, change.properties)


@pytest.fixture
async def left(monkeypatch: pytest.MonkeyPatch) -> Left:
    monkeypatch.setattr(policy_changes, "GRACE_S", 0.0)
    monkeypatch.setattr(policy_changes, "PAUSE_S", 0.0)
    return Left()


async def test_what_is_left_while_other_changes_are_finished_is_finished_too(left: Left) -> None:
    left.leave("1000")

    async def leave_another() -> None:
        left.leave("2000")

    at = At(left.pulsar, 2, leave_another)
    await all_done()
    assert at.over()
    assert not pending(left.pulsar)


async def test_what_is_left_in_the_turn_in_which_the_last_change_is_finished(left: Left) -> None:
    """Callbacks of the task that has finished it have not run yet."""
    left.leave("1000")
    (finishing,) = left.changes._finishing
    async with asyncio.timeout(5):
        while not finishing.done():
            await asyncio.sleep(0)
    left.leave("2000")
    await all_done()
    assert not pending(left.pulsar)
