"""Producer ids, and the time since which a producer with an id can exist."""

from __future__ import annotations

import time

import pytest

from gateway.log.writing import producer_ids
from gateway.log.writing.producer_ids import ProducerIds


def test_they_differ() -> None:
    ids = ProducerIds()
    assert len({ids.allocate() for _ in range(70_000)}) == 70_000


@pytest.mark.parametrize("mark_every_s", [0, 60])
def test_what_was_allocated_after_a_moment_is_known(monkeypatch: pytest.MonkeyPatch, mark_every_s: float) -> None:
    monkeypatch.setattr(producer_ids, "MARK_EVERY_S", mark_every_s)
    ids = ProducerIds()
    before = [ids.allocate() for _ in range(10)]
    moment = time.monotonic()
    after = [ids.allocate() for _ in range(10)]
    assert not any(ids.allocated_after(each, moment) for each in before)
    assert all(ids.allocated_after(each, moment) for each in after) == (mark_every_s == 0), "never too much is said"
    assert all(ids.allocated_after(each, moment - 60) for each in (*before, *after))


def test_ids_of_others_are_not_known() -> None:
    ids = ProducerIds()
    own = ids.allocate()
    assert not ids.allocated_after(own + 1, 0)
    assert not ids.allocated_after(own - 1, 0)
    assert not ids.allocated_after(0, 0)
