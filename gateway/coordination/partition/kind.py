"""What coordinators of one kind have in common: those of groups, for example, in all of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from coordinator.log import Log, OnAppended, Record
from coordinator.state_machine import Coordinator

C = TypeVar("C", bound=Coordinator)


class OwnLog(Log, Protocol):
    @property
    def epoch(self) -> int:
        """Higher than that of any other gateway that had the partition before. Known when the log has been replayed."""


@dataclass(frozen=True)
class CoordinatorKind(Generic[C]):
    new: Callable[[OwnLog], C]
    """Creates a coordinator that has loaded nothing yet."""
    barrier: Record
    """A record that changes nothing, and that every reader skips."""


class StandIns(Generic[C]):
    """Coordinators that answer in place of one that cannot: they have no partition, and never change their state."""

    def __init__(self, kind: CoordinatorKind[C], now_ms: int) -> None:
        self.loading = kind.new(_NoLog())
        self.resigned = kind.new(_NoLog())
        self.resigned.resign(now_ms)


class _NoLog:
    epoch = -1

    max_record_bytes = 0

    def append(self, records: Sequence[Record], on_done: OnAppended, *, irrevocable: bool = False) -> None:
        raise AssertionError("a coordinator without a partition appends nothing")
