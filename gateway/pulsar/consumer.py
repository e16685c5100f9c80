"""The common part of readers and subscriptions: registering with the broker, and closing."""

from gateway.pulsar.connection import Connection, ConnectionState
from gateway.pulsar.errors import PulsarError, TopicClosedError
from gateway.pulsar.position import Position
from protocol.pulsar.pulsar_commands_pb2 import (
    BaseCommand,
    CommandCloseConsumer,
    CommandGetLastMessageId,
    CommandMessage,
    CommandSubscribe,
)


class Consumer:
    """One consumer on one topic of one broker, until either side closes it."""

    def __init__(self, topic: str, connection: Connection) -> None:
        self.topic = topic
        self.connection = connection
        self.closed = False
        self._id = connection.next_id()
        self._opened = False

    async def _subscribe(self, subscribe: CommandSubscribe) -> None:
        """Register with the broker. Raises PulsarError; the broker then holds no consumer."""
        connection = self.connection
        request_id = connection.next_id()
        subscribe.topic = self.topic
        subscribe.consumer_id = self._id
        subscribe.request_id = request_id
        connection.consumers[self._id] = self
        try:
            await connection.request(BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=subscribe), request_id)
            if self.closed:  # closed directly after the answer, before this task continued
                raise TopicClosedError("the broker closed the consumer at once")
        except BaseException:
            self._forget()
            raise
        self._opened = True

    async def last_position(self) -> Position:
        """The position of the topic's last entry; entry id -1 if the topic has no entry. Raises PulsarError."""
        request_id = self.connection.next_id()
        ask = CommandGetLastMessageId(consumer_id=self._id, request_id=request_id)
        command = BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID, get_last_message_id=ask)
        answer = await self.connection.request(command, request_id)
        last = answer.get_last_message_id_response.last_message_id
        return Position(last.ledger_id, last.entry_id)

    async def close(self) -> None:
        """Tell the broker to remove the consumer, without waiting for its answer. No callback follows."""
        self._forget()

    def handle_message(self, command: CommandMessage, frame: memoryview, offset: int) -> None:
        """Handle a MESSAGE frame whose command ends at `offset`. Raises FrameError, which ends the consumer."""

    def handle_closed(self, error: PulsarError) -> None:
        self.closed = True
        if self._opened:  # otherwise `_subscribe` raises the error
            self._on_closed(error)

    def fail(self, error: PulsarError) -> None:
        """Close the consumer from this side, because of data that the broker sent."""
        self._forget()
        if self._opened:
            self._on_closed(error)

    def _on_closed(self, error: PulsarError) -> None:
        raise NotImplementedError

    def _forget(self) -> None:
        self.closed = True
        connection = self.connection
        if connection.consumers.pop(self._id, None) is None or connection.state is ConnectionState.CLOSED:
            return
        close = CommandCloseConsumer(consumer_id=self._id, request_id=connection.next_id())
        connection.send_command(BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=close))
