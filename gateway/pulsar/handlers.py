"""What hears of a connection's producers and consumers."""

from typing import Protocol

from gateway.pulsar.errors import PulsarError
from gateway.pulsar.position import Position
from protocol.pulsar.pulsar_commands_pb2 import CommandMessage, CommandSendError


class ProducerHandler(Protocol):
    """Receives what the broker sends to one producer. What it raises is its own end, and not the connection's."""

    def handle_receipt(self, sequence_id: int, position: Position) -> None: ...
    def handle_send_error(self, command: CommandSendError) -> None: ...
    def handle_closed(self, error: PulsarError) -> None: ...
    def fail(self, error: PulsarError) -> None: ...


class ConsumerHandler(Protocol):
    """Receives what the broker sends to one consumer. What it raises is its own end, and not the connection's."""

    def handle_message(self, command: CommandMessage, frame: memoryview, offset: int) -> None: ...
    def handle_closed(self, error: PulsarError) -> None: ...
    def fail(self, error: PulsarError) -> None: ...
