"""A server without sockets, and its clients."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from gateway.config.gateway_config import Config
from gateway.config.limits import Limits
from gateway.dispatch import Dispatcher
from gateway.network.connection import KafkaConnection, Owner
from gateway.network.server import KafkaServer
from gateway.network.turns import Turns
from gateway.observability.metrics import Metrics
from tests.unit.gateway.network.connection_harness import LISTENER, FakeDispatcher, FakeTransport


def server_of(**limits: int) -> tuple[KafkaServer, FakeDispatcher]:
    dispatcher = FakeDispatcher()
    config = SimpleNamespace(limits=Limits(**limits), kafka=None, fleet=SimpleNamespace(forwarding=None))
    server = KafkaServer(cast(Config, config), cast(Dispatcher, dispatcher), Metrics())
    server.turns = Turns(by_cluster=False, now_s=lambda: 0.0)  # no request takes time, however busy the machine is
    return server, dispatcher


class Client:
    """A connection, and its client's end."""

    def __init__(self, server: KafkaServer, **options: Any) -> None:
        self.connection = KafkaConnection(cast(Owner, server), LISTENER, **options)
        self.transport = FakeTransport()
        self.connection.connection_made(self.transport)
        self.left = b""
        self.lost = self.paused = False

    def feed(self, data: bytes, most: int = 1 << 30) -> None:
        """As far as the connection reads."""
        self.left += data
        while self.left and most > 0 and self.transport.reading and not self.transport.closing and not self.lost:
            most -= self.read(most)

    def read(self, most: int) -> int:
        buffer = self.connection.get_buffer(-1)
        size = min(len(buffer), len(self.left), most)
        buffer[:size] = self.left[:size]
        self.left = self.left[size:]
        self.connection.buffer_updated(size)
        return size

    def lose(self) -> None:
        if not self.lost:
            self.lost = True
            self.connection.connection_lost(None)
