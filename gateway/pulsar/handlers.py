"""Interfaces for the producers and consumers of a connection."""

from typing import Protocol

from gateway.pulsar.errors import PulsarError
from gateway.pulsar.position import Position
from protocol.pulsar.pulsar_commands_pb2 import CommandMessage, CommandSendError


class ProducerHandler(Protocol):
    """Receives the broker's commands for one producer. Its exceptions end the producer, not the connection."""

    def handle_receipt(self, sequence_id: int, position: Position) -> None: ...
    def handle_send_error(self, command: CommandSendError) -> None: ...
    def handle_closed(self, error: PulsarError) -> None: ...
    def fail(self, error: PulsarError) -> None: ...


class ConsumerHandler(Protocol):
    """Receives the broker's commands for one consumer. Its exceptions end the consumer, not the connection."""

    def handle_message(self, command: CommandMessage, frame: memoryview, offset: int) -> None: ...
    def handle_closed(self, error: PulsarError) -> None: ...
    def fail(self, error: PulsarError) -> None: ...
