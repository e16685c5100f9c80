"""Requests that wait behind a preparation are expected: once each, in order, and not too many."""

from __future__ import annotations

import pytest

from gateway.network import backlog
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.network.connection_harness import Conversation, frame


async def test_requests_behind_a_preparation_are_expected_once() -> None:
    conversation = Conversation()
    fake = conversation.dispatcher
    conversation.feed(frame("p1") + frame("p2") + frame("f3"))
    assert (fake.begun, fake.expected) == (["1"], ["2", "3"])
    await let_callbacks_run()
    fake.serial["1"].set_result(None)
    await let_callbacks_run()
    assert (fake.begun, fake.expected) == (["1", "2"], ["2", "3"])
    conversation.feed(frame("p4"))
    assert fake.expected == ["2", "3", "4"]
    fake.serial["2"].set_result(None)
    await let_callbacks_run()
    assert (fake.begun, fake.expected) == (["1", "2", "3", "4"], ["2", "3", "4"])
    conversation.feed(frame("p5"))
    assert fake.expected == ["2", "3", "4", "5"]


async def test_requests_that_arrive_during_a_preparation_are_expected() -> None:
    conversation = Conversation()
    conversation.feed(frame("p1"))
    conversation.feed(frame("p2"))
    assert conversation.dispatcher.expected == ["2"]


async def test_without_a_preparation_nothing_is_expected() -> None:
    conversation = Conversation()
    conversation.feed(frame("f1") + frame("n2") + frame("f3"))
    assert conversation.dispatcher.expected == []


@pytest.mark.parametrize("stop", ["n3", "m3", "u3"])
async def test_what_comes_after_a_request_of_another_kind_is_not_expected(stop: str) -> None:
    conversation = Conversation()
    conversation.feed(frame("p1") + frame("p2") + frame(stop) + frame("p4"))
    assert conversation.dispatcher.expected == ["2"]
    assert not conversation.transport.closing, "the connection ends when it is the request's turn"


async def test_a_bounded_number_of_requests_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "MAX_EXPECTED", 2)
    conversation = Conversation()
    fake = conversation.dispatcher
    conversation.feed(b"".join(frame(f"p{number}") for number in range(5)))
    assert fake.expected == ["1", "2"]
    await let_callbacks_run()
    fake.serial["0"].set_result(None)
    await let_callbacks_run()
    assert fake.expected == ["1", "2", "3"]


async def test_a_connection_is_read_while_all_its_requests_are_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "MAX_EXPECTED", 2)
    conversation = Conversation()
    conversation.feed(frame("p1") + frame("p2"))
    assert conversation.transport.reading
    conversation.feed(frame("p3"))
    assert conversation.dispatcher.expected == ["2", "3"]
    assert conversation.transport.reading
    conversation.feed(frame("p4"))
    assert not conversation.transport.reading, "no more of them are expected"


async def test_a_connection_is_not_read_while_a_request_waits_for_which_nothing_has_begun() -> None:
    conversation = Conversation()
    conversation.feed(frame("p1") + frame("n2"))
    await let_callbacks_run()
    conversation.dispatcher.serial["1"].set_result(None)
    await let_callbacks_run()
    assert not conversation.transport.reading
    conversation.dispatcher.futures["1"].set_result("1")
    await let_callbacks_run()
    assert conversation.transport.reading


async def test_a_connection_is_read_until_the_expected_requests_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "MAX_EXPECTED_BYTES", 20)
    conversation = Conversation()
    conversation.feed(frame("p1") + frame("p2" + 10 * " "))
    assert conversation.transport.reading
    conversation.feed(frame("p3" + 10 * " "))
    assert conversation.transport.reading
    conversation.feed(frame("p4"))
    assert conversation.dispatcher.expected == ["2", "3"]
    assert not conversation.transport.reading
    for number in ("1", "2"):
        await let_callbacks_run()
        conversation.dispatcher.serial[number].set_result(None)
    await let_callbacks_run()
    assert conversation.dispatcher.expected == ["2", "3", "4"]
    assert conversation.transport.reading
