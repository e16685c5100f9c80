"""DeleteGroups (key 42), v0-v2. v2 flexible."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from gateway.busy_time import run_part
from gateway.fan_out import fan_out, sliced
from gateway.requests.call import Call
from gateway.requests.repeated import distinct_of
from gateway.requests.reply import Reply
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.groups import DeleteGroupsRequest, DeleteGroupsResponse


def handle(call: Call[DeleteGroupsRequest]) -> Reply:
    return Reply.later(run_part(_delete(call)))


async def _delete(call: Call[DeleteGroupsRequest]) -> DeleteGroupsResponse:
    group_ids = await distinct_of(call.request.groups_names)
    answers = await fan_out(lambda group_id: _delete_one(call, group_id), group_ids)
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=answer[group_id])
            async for group_id, answer in sliced(zip(group_ids, answers, strict=True))
        ]
    )


def _delete_one(call: Call, group_id: str) -> asyncio.Future[Mapping[str, ErrorCode]]:
    return call.cluster.groups.ask(
        group_id,
        lambda coordinator, now_ms, reply: coordinator.delete_groups([group_id], now_ms, reply),
        lambda answer: answer,
    )
