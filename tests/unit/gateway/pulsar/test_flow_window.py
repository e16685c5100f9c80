"""Permits: never more on their way than wanted, and asked for in few pieces."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from gateway.pulsar.flow_window import FlowWindow
from gateway.pulsar.reader import Entry, Reader


class FakeReader:
    def __init__(self) -> None:
        self.flows: list[int] = []

    def flow(self, permits: int) -> None:
        self.flows.append(permits)


def entry(messages: int) -> Entry:
    return cast(Entry, SimpleNamespace(permits=messages))


def topped_up(window: FlowWindow, messages: int) -> list[int]:
    reader = FakeReader()
    assert window.top_up(cast(Reader, reader), messages) is bool(reader.flows)
    return reader.flows


def test_permits_are_given_when_half_of_them_are_used_up() -> None:
    window = FlowWindow()
    assert topped_up(window, 100) == [100]
    window.used(entry(49))
    assert topped_up(window, 100) == []
    window.used(entry(1))
    assert topped_up(window, 100) == [50]


def test_it_tells_when_topping_up_may_help() -> None:
    window = FlowWindow()
    topped_up(window, 100)
    assert not window.used(entry(49))
    assert window.used(entry(1))
    topped_up(window, 0)
    assert not window.used(entry(49)), "nothing more is wanted while so much is on its way"
    assert window.used(entry(1))


def test_what_an_entry_took_beyond_the_permits_is_made_up_for() -> None:
    window = FlowWindow()
    topped_up(window, 1)
    window.used(entry(10))
    assert topped_up(window, 4) == [13]


def test_a_window_that_shrinks_waits_until_less_is_on_its_way() -> None:
    window = FlowWindow()
    topped_up(window, 100)
    assert topped_up(window, 0) == []
    assert topped_up(window, 10) == []
    window.used(entry(95))
    assert topped_up(window, 10) == [5]
