"""A fetch that is not answered at once: what ends its wait early."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway.fetching.fetch_answer import FetchAnswer
from gateway.fetching.fetch_session import FetchSession
from gateway.requests.reply import Reply
from protocol.kafka.errors import ErrorCode


def outdated(session: FetchSession) -> FetchAnswer:
    """The answer to a fetch whose session has moved on, or has ended."""
    return FetchAnswer(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.session_id)


def awaited(future: asyncio.Future[Any], session: FetchSession | None) -> Reply:
    """The reply of a fetch whose answer comes later. The next fetch of its session ends it."""
    if session is not None:
        session.in_flight = _InFlight(future, session)
    return Reply.later(future)


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
