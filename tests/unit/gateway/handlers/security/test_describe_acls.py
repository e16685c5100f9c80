"""DescribeAcls of a cluster with tens of thousands of ACLs gives others their turn."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gateway import fan_out
from gateway.handlers.security import describe_acls
from gateway.security.acls import Acl
from protocol.kafka.acl import AclOperation, PatternType, Permission, ResourceType
from protocol.kafka.messages.security import DescribeAclsRequest

TOPIC, LITERAL = ResourceType.TOPIC, PatternType.LITERAL
ACLS = [Acl(TOPIC, LITERAL, f"t{each}", "User:a", "*", AclOperation.READ, Permission.ALLOW) for each in range(10)]


async def test_acls_are_matched_and_listed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "SLICE_S", 0.0)
    monkeypatch.setattr(fan_out, "STEP_ITEMS", 1)
    request = DescribeAclsRequest(
        resource_type_filter=TOPIC, resource_name_filter=None, pattern_type_filter=LITERAL, principal_filter=None,
        host_filter=None, operation=AclOperation.ANY, permission_type=Permission.ANY,
    )  # fmt: skip
    security = SimpleNamespace(has_acls=True, state=SimpleNamespace(acls={*ACLS}))
    call: Any = SimpleNamespace(request=request, cluster=SimpleNamespace(security=security))
    task, turns = asyncio.create_task(describe_acls.handle(call)), 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 1.5 * len(ACLS)
    assert [resource.resource_name for resource in task.result().resources] == [acl.name for acl in ACLS]
