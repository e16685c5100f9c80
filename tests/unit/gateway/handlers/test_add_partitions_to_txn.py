"""AddPartitionsToTxn: a request that waited for its topics is checked again."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from gateway.coordination.transactions.newest_connections import NewestConnections
from gateway.dispatch import LocalHandler
from gateway.handlers.table import APIS
from gateway.requests.call import Call, ClosesConnection
from gateway.requests.cluster import Cluster
from gateway.requests.context import Client, Listener, RequestContext
from gateway.topics.topic import Topic
from protocol.kafka.api_key import ApiKey
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.transactions import AddPartitionsToTxnRequest
from tests.unit.event_loop import let_callbacks_run


@pytest.mark.parametrize("is_evicted", [False, True])
async def test_an_eviction_while_topics_are_looked_up_closes_the_connection(is_evicted: bool) -> None:
    """The client may have sent the request to another gateway again, and begun its next transaction there."""
    asked: list[str] = []
    may_find, fleet = asyncio.Event(), SimpleNamespace(incarnation="first")

    async def ask(transactional_id: str, run: Any, respond: Any) -> Any:
        asked.append(transactional_id)
        return respond(ErrorCode.NONE)

    async def get(name: str, **_: Any) -> Topic:
        await may_find.wait()
        return Topic(name, f"persistent://t/n/{name}", uuid4(), 1, True, {}, time.monotonic())

    cluster = SimpleNamespace(
        topics=SimpleNamespace(count=0, cached=lambda name: None, get=get), fleet=fleet,
        transactions=SimpleNamespace(ask=ask), producer_connections=NewestConnections(),
        metrics=SimpleNamespace(error=lambda *_: None),
    )  # fmt: skip
    partitions = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[0])
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x", v3_and_below_producer_id=7, v3_and_below_producer_epoch=0,
        v3_and_below_topics=[partitions],
    )  # fmt: skip
    context = RequestContext(Client("a", incarnation="first"), Listener("l"), cast(Cluster, cluster))
    call = Call(APIS[ApiKey.AddPartitionsToTxn], 3, 1, "c", request, context)
    answer = asyncio.create_task(cast(Any, LocalHandler().handle(call).result()))
    await let_callbacks_run()
    if is_evicted:
        fleet.incarnation = "second"
    may_find.set()
    if is_evicted:
        with pytest.raises(ClosesConnection):
            await answer
    else:
        await answer
    assert asked == ([] if is_evicted else ["x"])
