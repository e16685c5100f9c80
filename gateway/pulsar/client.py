"""The Pulsar client: opens producers and readers on the connections to brokers."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from gateway.backoff import retried
from gateway.pulsar.connection import Connection, ConnectionState
from gateway.pulsar.connections import NO_NAMESPACE, ClientEvents, Connections
from gateway.pulsar.errors import PulsarError, RequestTimeoutError
from gateway.pulsar.position import Position
from gateway.pulsar.producer import Producer, SendListener
from gateway.pulsar.reader import Entry, EntryListener, Reader, Start
from gateway.pulsar.settings import PulsarSettings
from gateway.pulsar.subscription import Subscription

LOOKUP_AGE_S = 2.0
"""A lookup's result is reused for this time by everything that is opened on the topic. A broker refuses requests for a
topic that has moved, but may learn of the move late."""
T = TypeVar("T")


class PulsarClient:
    """Opens producers and readers on connections that they share, except for exclusive producers."""

    def __init__(
        self,
        settings: PulsarSettings,
        events: ClientEvents | None = None,
        *,
        of: "PulsarClient | None" = None,
    ) -> None:
        """`of`: use the connections of this client, but those of the topics' namespaces."""
        self._settings = settings
        self.connections: Connections = Connections(settings, events) if of is None else of.connections
        self._by_namespace = of is not None
        self._looked_up: OrderedDict[str, tuple[Connection, float]] = OrderedDict()
        """By topic, the connection to its broker, and when this lookup result expires (the loop's clock). The oldest
        result comes first."""

    def by_namespace(self) -> "PulsarClient":
        """A client whose producers and readers share connections with those of the same namespace only."""
        return PulsarClient(self._settings, of=self)

    @property
    def last_receipt_s(self) -> float:
        """When any broker last sent a receipt, by the loop's clock; minus infinity if none ever did."""
        return self.connections.last_receipt_s

    async def close(self) -> None:
        """Close every connection. Producers and readers get a ClientClosedError."""
        await self.connections.close()

    async def open_producer(
        self,
        topic: str,
        listener: SendListener,
        *,
        fencing: bool = False,
        properties: Sequence[tuple[str, str]] = (),
        predecessor: Producer | None = None,
        name: str = "",
        backoff_max_ms: int | None = None,
    ) -> Producer:
        """Open a producer on `topic` (a full name such as `persistent://tenant/ns/name-partition-0`).

        `fencing` takes exclusive access and fences every other producer. `predecessor` is a dead producer of this
        topic: opening waits until the broker has removed it, so that none of its entries can reach the topic later.
        If it was exclusive and another producer has taken the topic since, opening fails with ProducerFencedError.
        Without a predecessor, the caller may choose a `name`. If a live producer has this name, opening fails with
        ProducerBusyError until that producer's connection does not answer the broker.

        Retries with backoff for up to operation_timeout_ms; `backoff_max_ms` replaces the longest pause of the
        settings. Raises the last PulsarError.
        """

        async def attempt() -> Producer:
            exclusive = fencing or (predecessor is not None and predecessor.topic_epoch is not None)
            connection = await (self._own_connection(topic) if exclusive else self._connection_of(topic))
            producer = Producer(topic, connection, listener, owns_connection=exclusive)
            await producer.open(fencing=fencing, properties=properties, predecessor=predecessor, name=name)
            return producer

        return await self._retried(attempt, backoff_max_ms, topic)

    async def open_reader(
        self,
        topic: str,
        start: Start,
        listener: EntryListener,
        *,
        inclusive: bool = True,
        read_compacted: bool = False,
        backoff_max_ms: int | None = None,
    ) -> Reader:
        """Open a reader of `topic` from `start`. The entry at a start position is included if `inclusive`.

        The reader delivers entries after `Reader.flow`. Retries as `open_producer` does. Raises the last PulsarError.
        """

        async def attempt() -> Reader:
            reader = Reader(topic, await self._connection_of(topic), listener)
            await reader.open(start, inclusive=inclusive, read_compacted=read_compacted)
            return reader

        return await self._retried(attempt, backoff_max_ms, topic)

    async def open_subscription(
        self,
        topic: str,
        name: str,
        on_closed: Callable[[PulsarError], None],
        *,
        from_earliest: bool = True,
        replicated: bool = False,
    ) -> Subscription:
        """Open the durable subscription `name`; create it at the topic's beginning or end if it does not exist.

        `replicated` lets a geo-replicated namespace copy its state to other clusters. There is one attempt only: a
        subscription that another consumer uses (ConsumerBusyError) may stay in use. Raises PulsarError.
        """
        subscription = Subscription(topic, name, await self._connection_of(topic), on_closed)
        try:
            await subscription.open(from_earliest=from_earliest, replicated=replicated)
        except PulsarError:
            self._looked_up.pop(topic, None)
            raise
        return subscription

    async def last_position(self, topic: str, *, read_compacted: bool = False) -> Position:
        """Like `Reader.last_position`, with a reader opened for this call: four round trips."""
        reader = await self.open_reader(topic, "latest", _IgnoreEntries(), read_compacted=read_compacted)
        try:
            return await reader.last_position()
        finally:
            await reader.close()

    async def partitions(self, topic: str) -> int:
        """The partition count of a topic, 0 if it is not partitioned. Raises PulsarError."""
        return await self._retried(lambda: self.connections.lookup.partitions(topic))

    async def _own_connection(self, topic: str) -> Connection:
        """Open a connection for one exclusive producer.

        A broker does not notify a fenced producer, and answers its next send by closing the connection: no other
        producer or reader may use this connection.
        """
        self._looked_up.pop(topic, None)  # later opens on this topic must not use an older lookup
        return await self.connections.exclusive(await self.connections.lookup.find_broker(topic))

    async def _connection_of(self, topic: str) -> Connection:
        """The shared connection to the topic's broker. If opening fails on it, the topic is looked up again."""
        known = self._looked_up.get(topic)
        now_s = asyncio.get_running_loop().time()
        if known is not None and now_s < known[1] and known[0].state is ConnectionState.READY:
            return known[0]
        address = await self.connections.lookup.find_broker(topic)
        connection = await self.connections.shared(address, namespace_of(topic) if self._by_namespace else NO_NAMESPACE)
        self._forget_expired(now_s)
        self._looked_up[topic] = connection, now_s + LOOKUP_AGE_S
        self._looked_up.move_to_end(topic)
        return connection

    def _forget_expired(self, now_s: float) -> None:
        while self._looked_up:
            oldest = next(iter(self._looked_up.values()))
            if now_s < oldest[1]:
                return
            self._looked_up.popitem(last=False)

    async def _retried(
        self, attempt: Callable[[], Awaitable[T]], backoff_max_ms: int | None = None, topic: str = ""
    ) -> T:
        failure: PulsarError | None = None

        def try_again(error: Exception) -> bool:
            nonlocal failure
            self._looked_up.pop(topic, None)
            if not isinstance(error, PulsarError) or not error.retriable or self.connections.closed:
                return False
            failure = error
            return True

        try:
            async with asyncio.timeout(self._settings.operation_timeout_ms / 1000):
                return await retried(attempt, try_again, self._settings.backoff(backoff_max_ms))
        except TimeoutError:
            if failure is None:
                raise RequestTimeoutError("Pulsar did not answer in time") from None
            raise failure from failure.__cause__


def namespace_of(topic: str) -> str:
    """`tenant/namespace` of a full topic name."""
    return topic.rpartition("/")[0].partition("://")[2]


class _IgnoreEntries:
    def on_entry(self, entry: Entry) -> None:
        pass

    def on_reader_closed(self, error: PulsarError) -> None:
        pass
