"""What a handler returns: a response now or later, perhaps after a preparation that later requests wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NamedTuple, TypeVar

from gateway.busy_time import Followed, run_part
from protocol.kafka.messages.message import Message


class RelayedResponse(NamedTuple):
    """Another gateway's response as it came: the frame without its length. Its correlation id is not the client's."""

    frame: bytearray


Response = Message | RelayedResponse | None
"""None: the request has no answer."""
R = TypeVar("R", bound=Response)
T = TypeVar("T")


class Reply:
    """A reply is one of three kinds.

    | created by | the response | later requests of the connection |
    | --- | --- | --- |
    | `Reply(response)` | is available | continue |
    | `Reply.later(future)` | comes later | continue as far as the order of answers allows |
    | `Reply.after(preparation)` | is in the reply that the coroutine returns | wait until the coroutine has returned |

    A produce request that has to open a log uses a preparation, so that appends keep their order.
    """

    __slots__ = ("future", "needs_request", "preparation", "response")

    def __init__(self, response: Response) -> None:
        self.response = response
        self.needs_request = True
        """The request's memory counts until the answer. If False, nothing keeps what is large in the request."""
        self.future: asyncio.Future[Response] | None = None
        self.preparation: Coroutine[object, object, Reply] | None = None

    @classmethod
    def later(cls, future: asyncio.Future[R]) -> Reply:
        reply = cls(None)
        reply.future = future  # type: ignore[assignment]  # a future of one kind of response, and only awaited
        return reply

    @classmethod
    def after(cls, preparation: Coroutine[object, object, Reply]) -> Reply:
        reply = cls(None)
        reply.preparation = preparation
        return reply

    def then(self, change: Callable[[Any], Response]) -> Reply:
        """The same reply with its response changed. The response must not be a relayed one. It is None for acks=0."""
        if self.preparation is not None:
            return self.when_prepared(lambda reply: reply.then(change))
        if self.future is not None:
            changed = Reply.later(run_waiting(_changed(self.future, change), self))
            changed.needs_request = self.needs_request
            return changed
        return Reply(change(self.response))

    def then_in_slices(self, change: Callable[[Any], Coroutine[Any, Any, Response]]) -> Reply:
        """As `then`, for changes that give others their turn."""
        if self.preparation is not None:
            return self.when_prepared(lambda reply: reply.then_in_slices(change))
        changed = Reply.later(run_waiting(_changed_in_slices(self, change), self))
        changed.needs_request = self.needs_request
        return changed

    def when_prepared(self, follow: Callable[[Reply], Reply]) -> Reply:
        """The result of `follow`, which gets this reply after all preparations."""
        if self.preparation is None:
            return follow(self)
        return Reply.after(Followed(self.preparation, lambda reply: reply.when_prepared(follow)))

    def abandon(self) -> None:
        """The response is not needed any more."""
        if self.preparation is not None:
            self.preparation.close()
        if self.future is not None and not self.future.cancel() and not self.future.cancelled():
            self.future.exception()  # or else asyncio would log that it was never retrieved

    async def prepared(self) -> Reply:
        """The reply after all preparations."""
        reply = self
        while reply.preparation is not None:
            reply = await reply.preparation
        return reply

    async def result(self) -> Response:
        """Wait for the response and return it."""
        reply = await self.prepared()
        return reply.response if reply.future is None else await reply.future


async def all_prepared(replies: Iterable[Reply]) -> list[Reply]:
    """Prepare the replies one after the other; each is taken from the iterable when those before it are prepared.

    If one fails, or the client leaves meanwhile, nobody needs those before it.
    """
    prepared: list[Reply] = []
    try:
        for reply in replies:
            prepared.append(await reply.prepared())
    except BaseException:
        for reply in prepared:
            reply.abandon()
        raise
    return prepared


def run_waiting(work: Coroutine[Any, Any, T], *replies: Reply) -> asyncio.Task[T]:
    """Run work that waits for the replies. They are abandoned if the work is cancelled, even before it begins.

    A task that is cancelled before its first step runs nothing: it cannot cancel what it would have waited for.
    """

    def abandon(task: asyncio.Task[T]) -> None:
        for reply in replies:
            reply.abandon()

    task = run_part(work)
    task.add_done_callback(abandon)
    return task


async def _changed_in_slices(reply: Reply, change: Callable[[Any], Coroutine[Any, Any, Response]]) -> Response:
    return await change(reply.response if reply.future is None else await reply.future)


async def _changed(future: asyncio.Future[Response], change: Callable[[Any], Response]) -> Response:
    return change(await future)


def forget(work: asyncio.Future[Any]) -> None:
    """Nobody needs the outcome of the work any more: discard it, and cancel what a reply still waits for."""
    if work.cancelled() or work.exception() is not None:
        return
    outcome = work.result()
    if isinstance(outcome, Reply):
        outcome.abandon()
