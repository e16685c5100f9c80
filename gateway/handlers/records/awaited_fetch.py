"""A fetch that is not answered at once: what ends its wait early."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from gateway.fetching.fetch_answer import FetchAnswer
from gateway.fetching.fetch_session import FetchSession
from gateway.fetching.fetch_waits import held_bytes
from gateway.requests.call import Call
from gateway.requests.reply import Reply
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import FetchRequest


def outdated(session: FetchSession) -> FetchAnswer:
    """The answer to a fetch whose session has moved on, or has ended."""
    return FetchAnswer(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.session_id)


class Fetch(Protocol):
    """One that waits."""

    future: asyncio.Future[Any]

    def end_wait(self) -> None:
        """The client wants what there is now."""


def awaited(call: Call[FetchRequest], fetch: Fetch, session: FetchSession | None, partitions: int) -> Reply:
    """The reply of a fetch whose answer comes later. The next fetch of its session ends it.

    If the client sends nothing more, it gets what there is: it may have gone, and all that the fetch holds would stay.
    So it does if too much waits.
    """
    if session is not None:
        session.in_flight = _InFlight(fetch.future, session)
    client, waits, end_wait = call.client, call.cluster.fetch_waits, fetch.end_wait
    client.begins_wait(end_wait)
    waits.begin(end_wait, held_bytes(call.request, partitions))

    def ended(_: asyncio.Future[Any]) -> None:
        client.ended_wait(end_wait)
        waits.ended(end_wait)

    fetch.future.add_done_callback(ended)
    return Reply.later(fetch.future)


class _InFlight:
    """The fetch of a session that is not answered yet."""

    def __init__(self, future: asyncio.Future[Any], session: FetchSession) -> None:
        self._future = future
        self._session = session
        future.add_done_callback(self._answered)

    def end(self) -> None:
        if not self._future.done():
            self._future.set_result(outdated(self._session))

    def _answered(self, _future: asyncio.Future[Any]) -> None:
        if self._session.in_flight is self:
            self._session.in_flight = None
