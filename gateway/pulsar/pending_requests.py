"""The requests of one connection that wait for the broker's answer."""

import asyncio

from gateway.pulsar.errors import PulsarError, RequestTimeoutError
from protocol.pulsar.pulsar_commands_pb2 import BaseCommand


class PendingRequests:
    def __init__(self, url: str, timeout_ms: int) -> None:
        """``url`` is the broker's, for errors."""
        self._url = url
        self._timeout_ms = timeout_ms
        self._answers: dict[int, asyncio.Future[BaseCommand]] = {}

    async def answer(self, request_id: int, command_type: int) -> BaseCommand:
        """Wait for the answer. Raises the PulsarError that `failed` or `fail_all` gave, or RequestTimeoutError."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[BaseCommand] = loop.create_future()
        self._answers[request_id] = future
        timer = loop.call_later(self._timeout_ms / 1000, self._unanswered, future, command_type)
        try:
            return await future
        finally:
            timer.cancel()
            self._answers.pop(request_id, None)

    def _unanswered(self, future: asyncio.Future[BaseCommand], command_type: int) -> None:
        if not future.done():
            name = BaseCommand.Type.Name(command_type)
            future.set_exception(RequestTimeoutError(f"{self._url} did not answer {name} in time"))

    def answered(self, request_id: int, command: BaseCommand) -> None:
        future = self._answers.get(request_id)
        if future is not None and not future.done():  # otherwise the answer came too late
            future.set_result(command)

    def failed(self, request_id: int, error: PulsarError) -> None:
        future = self._answers.get(request_id)
        if future is not None and not future.done():
            future.set_exception(error)

    def fail_all(self, error: PulsarError) -> None:
        for request_id in list(self._answers):
            self.failed(request_id, error)
