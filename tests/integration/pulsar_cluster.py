"""The project's Pulsar client and admin client on a real broker, and listeners that record events."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Protocol

from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.http import AdminError, AdminHttp
from gateway.pulsar.admin.topics import topic_path
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry
from gateway.pulsar.settings import PulsarSettings

NAMESPACE = "kafka-client-test/default"
PUBLISH_TIME_MS = 1_700_000_000_000
TIMEOUT_S = 60
MANY = 1_000_000
ATTEMPTS, RETRY_S = 3, 0.5


class PulsarAddresses(Protocol):
    @property
    def service_url(self) -> str: ...

    @property
    def admin_url(self) -> str: ...


@dataclass
class Sends:
    """The results of a producer's sends."""

    receipts: dict[int, Position] = field(default_factory=dict)
    errors: dict[int, PulsarError] = field(default_factory=dict)
    closed: PulsarError | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def on_receipt(self, sequence_id: int, position: Position) -> None:
        self.receipts[sequence_id] = position
        self.changed.set()

    def on_send_error(self, sequence_id: int, error: PulsarError) -> None:
        self.errors[sequence_id] = error
        self.changed.set()

    def on_producer_closed(self, error: PulsarError) -> None:
        self.closed = error
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()

    async def receipt(self, sequence_id: int) -> Position:
        await self.until(lambda: sequence_id in self.receipts)
        return self.receipts[sequence_id]


class Entries:
    """The entries of a reader, then its end."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Entry | PulsarError] = asyncio.Queue()

    def on_entry(self, entry: Entry) -> None:
        self.queue.put_nowait(entry)

    def on_reader_closed(self, error: PulsarError) -> None:
        self.queue.put_nowait(error)

    async def entry(self) -> Entry:
        found = await self.queue.get()
        assert isinstance(found, Entry)
        return found

    async def take(self, count: int) -> list[Entry]:
        return [await self.entry() for _ in range(count)]


class Operations:
    """Operations of the admin API that operators use, and the gateway does not."""

    def __init__(self, settings: PulsarSettings) -> None:
        self._http = AdminHttp(settings)

    async def unload(self, topic: str) -> None:
        """Close the topic; its next user loads it again."""
        await self._http.request("PUT", topic_path(topic, "unload"))

    async def truncate(self, topic: str) -> None:
        """Delete the data of every closed ledger, consumed or not.

        Pulsar moves all cursors to the end first, and fails if a reader's cursor is closed just then.
        """
        for attempt in range(ATTEMPTS):
            try:
                await self._http.request("DELETE", topic_path(topic, "truncate"))
            except AdminError as error:
                if error.status != HTTPStatus.INTERNAL_SERVER_ERROR or attempt == ATTEMPTS - 1:
                    raise
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def terminate(self, topic: str) -> None:
        """Let the topic accept no more entries."""
        await self._http.request("POST", topic_path(topic, "terminate"))

    async def compact(self, topic: str) -> None:
        """Start a compaction."""
        await self._http.request("PUT", topic_path(topic, "compaction"))

    async def compaction_status(self, topic: str) -> str:
        """NOT_RUN, RUNNING, SUCCESS or ERROR."""
        return str((await self._http.get_json(topic_path(topic, "compaction")))["status"])

    async def close(self) -> None:
        await self._http.close()


@dataclass
class Cluster:
    """Both clients of the project on one broker, and the addresses for the native client."""

    settings: PulsarSettings
    client: PulsarClient
    admin: AdminClient
    operations: Operations

    async def new_topic(self) -> str:
        """A topic with one partition, as the gateway creates topics."""
        topic = f"persistent://{NAMESPACE}/t-{secrets.token_hex(6)}"
        await self.admin.topics.create_partitioned(topic, 1, {})
        return f"{topic}-partition-0"

    async def read(self, topic: str, count: int) -> list[Entry]:
        entries = Entries()
        reader = await self.client.open_reader(topic, "earliest", entries)
        reader.flow(MANY)
        found = await entries.take(count)
        await reader.close()
        return found


@contextlib.asynccontextmanager
async def cluster_at(addresses: PulsarAddresses) -> AsyncIterator[Cluster]:
    settings = PulsarSettings(service_url=addresses.service_url, admin_url=addresses.admin_url)
    client, admin, operations = PulsarClient(settings), AdminClient(settings), Operations(settings)
    try:
        clusters = await admin.brokers.clusters()
        for creating in (
            admin.namespaces.create_tenant(NAMESPACE.split("/", maxsplit=1)[0], clusters),
            admin.namespaces.create(NAMESPACE, retention_minutes=60),
        ):
            try:
                await creating
            except AdminError as error:
                if not error.conflict:
                    raise
        yield Cluster(settings, client, admin, operations)
    finally:
        await client.close()
        await admin.close()
        await operations.close()


def run(pulsar: PulsarAddresses, test: Callable[[Cluster], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S), cluster_at(pulsar) as cluster:
            await test(cluster)

    asyncio.run(main())
