"""What a handler returns: a response now or later, perhaps behind preparations that later requests wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

Response = Any
"""Any object with the fields of the API's response schema as attributes; a `RelayedResponse`; or None: no answer."""


class Reply:
    """One of three.

    | made by | the response | later requests of the connection |
    | --- | --- | --- |
    | `Reply(response)` | is there | go on |
    | `Reply.later(future)` | comes | go on as far as the order of answers lets them |
    | `Reply.after(preparation)` | is in the reply that the coroutine returns | wait until it has returned |

    A produce request that has to open a log prepares itself, so that appends keep their order.
    """

    __slots__ = ("future", "preparation", "response")

    def __init__(self, response: Response) -> None:
        self.response = response
        self.future: asyncio.Future[Response] | None = None
        self.preparation: Coroutine[Any, Any, Reply] | None = None

    @classmethod
    def later(cls, future: asyncio.Future[Response]) -> Reply:
        reply = cls(None)
        reply.future = future
        return reply

    @classmethod
    def after(cls, preparation: Coroutine[Any, Any, Reply]) -> Reply:
        reply = cls(None)
        reply.preparation = preparation
        return reply

    async def prepared(self) -> Reply:
        """The reply behind all preparations."""
        reply = self
        while reply.preparation is not None:
            reply = await reply.preparation
        return reply

    async def result(self) -> Response:
        """The response, waited for."""
        reply = await self.prepared()
        return reply.response if reply.future is None else await reply.future
