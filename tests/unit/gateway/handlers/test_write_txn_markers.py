"""Markers of transactions, as a partition's leader takes them from coordinators."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from gateway.coordination.transactions.marker_links import MarkerLinks
from gateway.handlers.records.write_txn_markers import handle
from gateway.requests.reply import Reply
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import WriteTxnMarkersRequest, WriteTxnMarkersResponse

WAIT_S = 5
SLOW, GONE = "slow", "gone"


class Scene:
    """Nothing is known yet of the topic ``SLOW``; the others do not exist."""

    def __init__(self) -> None:
        self.looked_up = asyncio.Event()
        self._cluster = SimpleNamespace(topics=SimpleNamespace(get=self._get), marker_links=MarkerLinks())

    async def _get(self, name: str) -> None:
        if name == SLOW:
            await self.looked_up.wait()

    def ask(self, topic: str) -> Reply:
        marker = WriteTxnMarkersRequest.WritableTxnMarker
        request = WriteTxnMarkersRequest(
            markers=[
                marker(
                    producer_id=1, producer_epoch=0, transaction_result=True, coordinator_epoch=0,
                    topics=[marker.WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
                )
            ]
        )  # fmt: skip
        return handle(cast(Any, SimpleNamespace(request=request, client_id="c", cluster=self._cluster)))


async def code(reply: Reply) -> ErrorCode:
    async with asyncio.timeout(WAIT_S):
        response = await reply.result()
    assert isinstance(response, WriteTxnMarkersResponse)
    return ErrorCode(response.markers[0].topics[0].partitions[0].error_code)


async def test_later_requests_of_a_link_do_not_wait_for_a_partition() -> None:
    """Otherwise one that Pulsar does not serve would keep the transactions of all others from being completed."""
    scene = Scene()
    slow, other = scene.ask(SLOW), scene.ask(GONE)
    assert slow.preparation is None
    assert await code(other) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert slow.future is not None and not slow.future.done()
    scene.looked_up.set()
    assert await code(slow) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
