"""Odd entries of native producers in a topic that Kafka clients read: other clients continue, and so does its reader.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from deploy.local.standalone import PulsarStandalone
from protocol.kafka.records import Record as BatchRecord
from protocol.kafka.records import encode_batch
from protocol.pulsar.entry import encode_message
from protocol.pulsar.pulsar_commands_pb2 import CompressionType
from tests.integration.confluent import TIMEOUT_S, Record, assigned, create_topic, produce, take
from tests.integration.native import producer
from tests.integration.odd_entries import Odd, write
from tests.integration.servers import metric
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic

FIRST, LAST = b"before all", b"behind all"
MESSAGES = encode_message(b"one") + encode_message(b"two")


def batch(magic: int = 2) -> bytes:
    data = encode_batch([BatchRecord(delta, 1, None, b"v") for delta in range(2)])
    data[16] = magic
    return bytes(data)


def piece(number: int, of: int, size: int, uuid: bytes = b"u") -> Odd:
    chunk = {"chunk_id": number, "num_chunks_from_msg": of, "total_chunk_msg_size": size, "uuid": uuid}
    return Odd(b"piece", metadata=chunk)


ODD_ENTRIES = [
    Odd(encode_message(b"late", event_time_ms=2**64 - 1)),
    Odd(encode_message(b"1", event_time_ms=1) + encode_message(b"2", event_time_ms=2**63), 2),
    *(Odd(batch(magic), 2, properties={"entry.format": "kafka"}) for magic in (0, 1, 3, 255)),
    Odd(batch(), 1, properties={"entry.format": "kafka"}),
    Odd(b"", 3, properties={"entry.format": "kafka"}),
    *(
        Odd(MESSAGES, 2, properties={"entry.format": "pulsar", "kafka.batches": text})
        for text in ("", "2", "2,0,99999999999999999999,0,0", "2,0,1,99999,0", "-1,0,0,0,0;3,0,0,0,0", "0x2,0,0,0,0")
    ),
    Odd(MESSAGES, 2, properties={"entry.format": "pulsar"}),
    *(
        Odd(MESSAGES, 2, metadata={"compression": codec, "uncompressed_size": size})
        for codec in (CompressionType.LZ4, CompressionType.ZLIB, CompressionType.ZSTD, CompressionType.SNAPPY)
        for size in (0, len(MESSAGES), 2**32 - 1)
    ),
    Odd(b"\xff" * 40, 2),
    Odd(MESSAGES, 1_000),
    piece(0, 2, 10), piece(0, 2, 10), piece(1, 2, 10),
    piece(2, 3, 15, b"only the last"), piece(-1, 3, 15, b"below"), piece(2**31 - 2, 2**31 - 1, 1, b"endless"),
    piece(1, 2, 2**31 - 1, b"huge"),
]  # fmt: skip


@pytest.fixture
def hostile(pulsar: PulsarStandalone, gateway: GatewayProcess) -> Iterator[str]:
    """A topic with odd entries between two records."""
    topic = unique_topic("hostile")
    create_topic(gateway.bootstrap, topic)
    with producer(pulsar, f"{topic}-partition-0", batching_enabled=False) as writer:
        writer.send(FIRST)
        writer.send(b"late", event_timestamp=2**63)
        writer.send(b"ours?", properties={"entry.format": "kafka", "kafka.batches": "1,0,x,0,0"})
        writer.send(b"ours?", properties={"entry.format": "pulsar", "kafka.batches": "1,0,9e9,0,0"})
    asyncio.run(write(pulsar, f"{topic}-partition-0", ODD_ENTRIES))
    with producer(pulsar, f"{topic}-partition-0") as writer:
        writer.send(LAST)
    yield topic


def broker_connections(gateway: GatewayProcess) -> int:
    """The number of connections opened so far."""
    return gateway.log_path.read_text().count('"state": "READY"')


def test_a_consumer_comes_past_them_and_others_notice_nothing(gateway: GatewayProcess, hostile: str) -> None:
    witness = unique_topic("witness")
    create_topic(gateway.bootstrap, witness)
    epoch, connections = metric(gateway, "kafka_gateway_fleet_epoch"), broker_connections(gateway)
    assert connections > 0
    with assigned(gateway.bootstrap, witness) as waiting, assigned(gateway.bootstrap, hostile) as reader:
        values = [message.value() for message in _until_last(reader)]
        assert values[0] == FIRST
        for number in range(20):
            produce(gateway.bootstrap, witness, [Record(b"%d" % number)])
            assert [message.value() for message in take(waiting, 1)] == [b"%d" % number]
    assert metric(gateway, "kafka_gateway_fleet_epoch") == epoch
    assert metric(gateway, "kafka_gateway_fleet_lease") == 1
    assert broker_connections(gateway) - connections <= 1


def test_reading_may_start_anywhere(gateway: GatewayProcess, hostile: str) -> None:
    with assigned(gateway.bootstrap, hostile) as reader:
        last = _until_last(reader)[-1].offset()
    assert last is not None
    for offset in range(0, last, 7):
        with assigned(gateway.bootstrap, hostile, offset=offset) as reader:
            assert _until_last(reader)[-1].offset() == last


def test_idempotent_producers_and_searches_by_time(gateway: GatewayProcess, hostile: str) -> None:
    """Both read the existing entries."""
    with assigned(gateway.bootstrap, hostile) as reader:
        last = _until_last(reader)[-1].offset()
        for timestamp in (0, 1, int(time.time() * 1000) - 60_000):
            [found] = reader.offsets_for_times([TopicPartition(hostile, 0, timestamp)], TIMEOUT_S)
            assert found.error is None
            assert 0 <= found.offset <= last
        [offset] = produce(gateway.bootstrap, hostile, [Record(b"ours")], enable_idempotence=True)
        assert offset > last
        assert [message.value() for message in take(reader, 1)] == [b"ours"]


def _until_last(reader: Consumer) -> list[Any]:
    read: list[Any] = []
    while not read or read[-1].value() != LAST:
        read += take(reader, 1)
    return read
