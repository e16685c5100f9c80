"""Kinds of native messages that ordinary producers do not send: what Kafka clients see of each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import TopicPartition

from deploy.local.standalone import PulsarStandalone
from protocol.pulsar.entry import encode_message
from protocol.pulsar.pulsar_commands_pb2 import EncryptionKeys
from tests.integration.confluent import (
    TIMEOUT_S,
    Record,
    assigned,
    consume,
    create_topic,
    produce,
    read_all_values,
    watermarks,
)
from tests.integration.odd_entries import Odd, write
from tests.integration.servers import lone_gateway_on, running
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic

KEY = b"\xff\x00key"
SECRET = b"secret"
TOMORROW_MS = 86_400_000
ENCRYPTED = {"encryption_keys": [EncryptionKeys(key="k", value=b"v")]}
NULLS = [
    encode_message(b"1", key=b"k"), encode_message(None, key=b"k"), encode_message(b"", key=b""), encode_message(b"4"),
]  # fmt: skip
KINDS: dict[str, tuple[Odd, list[tuple[int, bytes | None, bytes | None]]]] = {
    "encrypted": (Odd(SECRET, 1, {**ENCRYPTED, "partition_key": b"k"}), [(0, b"k", SECRET)]),
    "an encrypted batch is one record": (Odd(SECRET, 3, ENCRYPTED), [(0, None, SECRET)]),
    "with values and keys that are null": (
        Odd(b"".join(NULLS), 4), [(0, b"k", b"1"), (1, b"k", None), (2, b"", b""), (3, None, b"4")],
    ),
    "a key that is bytes": (Odd(encode_message(b"v", key=KEY)), [(0, KEY, b"v")]),
    "a key beside an ordering key": (
        Odd(encode_message(b"v", key=b"key", ordering_key=b"ordering")), [(0, b"key", b"v")],
    ),
    "a schema with a key and a value apart": (
        Odd(encode_message(b'{"v":1}', key=b'{"k":1}'), 1, {"schema_version": b"\0" * 8}),
        [(0, b'{"k":1}', b'{"v":1}')],
    ),
    "delivered later": (
        Odd(encode_message(b"v"), 1, {"deliver_at_time": int(time.time() * 1000) + TOMORROW_MS}), [(0, None, b"v")],
    ),
    "for one cluster": (Odd(encode_message(b"v"), 1, {"replicate_to": ["__local__"]}), [(0, None, b"v")]),
    "a copy": (Odd(encode_message(b"v"), 1, {"replicated_from": "elsewhere"}), [(0, None, b"v")]),
    **{
        f"a marker of replication, {kind}": (Odd(encode_message(b"v"), 1, {"marker_type": kind}), [])
        for kind in (10, 11, 12, 13, 20, 21, 22)
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def lone(pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with running(lone_gateway_on(pulsar, tmp_path_factory.mktemp("kinds"))) as gateway:
        yield gateway


@pytest.fixture
def topic(lone: GatewayProcess) -> str:
    name = unique_topic("kinds")
    create_topic(lone.bootstrap, name)
    return name


def append(pulsar: PulsarStandalone, lone: GatewayProcess, topic: str, entries: Sequence[Odd]) -> None:
    asyncio.run(write(pulsar, f"{topic}-partition-0", entries, f"kafka/{lone.config['pulsar']['namespace']}"))


@pytest.mark.parametrize("kind", KINDS)
def test_what_kafka_sees(pulsar: PulsarStandalone, lone: GatewayProcess, topic: str, kind: str) -> None:
    """Between records of Kafka clients, whose offsets stay."""
    odd, expected = KINDS[kind]
    assert produce(lone.bootstrap, topic, [Record(b"before", timestamp_ms=1)]) == [0]
    append(pulsar, lone, topic, [odd])
    end = 1 + odd.count
    assert produce(lone.bootstrap, topic, [Record(b"behind", timestamp_ms=2**44)]) == [end]
    found = consume(lone.bootstrap, topic, 2 + len(expected))
    shown = [(message.offset(), message.key(), message.value()) for message in found]
    assert shown == [(0, None, b"before"), *((1 + at, *rest) for at, *rest in expected), (end, None, b"behind")]
    assert watermarks(lone.bootstrap, topic) == (0, end + 1)
    with assigned(lone.bootstrap, topic) as reader:
        for at, offset in ((1, 0), (2, 1 if expected else end), (2**44, end), (2**44 + 1, -1)):
            [answer] = reader.offsets_for_times([TopicPartition(topic, 0, at)], TIMEOUT_S)
            assert (answer.error, answer.offset) == (None, offset), at


def test_a_count_below_zero_takes_no_offset(pulsar: PulsarStandalone, lone: GatewayProcess, topic: str) -> None:
    """No offset is given twice."""
    assert produce(lone.bootstrap, topic, [Record(b"%d" % number) for number in range(3)]) == [0, 1, 2]
    append(pulsar, lone, topic, [Odd(encode_message(b"odd"), -2, {"num_messages_in_batch": 1})])
    assert produce(lone.bootstrap, topic, [Record(b"3")], enable_idempotence=True) == [3]
    assert read_all_values(lone.bootstrap, topic) == [(number, b"%d" % number) for number in range(4)]
