"""Relayed bytes are the same as decoded and encoded messages, in every version: requests and responses."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from gateway.handlers.table import APIS
from protocol.kafka.buffers import RecordChunks
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from protocol.kafka.records import Record, encode_batch
from tests.unit.gateway.forwarding.forwarding_scene import Scene

PRODUCE, FETCH = 0, 1
FIRST_BATCH_VERSION = {PRODUCE: 3, FETCH: 4}
TOPIC_ID_VERSION = {PRODUCE: 13, FETCH: 13}
LEADER_HINT_VERSION = {PRODUCE: 10, FETCH: 16}
TOPIC_ID = uuid.UUID(int=7)
RECORDS = bytes(encode_batch([Record(0, 1, b"key", b"value")], base_offset=0, producer_id=5, base_sequence=3))

_Produced = ProduceRequest.TopicProduceData
_Written = ProduceResponse.TopicProduceResponse
_Wanted = FetchRequest.FetchTopic
_Fetched = FetchResponse.FetchableTopicResponse


def versions(api_key: int) -> list[int]:
    return list(range(FIRST_BATCH_VERSION[api_key], APIS[api_key].max_version + 1))


def topic(api_key: int, version: int) -> dict[str, Any]:
    by_id = version >= TOPIC_ID_VERSION[api_key]
    name = "topic" if api_key == FETCH else "name"
    return {name: "" if by_id else "t", "topic_id": TOPIC_ID if by_id else None}


async def exchanged(api_key: int, version: int, request: Any, response: Any, *, share: bool) -> tuple[bytes, bytes]:
    """The request as the leader gets it and the response as the client gets it, without their correlation ids."""
    scene = Scene()
    scene.names[TOPIC_ID] = "t"
    asked = scene.ask(api_key, version, request, share=share)
    while 1 not in scene.links or not scene.links[1].sent:
        await asyncio.sleep(0)
    link = scene.links[1]
    link.answer(0, version, response)
    first = link.sent[0]
    # The connection is open now: the frequent request takes the shortest path.
    again = scene.ask(api_key, version, request, share=share)
    answering = asyncio.ensure_future(again.answer())
    while len(link.sent) < 2:
        await asyncio.sleep(0)
    link.answer(1, version, response)
    answer = await asked.answer()
    assert (await answering, link.sent[1][8:]) == (answer, first[8:])
    return first[:4] + first[8:], answer[4:]


@pytest.mark.parametrize("code", [0, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.MESSAGE_TOO_LARGE])
@pytest.mark.parametrize("version", versions(PRODUCE))
async def test_produce(version: int, code: int) -> None:
    row = _Written.PartitionProduceResponse(
        index=1, error_code=code, base_offset=-1 if code else 40, log_append_time_ms=-1, log_start_offset=3,
        record_errors=[], error_message="why" if code and version >= 8 else None,
    )  # fmt: skip
    if code and version >= LEADER_HINT_VERSION[PRODUCE]:
        row.current_leader = row.LeaderIdAndEpoch(leader_id=2, leader_epoch=9)
    request = ProduceRequest(
        transactional_id="id" if code else None, acks=-1, timeout_ms=1_000,
        topic_data=[
            _Produced(
                **topic(PRODUCE, version),
                partition_data=[_Produced.PartitionProduceData(index=1, records=memoryview(RECORDS))],
            )
        ],
    )  # fmt: skip
    response = ProduceResponse(
        responses=[_Written(**topic(PRODUCE, version), partition_responses=[row])], throttle_time_ms=5
    )
    relayed = await exchanged(PRODUCE, version, request, response, share=False)
    assert relayed == await exchanged(PRODUCE, version, request, response, share=True)


@pytest.mark.parametrize("code", [0, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_OUT_OF_RANGE])
@pytest.mark.parametrize("version", versions(FETCH))
async def test_fetch(version: int, code: int) -> None:
    data = _Fetched.PartitionData
    row = data(
        partition_index=1, error_code=code, high_watermark=9, last_stable_offset=8, log_start_offset=2,
        aborted_transactions=[data.AbortedTransaction(producer_id=5, first_offset=4)], preferred_read_replica=-1,
        records=RecordChunks((), 0) if code else RecordChunks((RECORDS, RECORDS), 2 * len(RECORDS)),
    )  # fmt: skip
    endpoints = []
    if code and version >= LEADER_HINT_VERSION[FETCH]:
        row.current_leader = data.LeaderIdAndEpoch(leader_id=2, leader_epoch=9)
        endpoints = [FetchResponse.NodeEndpoint(node_id=2, host="h", port=9092, rack="r")]
    request = FetchRequest(
        replica_id=-1, max_wait_ms=1_000, min_bytes=1, max_bytes=3_000, isolation_level=1, rack_id="r", session_id=0,
        session_epoch=-1, forgotten_topics_data=[],
        topics=[
            _Wanted(
                **topic(FETCH, version),
                partitions=[
                    _Wanted.FetchPartition(
                        partition=1, current_leader_epoch=3, fetch_offset=5, last_fetched_epoch=-1, log_start_offset=-1,
                        partition_max_bytes=1_000,
                    )
                ],
            )
        ],
    )  # fmt: skip
    response = FetchResponse(
        throttle_time_ms=5, error_code=0, session_id=0, node_endpoints=endpoints,
        responses=[_Fetched(**topic(FETCH, version), partitions=[row])],
    )  # fmt: skip
    relayed = await exchanged(FETCH, version, request, response, share=False)
    assert relayed == await exchanged(FETCH, version, request, response, share=True)
