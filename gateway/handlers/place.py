"""The place of a response to a request that is handled without a `Call`."""

from __future__ import annotations

from typing import Protocol

from gateway.requests.call import Api, Call
from gateway.requests.reply import Reply, Response
from protocol.kafka.buffers import Buffer


class LaterPlace(Protocol):
    """The place of a response that comes later."""

    def answer(self, *buffers: Buffer) -> None:
        """Answer with a frame, later. It is written in the next turn of the event loop, with others."""

    def respond(self, call: Call, response: Response) -> None:
        """Answer later, with the response to a call."""


class Place(LaterPlace, Protocol):
    """The place of a response in the order of a connection's responses."""

    api: Api
    """It determines which later requests may run before this one is answered."""

    def answer_at_once(self, buffers: list[Buffer]) -> None:
        """Answer with a frame, while the request is being handled."""

    def answer_now(self, buffers: list[Buffer]) -> None:
        """Answer with a frame, later. It is written in this turn."""

    def reply(self, call: Call, reply: Reply) -> None:
        """Answer later, with the reply of a handler."""

    def fail(self, error: Exception) -> None:
        """There is no response, because of a defect: the connection is closed."""
