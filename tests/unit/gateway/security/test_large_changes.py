"""Changes of very many settings take effect in slices, and allow nothing meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from gateway import fan_out
from gateway.pulsar.errors import ConnectionLostError
from gateway.security import security_log
from gateway.security.acls import Acl, Requester
from gateway.security.large_changes import apply_in_slices, changes_to
from gateway.security.records import (
    acl_record,
    secret_record,
)
from gateway.security.state import SecurityState
from protocol.kafka.acl import Permission
from tests.unit.gateway.security.security_log_scene import (
    ACL,
    FakeReader,
    FakeTopic,
    Scene,
    until,
)


def numbered(prefix: str, number: int, permission: Permission) -> Acl:
    return ACL._replace(name=f"{prefix}-{number}", permission=permission)


async def test_a_very_large_change_takes_effect_in_slices_and_allows_nothing_meanwhile(
    scene: Scene, topic: FakeTopic
) -> None:
    """What follows it takes effect after it."""
    await scene.start()
    old = [numbered("old", number, Permission.ALLOW) for number in range(2_000)]
    topic.write(*[acl_record(acl, present=True) for acl in old])
    topic.deliver()
    await until(lambda: len(scene.state.acls) == 2_000)
    allowed = [numbered("new", number, Permission.ALLOW) for number in range(2_000)]
    denied = [numbered("new", number, Permission.DENY) for number in range(2_000)]
    created = [acl_record(acl, present=True) for acl in allowed + denied]
    topic.write(*created, *[acl_record(acl, present=False) for acl in old])
    topic.write(acl_record(allowed[0], present=False), *[acl_record(acl, present=True) for acl in old[:1]])
    topic.deliver()
    turns = 0
    while len(scene.state.acls) != 4_000 or old[0] not in scene.state.acls or allowed[0] in scene.state.acls:
        if any(acl in scene.state.acls for acl in allowed):
            assert all(acl in scene.state.acls for acl in denied)
            assert not any(acl in scene.state.acls for acl in old[1:])
        turns += 1
        await asyncio.sleep(0)
    assert turns > 10
    await scene.security.catch_up()


async def test_the_broker_sends_no_more_while_a_very_large_change_takes_effect(scene: Scene, topic: FakeTopic) -> None:
    await scene.start()
    reader = cast(FakeReader, topic.opened)
    permits = reader.permits
    topic.write(*[acl_record(numbered("a", number, Permission.ALLOW), present=True) for number in range(3_000)])
    topic.deliver()
    await until(lambda: len(scene.state.acls) > 100)
    assert reader.permits == permits
    await until(lambda: len(scene.state.acls) == 3_000)
    await until(lambda: reader.permits == permits + 3_000)


async def test_a_very_large_change_ends_when_the_log_is_loaded_again(scene: Scene, topic: FakeTopic) -> None:
    await scene.start()
    acls = [numbered("a", number, Permission.ALLOW) for number in range(3_000)]
    topic.write(*[acl_record(acl, present=True) for acl in acls])
    topic.deliver()
    await until(lambda: len(scene.state.acls) > 100)
    assert len(scene.state.acls) < 3_000
    topic.write(*[acl_record(acl, present=False) for acl in acls])
    scene.log.loaded.clear()
    scene.log.on_reader_closed(ConnectionLostError("lost"))
    await until(lambda: scene.log.loaded.is_set() and scene.log._read_up_to == topic.last)
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(scene.state.acls) == 0


async def test_settings_that_are_loaded_again_change_in_slices_and_allow_nothing_meanwhile(
    scene: Scene, topic: FakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has not changed is in effect all the time."""
    await scene.start()
    old, kept, new = ([numbered(name, number, Permission.ALLOW) for number in range(2_000)] for name in "abc")
    denied = [acl._replace(permission=Permission.DENY) for acl in new]
    topic.write(*[acl_record(acl, present=True) for acl in old + kept])
    topic.deliver()
    await until(lambda: len(scene.state.acls) == 4_000)
    monkeypatch.setattr(scene.log, "_has_missed_entries", AsyncMock(return_value=True))
    lost, topic.reader = topic.reader, None
    topic.write(
        *[acl_record(acl, present=True) for acl in new + denied], *[acl_record(acl, present=False) for acl in old]
    )
    lost.on_reader_closed(ConnectionLostError("lost"))
    turns = 0
    while not (new[-1] in scene.state.acls and len(scene.state.acls) == 6_000):
        assert all(acl in scene.state.acls for acl in kept[::500])
        if any(acl in scene.state.acls for acl in new[::100]):
            assert all(acl in scene.state.acls for acl in denied)
            assert not any(acl in scene.state.acls for acl in old)
        turns += len(scene.state.acls) != 4_000
        await asyncio.sleep(0)
    assert turns > 10


async def test_the_secret_of_a_new_log_counts_when_it_is_loaded_again() -> None:
    state = SecurityState()
    for record in (secret_record(b"old"), acl_record(ACL, present=True)):
        state.apply(record)
    await apply_in_slices(state, await changes_to(state, [secret_record(b"new"), secret_record(b"later")]))
    assert state.secret == b"new" and not len(state.acls)


async def test_a_very_large_change_is_measured_and_encoded_in_slices(
    scene: Scene, topic: FakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.start()
    monkeypatch.setattr(fan_out, "SLICE_S", 0.0)
    monkeypatch.setattr(fan_out, "STEP_ITEMS", 1)
    steps, turn = list[tuple[str, int]](), 0

    def noted(module: Any, name: str) -> None:
        plain = getattr(module, name)

        def noting(*arguments: Any, **options: Any) -> Any:
            steps.append((name, turn))
            return plain(*arguments, **options)

        monkeypatch.setattr(module, name, noting)

    noted(scene.state, "growth_bytes")
    noted(security_log, "encode_message")
    records = [acl_record(numbered("a", number, Permission.ALLOW), present=True) for number in range(100)]
    changing = asyncio.create_task(scene.security.change(records, Requester("User:root", "192.0.2.7")))
    while len(topic.entries) == 0:
        turn += 1
        await asyncio.sleep(0)
    assert len(steps) == 2 * len(records)
    assert len(set(steps)) > 1.9 * len(records), "hardly two in one turn"
    topic.deliver()
    await changing
