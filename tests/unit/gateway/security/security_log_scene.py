"""A gateway that follows `~security`, and a fake topic."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ConnectionLostError
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry
from gateway.security.acls import Acl, Requester
from gateway.security.authorizer import AclAuthorizer
from gateway.security.records import (
    Record,
)
from gateway.security.security import Security
from gateway.security.security_log import SecurityLog
from gateway.security.state import SecurityState
from protocol.kafka.acl import AclOperation, PatternType, Permission, ResourceType
from protocol.pulsar.entry import encode_message
from protocol.pulsar.pulsar_commands_pb2 import MessageMetadata

ACL = Acl(ResourceType.TOPIC, PatternType.LITERAL, "orders", "User:ann", "*", AclOperation.READ, Permission.ALLOW)


class FakeReader:
    def __init__(self, topic: FakeTopic) -> None:
        self.topic = topic
        self.permits = 0
        self.is_lost = False
        """The connection is broken, which nobody has noticed."""

    def flow(self, messages: int) -> None:
        self.permits += messages

    async def close(self) -> None: ...

    async def last_position(self) -> Position:
        if self.is_lost:
            raise ConnectionLostError("lost")
        return await self.topic.last_position()


class FakeTopic:
    """The topic, and the client that reads and writes it: one producer, and one reader."""

    def __init__(self) -> None:
        self.entries: list[tuple[Position, list[bytes]]] = []
        self.may_load = asyncio.Event()
        self.may_load.set()
        self.closed = False
        self.reader: Any = None
        self.opened: FakeReader | None = None
        self.delivered = self.last = Position(1, -1)

    async def open_producer(self, topic: str, listener: Any, **options: Any) -> FakeTopic:
        self._writer = listener
        return self

    def send(self, messages: list[bytes], **facts: Any) -> int:
        position = self._append(messages)
        asyncio.get_running_loop().call_soon(self._writer.on_receipt, position.entry_id, position)
        return position.entry_id

    async def open_reader(self, topic: str, start: Any, listener: Any, **options: Any) -> FakeReader:
        self.reader, self.delivered, self.opened = listener, self.last, FakeReader(self)
        return self.opened

    def write(self, *records: Record) -> None:
        """As another gateway."""
        self._append([encode_message(value, key=key) for key, value in records])

    def _append(self, messages: list[bytes]) -> Position:
        self.last = Position(1, self.last.entry_id + 1)
        self.entries.append((self.last, messages))
        return self.last

    def deliver(self) -> None:
        for position, messages in self.entries:
            if position > self.delivered:
                self.reader.on_entry(entry_of(position, messages))
        self.delivered = self.last

    async def close(self) -> None: ...

    async def last_position(self, topic: str = "") -> Position:
        await self.may_load.wait()
        return self.last

    async def read(self, client: Any, topic: str, start: Any, last: Position) -> Any:
        for position, messages in self.entries:
            if position <= last:
                yield entry_of(position, messages)


def entry_of(position: Position, messages: list[bytes]) -> Entry:
    metadata = MessageMetadata(num_messages_in_batch=len(messages))
    return Entry(position, None, metadata, memoryview(bytearray(b"".join(messages))))


async def until_reading(topic: FakeTopic) -> None:
    async with asyncio.timeout(5):
        while topic.reader is None:
            await asyncio.sleep(0)


class Scene:
    """A gateway that reads and writes the topic."""

    def __init__(self, topic: FakeTopic) -> None:
        self.topic, self.state = topic, SecurityState()
        admin = SimpleNamespace(topics=AsyncMock())
        self.log = SecurityLog(
            cast(PulsarClient, topic), cast(AdminClient, admin), "kafka/system", self.state, lambda: False
        )
        self.log._trimming_cursor = cast(Any, SimpleNamespace(find=AsyncMock(return_value=None)))
        authorizer = AclAuthorizer(self.state, (), allow_everyone=False)
        self.security = Security(self.state, self.log, authorizer)

    async def start(self) -> None:
        self.log.start()
        await until_reading(self.topic)

    async def ask(self, handle: Callable[[Any], Awaitable[Any]], request: Any) -> Any:
        """While the gateway answers, it reads what was written."""
        cluster = SimpleNamespace(security=self.security)
        context = SimpleNamespace(requester=Requester("User:root", "192.0.2.7"))
        call = SimpleNamespace(request=request, cluster=cluster, context=context, count_error=lambda code: None)
        asking = asyncio.ensure_future(handle(call))
        async with asyncio.timeout(5):
            while not asking.done():
                await asyncio.sleep(0.001)
                self.topic.deliver()
        self.topic.deliver()
        return await asking


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0)
