"""Groups that change in several steps."""

import pytest

from coordinator.group.busy_groups import BusyGroups


def test_what_waits_for_a_group_is_done_in_order_when_its_last_work_ends() -> None:
    busy, done = BusyGroups(), list[tuple[str, int]]()
    busy.begin("g")
    busy.begin("g")
    busy.later("g", lambda now_ms: done.append(("a", now_ms)))
    busy.later("g", lambda now_ms: done.append(("b", now_ms)))
    busy.end("g", 1)
    assert "g" in busy and not done
    busy.end("g", 2)
    assert "g" not in busy and done == [("a", 2), ("b", 2)]


def test_what_waits_is_done_although_something_before_it_fails() -> None:
    busy, done = BusyGroups(), list[int]()
    busy.begin("g")
    busy.later("g", lambda now_ms: [][now_ms])
    busy.later("g", done.append)
    with pytest.raises(IndexError):
        busy.end("g", 1)
    assert done == [1]
