"""The security log of several gateways on a real Pulsar."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

import pytest

from deploy.local.secured import GATEWAY
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.topics import TopicPolicy
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.settings import PulsarSettings
from gateway.security import security_log
from gateway.security.acls import Acl
from gateway.security.records import Record, acl_record
from gateway.security.security_log import TOPIC, SecurityLog
from gateway.security.state import SecurityState
from protocol.kafka.acl import AclOperation, PatternType, Permission, ResourceType
from tests.integration.secured_pulsar import SecuredPulsar
from tests.support.names import unique_topic

TIMEOUT_S = 30.0
ACL = Acl(ResourceType.TOPIC, PatternType.LITERAL, "orders", "User:ann", "*", AclOperation.READ, Permission.ALLOW)


class Member:
    """The log as one gateway reads it."""

    def __init__(self, settings: PulsarSettings, namespace: str) -> None:
        self.state, self.namespace = SecurityState(), namespace
        self.client, self.admin = PulsarClient(settings), AdminClient(settings)
        self.log = SecurityLog(self.client, self.admin, namespace, self.state, lambda: False)

    async def write(self, acl: Acl, *, present: bool = True) -> None:
        await self.log.append([acl_record(acl, present=present)])

    def records(self) -> set[Record]:
        return {*self.state.records()}


@pytest.fixture
async def namespace(secured_pulsar: SecuredPulsar) -> AsyncIterator[str]:
    name = f"kafka/{unique_topic('security')}"
    admin = AdminClient(secured_pulsar.client_settings(GATEWAY))
    await admin.namespaces.create(name, retention_minutes=-1)
    await admin.close()
    yield name
    # aiohttp ends TLS politely when a request is cancelled, and does not wait for the broker's answer. A slow one would
    # leave a socket behind.
    await until(only_the_loop_has_sockets)


def only_the_loop_has_sockets() -> bool:
    loop = cast(Any, asyncio.get_running_loop())
    return len(loop._selector.get_map()) == 1  # what wakes it up


@asynccontextmanager
async def member(pulsar: SecuredPulsar, namespace: str) -> AsyncIterator[Member]:
    found = Member(pulsar.client_settings(GATEWAY), namespace)
    found.log.start()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await found.log.loaded.wait()
        yield found
    finally:
        await found.log.close()
        await found.client.close()
        await found.admin.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.01)


async def test_what_one_has_written_holds_for_itself_at_once_and_soon_for_all(
    secured_pulsar: SecuredPulsar, namespace: str
) -> None:
    async with AsyncExitStack() as stack:
        one, other = [await stack.enter_async_context(member(secured_pulsar, namespace)) for _ in range(2)]
        await one.write(ACL)
        assert ACL in one.state.acls
        await other.log.catch_up()
        assert ACL in other.state.acls
        await asyncio.gather(
            *(one.write(ACL._replace(name=f"{n}")) for n in range(20)), other.write(ACL, present=False)
        )
        await until(lambda: one.records() == other.records() and len(one.state.acls) == 20)


async def test_the_log_continues_when_its_topic_moves(secured_pulsar: SecuredPulsar, namespace: str) -> None:
    async with member(secured_pulsar, namespace) as one, member(secured_pulsar, namespace) as other:
        await one.write(ACL)
        await next_ledger(one)
        await until_written(one, ACL._replace(name="later"))
        await until(lambda: one.records() == other.records() and len(one.state.acls) == 2)


async def until_written(one: Member, acl: Acl) -> None:
    """Like an administrator who gets a retriable error."""
    async with asyncio.timeout(TIMEOUT_S):
        while acl not in one.state.acls:
            try:
                await one.write(acl)
            except Exception:
                await asyncio.sleep(0.1)


async def test_what_is_deleted_is_noticed_and_what_moves_is_not_deleted(
    secured_pulsar: SecuredPulsar, namespace: str
) -> None:
    async with member(secured_pulsar, namespace) as one, member(secured_pulsar, namespace) as other:
        await one.write(ACL)
        await next_ledger(one)
        await until_written(one, ACL._replace(name="later"))
        await until(lambda: one.records() == other.records())
        assert not one.log.is_deleted and not other.log.is_deleted
        await asyncio.to_thread(secured_pulsar.root.call, "DELETE", f"namespaces/{namespace}?force=true")
        await until(lambda: one.log.is_deleted and other.log.is_deleted)


async def test_a_snapshot_replaces_the_records_before_it(secured_pulsar: SecuredPulsar, namespace: str) -> None:
    async with member(secured_pulsar, namespace) as one:
        await one.write(ACL)
        await one.write(ACL._replace(name="gone"))
        await one.write(ACL._replace(name="gone"), present=False)
        await one.log.catch_up()
        await asyncio.gather(one.log.take_snapshot(), one.write(ACL._replace(name="meanwhile")))
        await one.write(ACL, present=False)
        async with member(secured_pulsar, namespace) as late:
            assert late.records() == one.records() and {acl.name for acl in late.state.acls} == {"meanwhile"}
        stats = await one.admin.topics.internal_stats(f"persistent://{namespace}/{TOPIC}")
        assert any("trimming" in name for name in stats.cursors)


async def test_what_was_deleted_while_a_gateway_was_cut_off_is_gone_there_too(
    secured_pulsar: SecuredPulsar, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three days later, only a snapshot contains it: Pulsar has deleted the entry."""
    monkeypatch.setattr(security_log, "CUT_OFF_MS", 0)
    topic = f"persistent://{namespace}/{TOPIC}"
    at_once = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    async with member(secured_pulsar, namespace) as one, member(secured_pulsar, namespace) as other:
        await one.write(ACL)
        await until(lambda: ACL in other.state.acls)
        async with cut_off(other):
            await next_ledger(one)
            await until_written(one, ACL._replace(name="kept"))
            await one.write(ACL, present=False)
            await next_ledger(one)
            await until_written(one, ACL._replace(name="later"))
            await one.log.take_snapshot()
            await one.admin.topics.set_policy(topic, TopicPolicy.RETENTION, at_once)
            await until_trimmed(one, topic)
            assert other.log.unread_s > 0 == one.log.unread_s
        await until(lambda: other.records() == one.records() and not other.log.unread_s)
        assert {acl.name for acl in other.state.acls} == {"kept", "later"}


@asynccontextmanager
async def cut_off(one: Member) -> AsyncIterator[None]:
    """A gateway that cannot reach Pulsar."""

    async def fail(*_: object, **__: object) -> None:
        raise PulsarError("cut off")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one.client, "open_reader", fail)
        patch.setattr(one.admin.topics, "internal_stats", fail)
        assert one.log._reader is not None
        await one.log._reader.close()
        one.log.on_reader_closed(PulsarError("cut off"))
        yield


async def next_ledger(one: Member) -> None:
    await one.admin.topics._http.request("PUT", f"persistent/{one.namespace}/{TOPIC.replace('~', '%7E')}/unload")


async def until_trimmed(one: Member, topic: str) -> None:
    """Only the ledger with the snapshot is left."""
    async with asyncio.timeout(TIMEOUT_S):
        while len((await one.admin.topics.internal_stats(topic)).ledgers) > 1:
            await one.admin.topics._http.request("POST", f"persistent/{one.namespace}/{TOPIC.replace('~', '%7E')}/trim")
            await asyncio.sleep(0.5)
