"""The fetch of a client that one other gateway answers as a whole: it ends when the client has gone."""

from __future__ import annotations

import asyncio

from gateway.forwarding.peers import PeerLink
from gateway.requests.context import Client
from gateway.requests.reply import Response

GRACE_S = 1.0
"""A leader answers with what it has within this time. If there is no answer by then, the fetch waits for records."""


class RelayedFetch:
    """A client has at most one."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._link: PeerLink | None = None
        self.answer: asyncio.Future[Response] | None = None
        """Of the fetch that is not answered yet."""

    def begin(self, link: PeerLink, answer: asyncio.Future[Response]) -> None:
        self._link, self.answer = link, answer
        self._client.begins_wait(self._client_ended)
        answer.add_done_callback(self._answered)

    def _answered(self, answer: asyncio.Future[Response]) -> None:
        if self.answer is answer:
            self.forget()

    def forget(self) -> None:
        """The answer, which holds the records, is given, or the client has disconnected."""
        self._client.ended_wait(self._client_ended)
        self._link = self.answer = None

    def _client_ended(self) -> None:
        """The client sends nothing more, and its leader does not know it."""
        asyncio.get_running_loop().call_later(GRACE_S, self._give_up, self.answer)

    def _give_up(self, answer: asyncio.Future[Response] | None) -> None:
        """Without the link, the leader ends the fetch. No other request of the client is in flight."""
        if self._link is not None and self.answer is answer:
            self._link.close()
