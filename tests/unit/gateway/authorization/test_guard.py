"""A right for each row of a request: the handler gets what is allowed, and the response has all rows."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway import fan_out
from gateway.authorization.guard import AT_ONCE, NeedsEach
from gateway.requests.call import Call
from gateway.requests.reply import Reply


async def rows_of(names: list[str], **more: Any) -> tuple[list[list[str]], list[str], int]:
    """What the handler got, the rows of the response, and the turns of the event loop meanwhile."""
    handled: list[list[str]] = []
    turns = 0

    def handle(call: Call[Any]) -> Reply:
        handled.append(call.request.names)
        return Reply(cast(Any, SimpleNamespace(rows=[name.upper() for name in call.request.names])))

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    def asking(request: Any) -> Any:
        return call_of(request)

    def call_of(request: Any) -> Any:
        return SimpleNamespace(request=request, asking=asking, api=SimpleNamespace(response=SimpleNamespace))

    guard = NeedsEach("names", lambda call, name: name < "n", "rows", lambda call, name: f"no {name}", **more)
    counting = asyncio.create_task(count_turns())
    reply = guard(cast(Any, call_of(SimpleNamespace(names=names))), handle)
    response: Any = await reply.result()
    counting.cancel()
    return handled, response.rows, turns


async def test_some_are_allowed() -> None:
    assert (await rows_of(["a", "z", "b"]))[:2] == ([["a", "b"]], ["A", "B", "no z"])
    assert (await rows_of(["y", "z"]))[:2] == ([], ["no y", "no z"])
    assert (await rows_of([]))[:2] == ([[]], [])


async def test_what_is_denied_again_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "SLICE_S", 0)  # a turn for each step
    assert (await rows_of(["a", "z", "a", "z", "y"], once=str))[:2] == ([["a", "a"]], ["A", "A", "no z", "no y"])
    handled, rows, turns = await rows_of(["z"] * 2 * AT_ONCE, once=str)
    assert (handled, rows) == ([], ["no z"])
    assert turns > AT_ONCE


async def test_an_error_of_the_handler_has_no_rows() -> None:
    assert (await rows_of(["z"], error=lambda response: response.rows))[:2] == ([[]], ["no z"])
    assert (await rows_of(["a", "z"], error=lambda response: response.rows))[:2] == ([["a"]], ["A"])


async def test_very_many_leave_others_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "SLICE_S", 0)  # a turn for each step
    names = ["a", "z"] * AT_ONCE
    handled, rows, turns = await rows_of(names)
    assert (handled, rows) == ([["a"] * AT_ONCE], ["A"] * AT_ONCE + ["no z"] * AT_ONCE)
    assert turns > AT_ONCE
