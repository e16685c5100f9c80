"""Entries that no client library writes, chosen or random, and a producer that writes them to Pulsar."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from deploy.local.standalone import PulsarStandalone
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.position import Position
from gateway.pulsar.settings import PulsarSettings
from protocol.kafka.records import Record as BatchRecord
from protocol.kafka.records import encode_batch
from protocol.pulsar.entry import compress, encode_message
from protocol.pulsar.pulsar_commands_pb2 import EncryptionKeys, KeyValue, MessageMetadata
from tests.integration.confluent import TIMEOUT_S
from tests.integration.native import NAMESPACE

MAX_FIELDS = 5
_INT64S = (0, 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1)
_COUNTS = (-(2**31), -1, 0, 1, 2, 3, 1_000, 2**31 - 1)
_TEXTS = (
    "", "kafka", "pulsar", "1,0,-1,-1,-1", "2,0,7,0,0", "1,8,7,0,5", "9e9", "1,0,x,0,0", "0k 1n", "empty", "ü", "-5",
)  # fmt: skip
_OUR_NAMES = (
    "entry.format", "kafka.batches", "kafka.record", "kafka.log.start", "kafka.offset", "kafka.topic.id", "other",
)  # fmt: skip


@dataclass(frozen=True)
class Odd:
    """`count` is the number of messages in the Send command; the broker adds it to the index."""

    payload: bytes
    count: int = 1
    metadata: dict[str, Any] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def fields(self) -> bytes:
        """These fields follow those of every entry, and override them."""
        metadata = MessageMetadata(**self.metadata)
        metadata.properties.extend(KeyValue(key=k.encode(), value=v.encode()) for k, v in self.properties.items())
        return metadata.SerializePartialToString()


def random_entries(random: Random, count: int) -> list[Odd]:
    return [_random_entry(random) for _ in range(count)]


def _random_entry(random: Random) -> Odd:
    count = random.choice([1, 1, 2, 3, 40])
    codec = random.randint(0, 4)
    payload = _payload(random, count)
    metadata = {"compression": codec, "uncompressed_size": len(payload)} if random.random() < 0.4 else {}
    if metadata and random.random() < 0.6:
        payload = compress(codec, payload)
    for name in random.sample(list(_FIELDS), random.randint(0, MAX_FIELDS)):
        metadata[name] = _FIELDS[name](random)
    names = random.sample(_OUR_NAMES, random.choice([0, 0, 1, 2, 3]))
    properties = {name: random.choice(_TEXTS) for name in names}
    if properties.get("entry.format") == "kafka" and random.random() < 0.5:
        payload, metadata = _kafka_batches(count), {}
    return Odd(payload, count, metadata, properties)


def _payload(random: Random, count: int) -> bytes:
    if random.random() < 0.3:
        return random.randbytes(random.choice([0, 1, 4, 60, 61, 3_000]))
    keys = random.choice([(None,), (b"k", b"\xff")])
    values = [None, b"", b"v", b"\0", random.randbytes(9)]
    return b"".join(
        encode_message(
            random.choice(values), key=random.choice(keys), event_time_ms=random.choice([None, *_INT64S]),
            properties=[(random.choice(_OUR_NAMES), random.choice(_TEXTS).encode())] * random.randint(0, 2),
        )
        for _ in range(count)
    )  # fmt: skip


def _kafka_batches(count: int) -> bytes:
    return bytes(encode_batch([BatchRecord(delta, 1, None, b"v") for delta in range(count)], compression=count % 3))


_FIELDS: dict[str, Any] = {
    "publish_time": lambda random: random.choice(_INT64S),
    "event_time": lambda random: random.choice(_INT64S),
    "sequence_id": lambda random: random.choice(_INT64S),
    "highest_sequence_id": lambda random: random.choice(_INT64S),
    "deliver_at_time": lambda random: random.choice([-1, 0, 2**62]),
    "txnid_least_bits": lambda random: random.choice(_INT64S),
    "txnid_most_bits": lambda random: random.choice(_INT64S),
    "compression": lambda random: random.randint(0, 4),
    "uncompressed_size": lambda random: random.choice([0, 1, 100, 2**31 - 1, 2**32 - 1]),
    # Not -1: brokers (4.0.7) skip entries that they read together when the sum of their counts is 0.
    "num_messages_in_batch": lambda random: random.choice([-(2**31), 0, 1, 2, 3, 1_000, 2**31 - 1]),
    "num_chunks_from_msg": lambda random: random.choice(_COUNTS),
    "chunk_id": lambda random: random.choice(_COUNTS),
    "total_chunk_msg_size": lambda random: random.choice(_COUNTS),
    "uuid": lambda random: random.choice([b"", b"u", b"\xff"]),
    "replicated_from": lambda random: random.choice(["", "elsewhere"]),
    "partition_key": lambda random: random.choice([b"", b"k", b"!!!", b"\xff\xfe"]),
    "partition_key_b64_encoded": lambda random: True,
    "null_partition_key": lambda random: True,
    "null_value": lambda random: True,
    "ordering_key": lambda random: random.randbytes(3),
    "schema_version": lambda random: random.randbytes(8),
    "producer_name": lambda random: random.choice(["", "x" * 300]),
    "encryption_keys": lambda random: [EncryptionKeys(key="k", value=b"v")],
}


class _Receipts:
    """Waits until all entries are written."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_receipt(self, sequence_id: int, position: Position) -> None:
        self._left -= 1
        if not self._left:
            self.done.set_result(None)

    def on_send_error(self, sequence_id: int, error: PulsarError) -> None:
        self.done.set_exception(error)

    def on_producer_closed(self, error: PulsarError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class _Events:
    def on_connection_state(self, *_: object, others: bool) -> None: ...


async def write(
    server: PulsarStandalone, topic: str, entries: Sequence[Odd], namespace: str = NAMESPACE
) -> None:
    client = PulsarClient(PulsarSettings(service_url=server.service_url, admin_url=server.admin_url), _Events())
    try:
        receipts = _Receipts(len(entries))
        writer = await client.open_producer(f"persistent://{namespace}/{topic}", receipts)
        for odd in entries:
            writer.send(
                [odd.payload], num_messages=odd.count, publish_time_ms=int(time.time() * 1000), properties=odd.fields
            )
        async with asyncio.timeout(TIMEOUT_S):
            await receipts.done
        await writer.close()
    finally:
        await client.close()
