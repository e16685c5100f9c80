"""Logs that were closed as idle before they were clean."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import pytest

from coordinator.fleet.leadership import PartitionRole
from gateway.coordination.transactions.unclean_logs import MAX_OPEN_AFTER_S, OPEN_AFTER_S
from gateway.observability.metrics import Metrics
from gateway.pulsar.errors import ServiceNotReadyError
from gateway.pulsar.position import Position
from tests.unit.gateway.coordination.transactions.cleaning_scene import (
    FakeCleaner,
    Led,
    Logs,
    new_cleaning,
    only,
    with_fakes,
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    return with_fakes(monkeypatch)


async def test_what_was_too_young_when_its_log_was_closed_is_cleaned_later(clock: SimpleNamespace) -> None:
    logs = Logs()
    only(logs, 1)
    found = new_cleaning(logs, Metrics())
    FakeCleaner.limited_at = Position(1, 1)
    await found.check()
    logs.close_idle(1)
    for waited_s in (0.0, OPEN_AFTER_S - 1):
        clock.now_s += waited_s
        await found.check()
        assert not logs.reopened
    clock.now_s += 1
    FakeCleaner.limited_at = None
    await found.check()
    assert logs.reopened == [1]
    await found.check()
    assert FakeCleaner.cleaned == ["p1", "p1"]
    logs.close_idle(1)
    for _ in range(3):  # it is clean
        await found.check()
        clock.now_s += MAX_OPEN_AFTER_S
    assert logs.reopened == [1]


async def test_what_stays_undecided_is_opened_ever_less_often(clock: SimpleNamespace) -> None:
    logs = Logs()
    times: list[float] = []
    only(logs, 1)
    found = new_cleaning(logs, Metrics())
    FakeCleaner.limited_at = Position(1, 1)
    for _ in range(1_000):
        await found.check()
        if len(logs.reopened) > len(times):
            times.append(clock.now_s)
        if logs.opened:
            await found.check()
            logs.close_idle(1)
        clock.now_s += 15
    pauses = [later - earlier for earlier, later in pairwise([0.0, *times])]
    assert pauses[:4] == pytest.approx([600, 1_200, 2_400, 3_600], abs=60)
    assert max(pauses) <= MAX_OPEN_AFTER_S + 60


@pytest.mark.parametrize("failure", [ServiceNotReadyError("not yet"), TimeoutError()])
async def test_a_log_that_cannot_be_opened_is_tried_again_later(clock: SimpleNamespace, failure: Exception) -> None:
    logs = Logs()
    only(logs, 1)
    found = new_cleaning(logs, Metrics())
    FakeCleaner.limited_at, logs.open_failure = Position(1, 1), failure
    await found.check()
    logs.close_idle(1)
    for _ in range(2):
        await found.check()
        await found.check()
        clock.now_s += OPEN_AFTER_S
    await found.check()
    assert logs.reopened == [1]
    clock.now_s += OPEN_AFTER_S
    await found.check()
    assert logs.reopened == [1, 1]


@pytest.mark.parametrize("is_led", [True, False])
async def test_a_log_that_others_lead_or_open_is_not_opened(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, is_led: bool
) -> None:
    logs = Logs()
    only(logs, 1)
    found = new_cleaning(logs, Metrics())
    FakeCleaner.limited_at = Position(1, 1)
    await found.check()
    logs.close_idle(1)
    await found.check()
    if is_led:  # a client has opened it
        logs.opened = {**logs.idle}
    else:
        monkeypatch.setattr(Led, "role", lambda *_: PartitionRole.ELSEWHERE)
    clock.now_s += OPEN_AFTER_S
    for _ in range(2):
        await found.check()
    assert not logs.reopened
