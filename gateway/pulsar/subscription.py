"""A durable subscription that is used for its cursor: for acknowledgements, not for delivered messages."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from gateway.pulsar.connection import Connection
from gateway.pulsar.consumer import Consumer
from gateway.pulsar.errors import PulsarError, error_from_server
from gateway.pulsar.position import Position
from protocol.pulsar.frames import encode_flow
from protocol.pulsar.pulsar_commands_pb2 import (
    BaseCommand,
    CommandAck,
    CommandMessage,
    CommandSeek,
    CommandSubscribe,
    KeyLongValue,
    MessageIdData,
)


class Subscription(Consumer):
    """The only consumer of a durable subscription."""

    def __init__(self, topic: str, name: str, connection: Connection, on_closed: Callable[[PulsarError], None]) -> None:
        super().__init__(topic, connection)
        self.name = name
        self._closed_callback = on_closed
        self._delivered = asyncio.Event()

    async def open(self, *, from_earliest: bool, replicated: bool) -> None:
        """Open the subscription; create it at the topic's beginning or end if needed. Raises PulsarError."""
        await self._subscribe(
            CommandSubscribe(
                subscription=self.name,
                sub_type=CommandSubscribe.Exclusive,
                durable=True,
                initial_position=CommandSubscribe.Earliest if from_earliest else CommandSubscribe.Latest,
                replicate_subscription_state=replicated,
                force_topic_creation=False,
            )
        )

    async def ack_cumulative(self, position: Position, properties: Mapping[str, int]) -> None:
        """Move the cursor forward to `position`, which counts as consumed, and store the properties with it.

        Returns when the broker has accepted it; the broker writes cursors to disk later. Raises PulsarError.
        """
        request_id = self.connection.next_id()
        ack = CommandAck(
            consumer_id=self._id,
            ack_type=CommandAck.Cumulative,
            message_id=[MessageIdData(ledger_id=position.ledger_id, entry_id=position.entry_id)],
            properties=[KeyLongValue(key=key, value=value) for key, value in properties.items()],
            request_id=request_id,
        )
        answer = await self.connection.request(BaseCommand(type=BaseCommand.ACK, ack=ack), request_id)
        response = answer.ack_response
        if response.HasField("error"):
            raise error_from_server(response.error, response.message)

    async def seek(self, position: Position) -> None:
        """Move the cursor to any position; `position` is the next one to be consumed. Raises PulsarError.

        The broker closes the consumer when it does this: open the subscription again.
        """
        request_id = self.connection.next_id()
        message_id = MessageIdData(ledger_id=position.ledger_id, entry_id=position.entry_id)
        seek = CommandSeek(consumer_id=self._id, request_id=request_id, message_id=message_id)
        await self.connection.request(BaseCommand(type=BaseCommand.SEEK, seek=seek), request_id)

    async def dispatch(self, timeout_s: float) -> None:
        """Let the broker read after the cursor up to the next message; return when it arrives, or after `timeout_s`."""
        self._delivered.clear()
        frame = encode_flow(self._id, 1)
        self.connection.write(frame)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._delivered.wait()

    def handle_message(self, command: CommandMessage, frame: memoryview, offset: int) -> None:
        """The message is ignored: it stays unacknowledged until the cursor is moved past it."""
        self._delivered.set()

    def _on_closed(self, error: PulsarError) -> None:
        self._closed_callback(error)
