"""DeleteAcls with filters that match much: a small request must not have an answer of gigabytes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from gateway import fan_out
from gateway.handlers.security import delete_acls
from gateway.security.acls import Acl, AclFilter
from protocol.kafka.acl import AclOperation, PatternType, Permission, ResourceType
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.security import DeleteAclsRequest, DeleteAclsResponse

TOPIC, LITERAL = ResourceType.TOPIC, PatternType.LITERAL
ACLS = [Acl(TOPIC, LITERAL, f"t{each}", "User:a", "*", AclOperation.READ, Permission.ALLOW) for each in range(10)]
_Filter = DeleteAclsRequest.DeleteAclsFilter


def wanted(name: str | None = None) -> _Filter:
    return _Filter(
        resource_type_filter=TOPIC, resource_name_filter=name, pattern_type_filter=LITERAL, principal_filter=None,
        host_filter=None, operation=AclOperation.ANY, permission_type=Permission.ANY,
    )  # fmt: skip


def call_of(*filters: _Filter) -> Any:
    state = SimpleNamespace(acls={*ACLS})
    security = SimpleNamespace(has_acls=True, state=state, catch_up=AsyncMock(), change=AsyncMock())
    return SimpleNamespace(
        request=DeleteAclsRequest(filters=[*filters]), cluster=SimpleNamespace(security=security),
        context=SimpleNamespace(requester=None), count_error=lambda code: None,
    )  # fmt: skip


def names(response: DeleteAclsResponse) -> list[list[str]]:
    return [[acl.resource_name for acl in row.matching_acls] for row in response.filter_results]


async def test_each_filter_is_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[AclFilter] = []
    matches = AclFilter.matches

    def counted(own: AclFilter, acl: Acl) -> bool:
        asked.append(own)
        return matches(own, acl)

    monkeypatch.setattr(AclFilter, "matches", counted)
    call = call_of(wanted("t3"), wanted(), wanted("t3"))
    response = await delete_acls.handle(call)
    assert names(response) == [["t3"], [acl.name for acl in ACLS], ["t3"]]
    assert len(asked) == 2 * len(ACLS)
    assert len(call.cluster.security.change.call_args.args[0]) == len(ACLS)


@pytest.mark.parametrize(("bound", "limit"), [("MAX_CHANGES", 29), ("MAX_ANSWER_BYTES", 29 * 25)])
async def test_what_the_answer_lists_is_bounded(bound: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only the number of different ACLs: Kafka has no other bound."""
    monkeypatch.setattr(delete_acls, bound, limit)
    assert names(await delete_acls.handle(call_of(wanted(), wanted())))[1] == [acl.name for acl in ACLS]
    call = call_of(wanted(), wanted(), wanted())
    response = await delete_acls.handle(call)
    assert [row.error_code for row in response.filter_results] == [ErrorCode.POLICY_VIOLATION] * 3
    assert not call.cluster.security.change.called


async def test_one_filter_is_evaluated_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "SLICE_S", 0.0)
    monkeypatch.setattr(fan_out, "STEP_ITEMS", 1)
    task, turns = asyncio.create_task(delete_acls.handle(call_of(wanted()))), 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 3 * len(ACLS), "to match, to write and to answer each"
    assert names(task.result()) == [[acl.name for acl in ACLS]]
