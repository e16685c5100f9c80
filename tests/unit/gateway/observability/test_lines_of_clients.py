"""Clients cause few log lines a second, whatever they send: the disk would fill, and everybody waits while a line is
written.
"""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.config.limits import Limits
from gateway.config.listeners import LOOPBACK
from gateway.handlers.table import APIS
from gateway.network.arrivals import Arrivals
from gateway.network.turns import Turns
from gateway.observability import logs
from gateway.observability.logs import LINES_PER_S
from gateway.observability.metrics import Metrics
from protocol.kafka.codec import encode_request
from protocol.kafka.messages.message import Message
from protocol.kafka.messages.records import (
    DeleteRecordsRequest,
    DescribeProducersRequest,
    ListOffsetsRequest,
    ProduceRequest,
    WriteTxnMarkersRequest,
)
from protocol.kafka.records import Record, encode_batch
from tests.bench.inside.scene import Scene
from tests.unit.gateway.network.connection_harness import Conversation, frame

MANY = 1_000
FEW = LINES_PER_S
TOPIC = "topic"


@pytest.fixture(autouse=True)
def one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a test takes, for the log it is one second."""
    monkeypatch.setattr(logs, "SPARSE_S", 3_600)


def damaged() -> memoryview:
    batch = encode_batch([Record(0, 1, None, b"value", ())], base_offset=0)
    batch[-1] ^= 1  # its checksum is wrong
    return memoryview(bytes(batch))


def list_offsets() -> Message:
    topic = ListOffsetsRequest.ListOffsetsTopic
    rows = [topic.ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(MANY, 2 * MANY)]
    return ListOffsetsRequest(replica_id=-1, topics=[topic(name=TOPIC, partitions=rows)])


def delete_records() -> Message:
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    rows = [topic.DeleteRecordsPartition(partition_index=number, offset=0) for number in range(MANY, 2 * MANY)]
    return DeleteRecordsRequest(topics=[topic(name=TOPIC, partitions=rows)], timeout_ms=1_000)


def describe_producers() -> Message:
    topic = DescribeProducersRequest.TopicRequest
    return DescribeProducersRequest(topics=[topic(name=TOPIC, partition_indexes=[*range(MANY, 2 * MANY)])])


def write_markers() -> Message:
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    topic = marker.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[*range(MANY, 2 * MANY)])
    return WriteTxnMarkersRequest(markers=[marker(producer_id=1, producer_epoch=0, topics=[topic])])


def produce() -> Message:
    topic = ProduceRequest.TopicProduceData
    rows = [topic.PartitionProduceData(index=number, records=damaged()) for number in range(MANY)]
    return ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic(name=TOPIC, partition_data=rows)])


@pytest.mark.parametrize("make", [list_offsets, delete_records, describe_producers, write_markers, produce])
async def test_rows_of_a_request(make: Any) -> None:
    scene, request = Scene(), make()
    scene.add_topic(TOPIC, MANY)
    client = scene.connect()
    api = next(api for api in APIS.values() if api.request is type(request))
    with capture_logs() as lines:
        client.ask(b"".join(encode_request(api.request, api.max_version if api.key else 7, 1, "client", request)))
        await scene.until_answered([client])
    assert client.received
    assert len(lines) <= FEW


@pytest.mark.parametrize("sent", [frame("m1"), b"no PROXY header"])
async def test_connections_that_the_gateway_closes(sent: bytes) -> None:
    with capture_logs() as lines:
        for _ in range(MANY):
            conversation = Conversation(proxies=LOOPBACK if sent.startswith(b"no") else None)
            conversation.feed(sent)
            assert conversation.transport.closing
    assert len(lines) <= 2 * FEW, "of the request, and of the connection"


def test_connections_that_are_refused_at_once() -> None:
    arrivals = Arrivals(Limits(), Metrics(), Turns(by_cluster=False))
    with capture_logs() as lines:
        for number in range(MANY):
            arrivals.refused("TLS handshake failed", f"192.0.2.7:{number}", error="NO_SHARED_CIPHER")
    assert len(lines) <= FEW
