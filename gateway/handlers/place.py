"""Where the answer to a request goes that is handled without a `Call`."""

from __future__ import annotations

from typing import Protocol

from gateway.requests.call import Api, Call
from gateway.requests.reply import Reply, Response
from protocol.kafka.buffers import Buffer


class Place(Protocol):
    """The place of an answer in the order of a connection's answers."""

    api: Api
    """Which requests may overtake this one depends on it."""

    def answer_at_once(self, buffers: list[Buffer]) -> None:
        """Answer with a frame, while the request is being handled."""

    def answer(self, *buffers: Buffer) -> None:
        """The same later."""

    def respond(self, call: Call, response: Response) -> None:
        """Answer later, with the response to a call."""

    def reply(self, call: Call, reply: Reply) -> None:
        """The same, with the reply of a handler."""

    def fail(self, error: Exception) -> None:
        """There is no answer, because of a defect: the connection is closed."""
