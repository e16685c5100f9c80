"""Descriptions of very many settings give others their turn. Here each setting is a slice."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from gateway import fan_out
from gateway.handlers.security import delete_acls, describe_acls, describe_client_quotas
from gateway.security.acls import Acl
from gateway.security.records import QuotaKey, acl_record, quota_record
from gateway.security.state import SecurityState
from protocol.kafka.acl import AclOperation, PatternType, Permission, ResourceType
from protocol.kafka.messages.security import DeleteAclsRequest, DescribeAclsRequest, DescribeClientQuotasRequest

MANY = 40
NAMES = sorted(f"n{number}" for number in range(MANY))
ALL_ACLS = DescribeAclsRequest(
    resource_type_filter=ResourceType.ANY, pattern_type_filter=PatternType.ANY, operation=AclOperation.ANY,
    permission_type=Permission.ANY, resource_name_filter=None, principal_filter=None, host_filter=None,
)  # fmt: skip


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "SLICE_S", 0.0)
    monkeypatch.setattr(fan_out, "STEP_ITEMS", 1)
    monkeypatch.setattr(fan_out, "SORTED_AT_ONCE", 2)


@pytest.fixture
def state() -> SecurityState:
    return SecurityState()


def asked(handle: Any, state: SecurityState, request: Any) -> asyncio.Task[Any]:
    security = SimpleNamespace(state=state, has_acls=True, catch_up=AsyncMock(), change=AsyncMock())
    cluster, context = SimpleNamespace(security=security), SimpleNamespace(requester=None)
    return asyncio.create_task(handle(SimpleNamespace(request=request, cluster=cluster, context=context)))


async def turns_of(task: asyncio.Task[Any]) -> int:
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    return turns


def allow(state: SecurityState, name: str) -> None:
    acl = Acl(ResourceType.TOPIC, PatternType.LITERAL, name, "User:a", "*", AclOperation.READ, Permission.ALLOW)
    state.apply(acl_record(acl, present=True))


async def test_acls(state: SecurityState) -> None:
    for name in NAMES:
        allow(state, name)
    asking = asked(describe_acls.handle, state, ALL_ACLS)
    assert await turns_of(asking) > 3 * MANY, "to find them, to sort them, and to describe them"
    assert [row.resource_name for row in asking.result().resources] == NAMES


async def test_acls_to_delete(state: SecurityState) -> None:
    for name in NAMES:
        allow(state, name)
    wanted = DeleteAclsRequest.DeleteAclsFilter(**asdict(ALL_ACLS))
    asking = asked(delete_acls.handle, state, DeleteAclsRequest(filters=[wanted]))
    assert await turns_of(asking) > 2.5 * MANY, "to find them, to sort them, and to delete them"
    [row] = asking.result().filter_results
    assert [acl.resource_name for acl in row.matching_acls] == NAMES


def limit(state: SecurityState, name: str, rate: float | None) -> None:
    state.apply(quota_record(QuotaKey(frozenset({("user", name)}), "producer_byte_rate"), rate))


async def test_quotas(state: SecurityState) -> None:
    for name in NAMES:
        limit(state, name, 1.0)
    asking = asked(describe_client_quotas.handle, state, DescribeClientQuotasRequest())
    await asyncio.sleep(0)
    limit(state, NAMES[-1], None)
    limit(state, "new", 1.0)
    assert await turns_of(asking) > MANY - 3
    names = [entry.entity[0].entity_name for entry in asking.result().entries]
    assert names == NAMES[:-1], "none without a quota, though one was removed meanwhile"
