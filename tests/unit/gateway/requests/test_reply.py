"""Replies that are changed: nothing is left behind when the client disconnects before their first step."""

import asyncio
import gc
import warnings
from collections.abc import Iterator

import pytest

from gateway.requests.reply import Reply, Response, run_waiting
from protocol.kafka.messages.groups import HeartbeatResponse


@pytest.fixture(autouse=True)
def warnings_are_errors() -> Iterator[None]:
    """The warning about a coroutine that was never awaited comes when the coroutine is freed."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert not [str(each.message) for each in caught]


def renamed(response: HeartbeatResponse) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=response.error_code + 1)


async def prepare(*steps: Reply) -> Reply:
    await asyncio.sleep(0)
    return steps[0] if len(steps) == 1 else Reply.after(prepare(*steps[1:]))


async def test_the_response_of_each_kind_is_changed() -> None:
    future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    replies = [
        Reply(HeartbeatResponse(error_code=1)),
        Reply.later(future),
        Reply.after(prepare(Reply(None), Reply(HeartbeatResponse(error_code=1)))),
    ]
    changed = [reply.then(renamed).then(renamed) for reply in replies]
    future.set_result(HeartbeatResponse(error_code=1))
    assert [await reply.result() for reply in changed] == [HeartbeatResponse(error_code=3)] * 3


async def test_a_preparation_that_is_cancelled_before_its_first_step() -> None:
    preparation = Reply.after(prepare(Reply(None))).then(renamed).preparation
    assert preparation is not None
    task = asyncio.ensure_future(preparation)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_preparation_that_is_closed_before_its_first_step() -> None:
    preparation = Reply.after(prepare(Reply(None))).then(renamed).preparation
    assert preparation is not None
    preparation.close()


async def test_work_that_is_cancelled_before_its_first_step_abandons_the_reply_that_it_would_wait_for() -> None:
    reply = Reply.after(prepare(Reply(None)))
    task = run_waiting(reply.result(), reply)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_future_whose_change_is_cancelled_before_its_first_step() -> None:
    """Otherwise a delayed fetch would wait although its client has gone."""
    future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    changed = Reply.later(future).then(renamed).future
    assert changed is not None
    changed.cancel()
    with pytest.raises(asyncio.CancelledError):
        await changed
    assert future.cancelled()
