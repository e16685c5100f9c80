"""Requests with very many rows are judged in slices: others have their turn in between. Here each row is a slice."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from gateway import fan_out
from gateway.authorization import groups, topics, transactions
from gateway.requests.reply import Reply
from protocol.kafka.messages.groups import OffsetFetchRequest, OffsetFetchResponse
from protocol.kafka.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    MetadataRequest,
    MetadataResponse,
)
from protocol.kafka.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

ROWS = 50
NAMES = [f"t{number}" for number in range(ROWS)]
IDS = [uuid.UUID(int=number) for number in range(1, ROWS)]
_GROUP = OffsetFetchRequest.OffsetFetchRequestGroup
_CASES: list[tuple[Any, int, Any, Any]] = [
    (
        topics.metadata, 9,
        MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in NAMES]), MetadataResponse(),
    ),
    (
        topics.create_topics, 4,
        CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name=name) for name in NAMES]),
        CreateTopicsResponse(),
    ),
    (topics.delete_topics, 4, DeleteTopicsRequest(topic_names=NAMES), DeleteTopicsResponse()),
    (
        topics.delete_topics, 6,
        DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(topic_id=each) for each in IDS]),
        DeleteTopicsResponse(),
    ),
    (
        groups.offset_fetch, 8, OffsetFetchRequest(groups=[_GROUP(group_id=name, topics=[]) for name in NAMES]),
        OffsetFetchResponse(),
    ),
    (
        groups.offset_fetch, 8,
        OffsetFetchRequest(
            groups=[_GROUP(group_id="g", topics=[_GROUP.OffsetFetchRequestTopics(name=name) for name in NAMES])]
        ),
        OffsetFetchResponse(),
    ),
    (
        transactions.add_partitions_to_txn, 3,
        AddPartitionsToTxnRequest(
            v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name) for name in NAMES]
        ),
        AddPartitionsToTxnResponse(),
    ),
]  # fmt: skip


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "SLICE_S", 0.0)
    monkeypatch.setattr(fan_out, "STEP_ITEMS", 1)


def call_of(request: Any, version: int, api: Any) -> Any:
    """Of a client that may see all groups, transactions and topics except t0."""
    policy = SimpleNamespace(allows=lambda operation, kind, name: name not in {"t0", "kafka-cluster"})
    catalog = SimpleNamespace(cached_name=lambda _: None, get_by_id=AsyncMock(return_value=None), cached=lambda _: None)
    return SimpleNamespace(
        request=request, version=version, api=api, context=SimpleNamespace(policy=policy),
        cluster=SimpleNamespace(topics=catalog), count_error=lambda _: None, count_denied=lambda *_: None,
        audit_denied=lambda *_: None, asking=lambda changed: call_of(changed, version, api),
    )  # fmt: skip


@pytest.mark.parametrize(("guard", "version", "request_", "response"), _CASES)
async def test_a_request(guard: Any, version: int, request_: Any, response: Any) -> None:
    call = call_of(request_, version, SimpleNamespace(response=type(response)))
    judging, turns = asyncio.create_task(guard(call, lambda _: Reply(response)).result()), 0
    async with asyncio.timeout(20):
        while not judging.done():
            turns += 1
            await asyncio.sleep(0)
    await judging
    assert turns >= len(IDS)
