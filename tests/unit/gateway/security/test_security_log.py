"""The security log of one gateway, on a topic in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from gateway.background import TaskGroup
from gateway.config.gateway_config import PulsarSection
from gateway.config.security import AuthorizationSection
from gateway.coordination.partition.trimming_cursor import TakenSnapshot
from gateway.handlers.security import alter_client_quotas, alter_user_scram_credentials, create_acls, delete_acls
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ConnectionLostError
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry
from gateway.security import security_log as module
from gateway.security.acls import Acl, Requester
from gateway.security.authorizer import AclAuthorizer
from gateway.security.records import QuotaKey, Record, ScramKey, acl_record, quota_record, scram_record
from gateway.security.security import Security, new_security
from gateway.security.security_log import SecurityLog
from gateway.security.snapshots import encode_snapshot
from gateway.security.state import SecurityState
from protocol.kafka.acl import AclOperation, PatternType, Permission, ResourceType
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.security import (
    AlterClientQuotasRequest,
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
)
from protocol.pulsar.entry import encode_message
from protocol.pulsar.pulsar_commands_pb2 import MessageMetadata
from protocol.sasl.scram import MIN_ITERATIONS, ScramMechanism, credential_of

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


@pytest.fixture
async def scene(topic: FakeTopic) -> AsyncIterator[Scene]:
    scene = Scene(topic)
    yield scene
    await scene.log.close()


async def test_a_change_is_in_effect_when_the_log_was_loaded_again(
    scene: Scene, topic: FakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a minute without Pulsar: the change that was written meanwhile is read with everything else."""
    monkeypatch.setattr(scene.log, "_has_missed_entries", AsyncMock(return_value=True))
    await scene.start()
    lost, topic.reader = topic.reader, None
    topic.may_load.clear()
    lost.on_reader_closed(ConnectionLostError("lost"))
    change = asyncio.create_task(scene.log.append([acl_record(ACL, present=True)]))
    await asyncio.sleep(0.01)
    topic.may_load.set()
    await until_reading(topic)
    assert ACL in scene.state.acls
    async with asyncio.timeout(1):
        await change


async def test_other_clusters_have_their_turn_while_very_many_settings_are_loaded(
    scene: Scene, topic: FakeTopic
) -> None:
    """Of a cluster that is opened for its first client."""
    count = 10_000
    for first in range(0, count, 500):
        topic.write(*(acl_record(ACL._replace(name=str(first + number)), present=True) for number in range(500)))
    scene.log.start()
    seen = [0]
    while not scene.log.loaded.is_set():
        await asyncio.sleep(0)
        seen.append(len(scene.state.acls))
    assert seen[-1] == count
    assert max(after - before for before, after in pairwise(seen)) < count / 4


@pytest.mark.parametrize("kind", ["acl", "pulsar"])
async def test_it_is_read_once_though_it_is_started_again(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster whose rights are not loaded in time is started again."""
    started: list[str] = []
    monkeypatch.setattr(TaskGroup, "keep_running", lambda _, name, run: started.append(name))
    admin: Any = SimpleNamespace(brokers=SimpleNamespace(runtime_configuration=AsyncMock(return_value={})))
    config = AuthorizationSection.model_validate({"authorizer": kind})
    found = new_security(cast(Any, None), admin, PulsarSection(), config, 1_000_000, lambda: False)
    for _ in range(2):
        with suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await found.start(with_users=True)
    assert started and len({*started}) == len(started)


async def test_a_gateway_that_was_suspended_for_days_keeps_no_revoked_right(
    scene: Scene, topic: FakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record that revoked it is deleted. The lost connection is noticed when the gateway has run for a while."""
    now_ms = 0
    monkeypatch.setattr(module, "lease_now_ms", lambda: now_ms)
    monkeypatch.setattr(module, "SNAPSHOT_CHECK_S", 0)
    topic.write(acl_record(ACL, present=True))
    await scene.start()
    await asyncio.sleep(0.01)
    assert ACL in scene.state.acls and topic.opened is not None
    now_ms += 4 * 24 * 3_600 * 1_000
    topic.opened.is_lost = True
    topic.write(acl_record(ACL, present=False))
    snapshot = TakenSnapshot(topic.last, 0, 0)
    topic.write(*encode_snapshot(snapshot.position, ()))
    del topic.entries[:2]
    scene.log._trimming_cursor = cast(Any, SimpleNamespace(find=AsyncMock(return_value=snapshot)))
    await asyncio.sleep(0.01)
    lost, topic.reader = topic.reader, None
    lost.on_reader_closed(ConnectionLostError("lost"))
    await until_reading(topic)
    assert ACL not in scene.state.acls


CREATION = CreateAclsRequest(
    creations=[
        CreateAclsRequest.AclCreation(
            resource_type=ACL.resource_type, resource_name=ACL.name, resource_pattern_type=ACL.pattern,
            principal=ACL.principal, host=ACL.host, operation=ACL.operation, permission_type=ACL.permission,
        )
    ]
)  # fmt: skip
DELETION = DeleteAclsRequest(
    filters=[
        DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=ACL.resource_type, resource_name_filter=ACL.name, pattern_type_filter=ACL.pattern,
            principal_filter=ACL.principal, host_filter=ACL.host, operation=ACL.operation,
            permission_type=ACL.permission,
        )
    ]
)  # fmt: skip


async def test_an_acl_that_was_just_deleted_at_another_gateway_is_created(scene: Scene, topic: FakeTopic) -> None:
    """A client sends each request to any gateway: this one may not have read yet what another one has answered."""
    topic.write(acl_record(ACL, present=True))
    await scene.start()
    topic.write(acl_record(ACL, present=False))
    response = await scene.ask(create_acls.handle, CREATION)
    assert response.results[0].error_code == ErrorCode.NONE and ACL in scene.state.acls


async def test_an_acl_that_was_just_created_at_another_gateway_is_deleted(scene: Scene, topic: FakeTopic) -> None:
    await scene.start()
    topic.write(acl_record(ACL, present=True))
    response = await scene.ask(delete_acls.handle, DELETION)
    assert len(response.filter_results[0].matching_acls) == 1 and ACL not in scene.state.acls


async def test_a_user_that_was_just_created_at_another_gateway_is_deleted(scene: Scene, topic: FakeTopic) -> None:
    key = ScramKey(ScramMechanism.SCRAM_SHA_256, "ann")
    await scene.start()
    topic.write(scram_record(key, credential_of(key.mechanism, "secret", b"salt", MIN_ITERATIONS)))
    deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="ann", mechanism=1)
    request = AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[])
    response = await scene.ask(alter_user_scram_credentials.handle, request)
    assert response.results[0].error_code == ErrorCode.NONE and not scene.state.scram


async def test_a_quota_that_was_just_changed_at_another_gateway_is_changed_back(
    scene: Scene, topic: FakeTopic
) -> None:
    key = QuotaKey(frozenset({("user", "ann")}), "producer_byte_rate")
    topic.write(quota_record(key, 1_000.0))
    await scene.start()
    topic.write(quota_record(key, 2_000.0))
    row = AlterClientQuotasRequest.EntryData
    entry = row(
        entity=[row.EntityData(entity_type="user", entity_name="ann")], ops=[row.OpData(key=key.quota, value=1_000.0)]
    )
    response = await scene.ask(alter_client_quotas.handle, AlterClientQuotasRequest(entries=[entry]))
    assert response.entries[0].error_code == ErrorCode.NONE
    assert scene.state.quotas[key.entity] == {key.quota: 1_000.0}


def numbered(prefix: str, number: int, permission: Permission) -> Acl:
    return ACL._replace(name=f"{prefix}-{number}", permission=permission)


async def test_a_very_large_change_takes_effect_in_slices_and_allows_nothing_meanwhile(
    scene: Scene, topic: FakeTopic
) -> None:
    """What follows it takes effect after it."""
    await scene.start()
    old = [numbered("old", number, Permission.ALLOW) for number in range(2_000)]
    topic.write(*[acl_record(acl, present=True) for acl in old])
    topic.deliver()
    await until(lambda: len(scene.state.acls) == 2_000)
    allowed = [numbered("new", number, Permission.ALLOW) for number in range(2_000)]
    denied = [numbered("new", number, Permission.DENY) for number in range(2_000)]
    created = [acl_record(acl, present=True) for acl in allowed + denied]
    topic.write(*created, *[acl_record(acl, present=False) for acl in old])
    topic.write(acl_record(allowed[0], present=False), *[acl_record(acl, present=True) for acl in old[:1]])
    topic.deliver()
    turns = 0
    while len(scene.state.acls) != 4_000 or old[0] not in scene.state.acls or allowed[0] in scene.state.acls:
        if any(acl in scene.state.acls for acl in allowed):
            assert all(acl in scene.state.acls for acl in denied)
            assert not any(acl in scene.state.acls for acl in old[1:])
        turns += 1
        await asyncio.sleep(0)
    assert turns > 10
    await scene.security.catch_up()


async def test_the_broker_sends_no_more_while_a_very_large_change_takes_effect(scene: Scene, topic: FakeTopic) -> None:
    await scene.start()
    reader = cast(FakeReader, topic.opened)
    permits = reader.permits
    topic.write(*[acl_record(numbered("a", number, Permission.ALLOW), present=True) for number in range(3_000)])
    topic.deliver()
    await until(lambda: len(scene.state.acls) > 100)
    assert reader.permits == permits
    await until(lambda: len(scene.state.acls) == 3_000)
    await until(lambda: reader.permits == permits + 3_000)


async def test_a_very_large_change_ends_when_the_log_is_loaded_again(scene: Scene, topic: FakeTopic) -> None:
    await scene.start()
    acls = [numbered("a", number, Permission.ALLOW) for number in range(3_000)]
    topic.write(*[acl_record(acl, present=True) for acl in acls])
    topic.deliver()
    await until(lambda: len(scene.state.acls) > 100)
    assert len(scene.state.acls) < 3_000
    topic.write(*[acl_record(acl, present=False) for acl in acls])
    scene.log.loaded.clear()
    scene.log.on_reader_closed(ConnectionLostError("lost"))
    await until(lambda: scene.log.loaded.is_set() and scene.log._read_up_to == topic.last)
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(scene.state.acls) == 0


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0)
