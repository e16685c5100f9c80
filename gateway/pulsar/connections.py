"""The connections of a process to brokers: who shares one, who has one of its own, and what they are together."""

import asyncio
import math
import ssl
from typing import Protocol

from gateway.background import run_shared
from gateway.pulsar.broker_address import BrokerAddress
from gateway.pulsar.connection import Connection, ConnectionOwner, ConnectionState
from gateway.pulsar.errors import ClientClosedError, ConnectionLostError, PulsarError
from gateway.pulsar.lookup import Lookup
from gateway.pulsar.send_window import SendWindow, Sharing
from gateway.pulsar.settings import PulsarSettings
from gateway.pulsar.tls import client_ssl_context

NO_NAMESPACE = ""
"""Stands for the connections that belong to no namespace."""


class ClientEvents(Protocol):
    """Receives events for metrics and logs."""

    def on_connection_state(
        self, broker_url: str, state: ConnectionState, error: PulsarError | None, *, others: bool
    ) -> None:
        """``others``: another connection to the broker is ready."""


class Connections:
    """To each broker, one connection for each namespace that has its own, and one for everything else.

    A broker that limits the rate of a topic, or has too much to write, stops reading a whole connection. What is sent
    over it waits, and so does what is sent behind much else. So a namespace delays only itself.
    """

    def __init__(self, settings: PulsarSettings, events: ClientEvents | None) -> None:
        self._settings = settings
        self._events = events
        self._ssl = client_ssl_context(settings) if settings.service_url.startswith("pulsar+ssl") else None
        self._shared: dict[tuple[BrokerAddress, str], asyncio.Task[Connection]] = {}
        """By address and namespace."""
        self._sharing: dict[BrokerAddress, Sharing] = {}
        self.live: set[Connection] = set()
        self.last_receipt_s = -math.inf
        """When any broker last sent a receipt, by the loop's clock; minus infinity if none ever did."""
        self.closed = False
        self.lookup = Lookup(settings, self.shared)

    async def shared(self, address: BrokerAddress, namespace: str = NO_NAMESPACE) -> Connection:
        """The namespace's connection to `address`. The first caller opens it."""
        if self.closed:
            raise client_closed()
        task = self._shared.get((address, namespace))
        if task is None or _is_dead(task):
            self._forget_dead()
            window = self._send_window(address, namespace)
            task = run_shared("connection to Pulsar", _connected(address, self._settings, self, self._ssl, window))
            self._shared[address, namespace] = task
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise client_closed() from None
            raise

    async def exclusive(self, address: BrokerAddress) -> Connection:
        """A connection for the caller alone, which closes it."""
        connection = await _connected(address, self._settings, self, self._ssl)
        if self.closed:
            connection.close(client_closed())
            raise client_closed()
        return connection

    def _forget_dead(self) -> None:
        """Brokers may never come back, or come back with other addresses."""
        self._shared = {key: task for key, task in self._shared.items() if not _is_dead(task)}
        addresses = {address for address, _ in self._shared}
        self._sharing = {address: sharing for address, sharing in self._sharing.items() if address in addresses}

    def _send_window(self, address: BrokerAddress, namespace: str) -> SendWindow | None:
        if namespace == NO_NAMESPACE:
            return None
        return SendWindow(namespace, self._sharing.setdefault(address, Sharing()))

    def close_namespace(self, namespace: str) -> None:
        """Close the connections that the namespace has. They are opened again when they are needed."""
        for key in [key for key in self._shared if key[1] == namespace]:
            task = self._shared.pop(key)
            if not task.done():
                task.cancel()
            elif not _is_dead(task):
                task.result().close(client_closed())

    async def close(self) -> None:
        """Close every connection. Producers and readers get a ClientClosedError."""
        self.closed = True
        for task in self._shared.values():
            task.cancel()
        await asyncio.gather(*self._shared.values(), return_exceptions=True)
        for connection in list(self.live):
            connection.close(client_closed())

    def on_connection_state(self, connection: Connection, error: PulsarError | None) -> None:
        url = connection.address.url
        if connection.state is ConnectionState.CLOSED:
            self.live.discard(connection)
            if isinstance(error, ConnectionLostError):
                self.lookup.ask_last(url)
        else:
            self.live.add(connection)
        if self._events is not None:
            others = any(each.address.url == url for each in self.live if each is not connection)
            self._events.on_connection_state(url, connection.state, error, others=others)


async def _connected(
    address: BrokerAddress,
    settings: PulsarSettings,
    owner: ConnectionOwner,
    ssl_context: ssl.SSLContext | None,
    send_window: SendWindow | None = None,
) -> Connection:
    """Open a connection and log in. Raises ConnectionLostError, NotAuthorizedError or another PulsarError."""
    loop = asyncio.get_running_loop()
    host, port = address.host_port()
    connection: Connection | None = None
    try:
        async with asyncio.timeout(settings.connect_timeout_ms / 1000):
            _, connection = await loop.create_connection(
                lambda: Connection(address, settings, owner, send_window),
                host,
                port,
                ssl=ssl_context if address.tls else None,
            )
            await connection.wait_ready()
            return connection
    except (OSError, TimeoutError) as error:
        lost = ConnectionLostError(f"cannot connect to {address.url}: {str(error) or 'timed out'}")
        if connection is not None:
            connection.close(lost)
        raise lost from error
    except asyncio.CancelledError:
        if connection is not None:
            connection.close(ConnectionLostError("connecting was cancelled"))
        raise


def client_closed() -> PulsarError:
    return ClientClosedError("the client was closed")


def _is_dead(task: asyncio.Task[Connection]) -> bool:
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None or task.result().state is ConnectionState.CLOSED
