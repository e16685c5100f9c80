"""Probes a silent broker, and closes the connection when the broker does not answer."""

from __future__ import annotations

import asyncio
from typing import Protocol

from gateway.pulsar.broker_address import BrokerAddress
from gateway.pulsar.errors import ConnectionLostError, PulsarError
from protocol.pulsar.pulsar_commands_pb2 import BaseCommand, CommandPing


class KeptConnection(Protocol):
    """The part of a connection that its keep-alive uses."""

    address: BrokerAddress
    bytes_received: int

    def send_command(self, command: BaseCommand) -> None: ...

    def close(self, error: PulsarError) -> None: ...


class Keepalive:
    """Sends one PING after an interval without data from the broker; closes the connection after a second one."""

    def __init__(self, connection: KeptConnection, interval_ms: int) -> None:
        self._connection = connection
        self._interval_ms = interval_ms
        self._timer: asyncio.TimerHandle | None = None
        self._bytes_received_before = -1
        self._pinged = False

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._interval_ms / 1000, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        connection = self._connection
        silent = connection.bytes_received == self._bytes_received_before
        if silent and self._pinged:
            connection.close(ConnectionLostError(f"{connection.address.url} does not answer pings"))
            return
        self._pinged = silent
        self._bytes_received_before = connection.bytes_received
        if silent:
            connection.send_command(BaseCommand(type=BaseCommand.PING, ping=CommandPing()))
        self.start()
