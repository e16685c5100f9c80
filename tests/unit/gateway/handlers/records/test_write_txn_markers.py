"""Markers of transactions, as a partition's leader accepts them from coordinators."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.coordination.transactions.marker_links import MarkerLinks
from gateway.handlers.records import write_txn_markers
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

    def ask(self, *topics: str) -> Reply:
        marker = WriteTxnMarkersRequest.WritableTxnMarker
        request = WriteTxnMarkersRequest(
            markers=[
                marker(
                    producer_id=1, producer_epoch=0, transaction_result=True, coordinator_epoch=0,
                    topics=[marker.WritableTxnMarkerTopic(name=topic, partition_indexes=[0]) for topic in topics],
                )
            ]
        )  # fmt: skip
        return handle(cast(Any, SimpleNamespace(request=request, client_id="c", cluster=self._cluster)))


async def codes(reply: Reply) -> list[ErrorCode]:
    async with asyncio.timeout(WAIT_S):
        response = await reply.result()
    assert isinstance(response, WriteTxnMarkersResponse)
    return [ErrorCode(topic.partitions[0].error_code) for topic in response.markers[0].topics]


async def test_later_requests_of_a_link_do_not_wait_for_a_partition() -> None:
    """Otherwise a partition that Pulsar does not serve would block the end of all other transactions."""
    scene = Scene()
    slow, other = scene.ask(SLOW), scene.ask(GONE)
    assert slow.preparation is None
    assert await codes(other) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert slow.future is not None and not slow.future.done()
    scene.looked_up.set()
    assert await codes(slow) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_other_partitions_of_a_request_do_not_wait_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_txn_markers, "PARTITION_S", 0.01)
    scene = Scene()
    assert await codes(scene.ask(GONE, SLOW)) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ]


async def test_however_many_partitions_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the coordinator would close the connection, with all results that were in time."""
    monkeypatch.setattr(write_txn_markers, "PARTITION_S", 0.2)
    monkeypatch.setattr(write_txn_markers, "REQUEST_S", 0.0)
    many = [SLOW] * 1_000
    assert await codes(Scene().ask(*many)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * len(many)
