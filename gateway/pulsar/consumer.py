"""What readers and subscriptions share: registering with the broker, and the end."""

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
        """Register with the broker. Raises PulsarError, and then the broker holds no consumer of it."""
        connection = self.connection
        request_id = connection.next_id()
        subscribe.topic = self.topic
        subscribe.consumer_id = self._id
        subscribe.request_id = request_id
        connection.consumers[self._id] = self
        try:
            await connection.request(BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=subscribe), request_id)
            if self.closed:  # right behind the answer, before anybody was listening
                raise TopicClosedError("the broker closed the consumer at once")
        except BaseException:
            self._forget()
            raise
        self._opened = True

    async def last_position(self) -> Position:
        """Where the topic's last entry lies; entry id -1 if it holds none. Raises PulsarError."""
        request_id = self.connection.next_id()
        ask = CommandGetLastMessageId(consumer_id=self._id, request_id=request_id)
        command = BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID, get_last_message_id=ask)
        answer = await self.connection.request(command, request_id)
        last = answer.get_last_message_id_response.last_message_id
        return Position(last.ledger_id, last.entry_id)

    async def close(self) -> None:
        """Let the broker forget the consumer, without waiting for it. Nothing follows."""
        self._forget()

    def handle_message(self, command: CommandMessage, frame: memoryview, offset: int) -> None:
        """A MESSAGE frame whose command ends at `offset`. Raises FrameError: then nothing more comes."""

    def handle_closed(self, error: PulsarError) -> None:
        self.closed = True
        if self._opened:  # else `_subscribe` raises it
            self._on_closed(error)

    def fail(self, error: PulsarError) -> None:
        """End it from this side, because of what the broker sent."""
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
