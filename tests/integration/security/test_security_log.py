"""The security log of several gateways on a real Pulsar."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from deploy.local.secured import GATEWAY
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.settings import PulsarSettings
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
        self.state = SecurityState()
        self.client, self.admin = PulsarClient(settings), AdminClient(settings)
        self.log = SecurityLog(self.client, self.admin, namespace, self.state, lambda: False)

    async def write(self, acl: Acl, *, present: bool = True) -> None:
        await self.log.append([acl_record(acl, present=present)])

    def records(self) -> set[Record]:
        return {*self.state.records()}


@pytest.fixture
async def namespace(secured_pulsar: SecuredPulsar) -> str:
    name = f"kafka/{unique_topic('security')}"
    admin = AdminClient(secured_pulsar.client_settings(GATEWAY))
    await admin.namespaces.create(name, retention_minutes=-1)
    await admin.close()
    return name


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
        await until(lambda: ACL in other.state.acls)
        await asyncio.gather(
            *(one.write(ACL._replace(name=f"{n}")) for n in range(20)), other.write(ACL, present=False)
        )
        await until(lambda: one.records() == other.records() and len(one.state.acls) == 20)


async def test_the_log_continues_when_its_topic_moves(secured_pulsar: SecuredPulsar, namespace: str) -> None:
    async with member(secured_pulsar, namespace) as one, member(secured_pulsar, namespace) as other:
        await one.write(ACL)
        await one.admin.topics._http.request("PUT", f"persistent/{namespace}/{TOPIC.replace('~', '%7E')}/unload")
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


async def test_a_snapshot_replaces_the_records_before_it(secured_pulsar: SecuredPulsar, namespace: str) -> None:
    async with member(secured_pulsar, namespace) as one:
        await one.write(ACL)
        await one.write(ACL._replace(name="gone"))
        await one.write(ACL._replace(name="gone"), present=False)
        await asyncio.gather(one.log.take_snapshot(), one.write(ACL._replace(name="meanwhile")))
        await one.write(ACL, present=False)
        async with member(secured_pulsar, namespace) as late:
            assert late.records() == one.records() and {acl.name for acl in late.state.acls} == {"meanwhile"}
        stats = await one.admin.topics.internal_stats(f"persistent://{namespace}/{TOPIC}")
        assert any("trimming" in name for name in stats.cursors)
