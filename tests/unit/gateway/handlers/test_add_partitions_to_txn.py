"""AddPartitionsToTxn: a request that waited for its topics is checked again, and nobody adds internal topics."""

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
from protocol.kafka.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from tests.unit.event_loop import let_callbacks_run


class Scene:
    """A call of one transaction that names a topic's first partition. `may_find` lets topics be looked up."""

    def __init__(self, topic: str = "t", version: int = 3) -> None:
        self.asked: list[str] = []
        self.may_find = asyncio.Event()
        self.fleet = SimpleNamespace(incarnation="first")
        cluster = SimpleNamespace(
            topics=SimpleNamespace(count=0, cached=lambda name: None, get=self._get), fleet=self.fleet,
            transactions=SimpleNamespace(ask=self._ask), producer_connections=NewestConnections(),
            metrics=SimpleNamespace(error=lambda *_: None),
        )  # fmt: skip
        context = RequestContext(Client("a", incarnation="first"), Listener("l"), cast(Cluster, cluster))
        self.call = Call(APIS[ApiKey.AddPartitionsToTxn], version, 1, "c", request(topic, version), context)

    async def answer(self) -> AddPartitionsToTxnResponse:
        return cast(AddPartitionsToTxnResponse, await cast(Any, LocalHandler().handle(self.call).result()))

    async def _ask(self, transactional_id: str, run: Any, respond: Any) -> Any:
        self.asked.append(transactional_id)
        return respond(ErrorCode.NONE)

    async def _get(self, name: str, **_: Any) -> Topic:
        await self.may_find.wait()
        return Topic(name, f"persistent://t/n/{name}", uuid4(), 1, True, {}, time.monotonic())


def request(topic: str, version: int) -> AddPartitionsToTxnRequest:
    if version < 4:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x", v3_and_below_producer_id=7, v3_and_below_producer_epoch=0,
            v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )  # fmt: skip
    transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    topics = [transaction.AddPartitionsToTxnTopic(name=topic, partitions=[0])]
    return AddPartitionsToTxnRequest(
        transactions=[
            transaction(transactional_id="x", producer_id=7, producer_epoch=0, verify_only=False, topics=topics)
        ]
    )


@pytest.mark.parametrize("is_evicted", [False, True])
async def test_an_eviction_while_topics_are_looked_up_closes_the_connection(is_evicted: bool) -> None:
    """The client may have sent the request to another gateway again, and begun its next transaction there."""
    scene = Scene()
    answer = asyncio.create_task(scene.answer())
    await let_callbacks_run()
    if is_evicted:
        scene.fleet.incarnation = "second"
    scene.may_find.set()
    if is_evicted:
        with pytest.raises(ClosesConnection):
            await answer
    else:
        await answer
    assert scene.asked == ([] if is_evicted else ["x"])


@pytest.mark.parametrize(
    ("topic", "version", "is_added"),
    [
        ("__consumer_offsets", 3, False),
        ("__transaction_state", 3, False),
        ("__transaction_state", 4, False),
        ("__consumer_offsets", 4, True),  # by a leader of groups, in behalf of a client
    ],
)
async def test_internal_topics_are_not_added(topic: str, version: int, is_added: bool) -> None:
    """No gateway leads the log of the coordinators: a transaction with a partition of it would never end."""
    scene = Scene(topic, version)
    scene.may_find.set()
    answer = await scene.answer()
    rows = answer.results_by_topic_v3_and_below or answer.results_by_transaction[0].topic_results
    code = rows[0].results_by_partition[0].partition_error_code
    assert code == (ErrorCode.NONE if is_added else ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert scene.asked == (["x"] if is_added else [])
