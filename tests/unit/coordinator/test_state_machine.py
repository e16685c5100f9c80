"""Every coordinator that a partition can lead keeps the same contract."""

from collections.abc import Callable

import pytest

from coordinator.state_machine import Coordinator, Phase
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import Harness as GroupHarness
from tests.unit.coordinator.transaction.transaction_harness import Harness as TransactionHarness

NOW_MS = 1_000_000


def groups() -> Coordinator:
    return GroupHarness(load=False).coordinator


def transactions() -> Coordinator:
    return TransactionHarness(load=False).coordinator


def load(coordinator: Coordinator) -> None:
    for _ in coordinator.finish_loading(NOW_MS):
        pass


@pytest.mark.parametrize("new", [groups, transactions])
def test_nothing_is_due_before_it_is_loaded_or_after_it_has_resigned(new: Callable[[], Coordinator]) -> None:
    coordinator = new()
    assert coordinator.next_deadline_ms() is None
    load(coordinator)
    assert coordinator.next_deadline_ms() is not None
    coordinator.pause(NOW_MS)
    coordinator.resume(NOW_MS)
    coordinator.resign(NOW_MS)
    assert coordinator.next_deadline_ms() is None
    while coordinator.has_work:
        coordinator.work()


@pytest.mark.parametrize("new", [groups, transactions])
def test_one_may_resign_before_it_is_loaded(new: Callable[[], Coordinator]) -> None:
    coordinator = new()
    coordinator.resign(NOW_MS)
    assert coordinator.next_deadline_ms() is None
    while coordinator.has_work:
        coordinator.work()


def test_phases_have_kafkas_errors() -> None:
    assert {phase: phase.error for phase in Phase} == {
        Phase.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        Phase.ACTIVE: ErrorCode.NONE,
        Phase.RESIGNED: ErrorCode.NOT_COORDINATOR,
    }
