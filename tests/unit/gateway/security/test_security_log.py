"""The security log of one gateway, on a topic in memory."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ConnectionLostError
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry
from gateway.security import security_log as module
from gateway.security.acls import Acl
from gateway.security.records import acl_record
from gateway.security.security_log import SecurityLog
from gateway.security.state import SecurityState
from protocol.kafka.acl import AclOperation, PatternType, Permission, ResourceType
from protocol.pulsar.pulsar_commands_pb2 import MessageMetadata

ACL = Acl(ResourceType.TOPIC, PatternType.LITERAL, "orders", "User:ann", "*", AclOperation.READ, Permission.ALLOW)


class FakeTopic:
    """The topic, and the client that reads and writes it: one producer, and one reader."""

    def __init__(self) -> None:
        self.entries: list[tuple[Position, list[bytes]]] = []
        self.may_load = asyncio.Event()
        self.may_load.set()
        self.closed = False
        self.reader: Any = None

    async def open_producer(self, topic: str, listener: Any, **options: Any) -> FakeTopic:
        self._writer = listener
        return self

    def send(self, messages: list[bytes], **facts: Any) -> int:
        position = Position(1, len(self.entries))
        self.entries.append((position, messages))
        asyncio.get_running_loop().call_soon(self._writer.on_receipt, position.entry_id, position)
        return position.entry_id

    async def open_reader(self, topic: str, start: Any, listener: Any, **options: Any) -> FakeTopic:
        self.reader = listener
        return self

    def flow(self, messages: int) -> None: ...

    async def close(self) -> None: ...

    async def last_position(self, topic: str) -> Position:
        await self.may_load.wait()
        return Position(1, len(self.entries) - 1)

    async def read(self, client: Any, topic: str, start: Any, last: Position) -> Any:
        for position, messages in self.entries:
            if position <= last:
                metadata = MessageMetadata(num_messages_in_batch=len(messages))
                yield Entry(position, None, metadata, memoryview(bytearray(b"".join(messages))))


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> FakeTopic:
    topic = FakeTopic()
    monkeypatch.setattr(module, "PAUSE_S", 0)
    monkeypatch.setattr(module, "read_entries", topic.read)
    monkeypatch.setattr(module, "keep_local", AsyncMock())
    return topic


async def until_reading(topic: FakeTopic) -> None:
    async with asyncio.timeout(5):
        while topic.reader is None:
            await asyncio.sleep(0)


async def test_a_change_is_in_effect_when_the_log_was_loaded_again(
    topic: FakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a minute without Pulsar: the change that was written meanwhile is read with everything else."""
    admin = SimpleNamespace(topics=AsyncMock())
    state = SecurityState()
    log = SecurityLog(cast(PulsarClient, topic), cast(AdminClient, admin), "kafka/system", state, lambda: False)
    monkeypatch.setattr(log._trimming_cursor, "find", AsyncMock(return_value=None))
    monkeypatch.setattr(log, "_has_missed_entries", AsyncMock(return_value=True))
    log.start()
    await until_reading(topic)
    lost, topic.reader = topic.reader, None
    topic.may_load.clear()
    lost.on_reader_closed(ConnectionLostError("lost"))
    change = asyncio.create_task(log.append([acl_record(ACL, present=True)]))
    await asyncio.sleep(0.01)
    topic.may_load.set()
    await until_reading(topic)
    assert ACL in state.acls
    async with asyncio.timeout(1):
        await change
    await log.close()
