"""Pulsar's own clients and Kafka's on the same topics. Native clients do not use the gateway."""

import random
import threading
import time
from statistics import median

import pulsar as native
import pytest
from confluent_kafka.admin import AdminClient

from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import (
    TIMEOUT_S,
    Record,
    assigned,
    consume,
    create_topic,
    offsets_of,
    produce,
    record_of,
    take,
    watermarks,
)
from tests.integration.native import NAMESPACE, Admin, full_name, producer, wait_for
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic

EVENT_MS = 1_600_000_000_000
COMPRESSIONS = {
    "none": native.CompressionType.NONE,
    "lz4": native.CompressionType.LZ4,
    "zlib": native.CompressionType.ZLib,
    "zstd": native.CompressionType.ZSTD,
    "snappy": native.CompressionType.SNAPPY,
}
FETCH_WAIT_MS = 20_000
PROMPT_S = 15.0
"""Enough on a slow machine, but much less than the wait of a fetch that is not completed."""


@pytest.fixture
def admin(pulsar: PulsarStandalone) -> Admin:
    return Admin(pulsar)


@pytest.fixture
def topic(gateway: GatewayProcess) -> str:
    """A topic with one partition, created by a Kafka client. ``pulsar_name`` is its name in Pulsar."""
    name = unique_topic("interop")
    create_topic(gateway.bootstrap, name)
    return name


def pulsar_name(topic: str, partition: int = 0) -> str:
    return f"{topic}-partition-{partition}"


def listed(gateway: GatewayProcess) -> dict[str, int]:
    """Topics as Kafka clients see them, with their partition counts."""
    client = AdminClient({"bootstrap.servers": gateway.bootstrap})
    return {name: len(found.partitions) for name, found in client.list_topics(timeout=TIMEOUT_S).topics.items()}


def test_single_native_messages(pulsar: PulsarStandalone, gateway: GatewayProcess, topic: str) -> None:
    with producer(pulsar, pulsar_name(topic)) as writer:
        for number in range(20):
            writer.send(
                b"value %d" % number, properties={"trace": f"{number}", "empty": ""},
                partition_key=f"key {number} ü", event_timestamp=EVENT_MS + number,
            )  # fmt: skip
    read = consume(gateway.bootstrap, topic, 20)
    assert offsets_of(read) == [*range(20)]
    for number, message in enumerate(read):
        record = record_of(message)
        assert (record.value, record.key) == (b"value %d" % number, f"key {number} ü".encode())
        assert dict(record.headers) == {"trace": b"%d" % number, "empty": b""}
        assert record.timestamp_ms == EVENT_MS + number


def test_native_messages_larger_than_an_entry(pulsar: PulsarStandalone, gateway: GatewayProcess, topic: str) -> None:
    """The native producer splits them into chunks. Each chunk has an offset, and the last one has the record."""
    large = random.Random(5).randbytes(11 << 20)
    options = {"chunking_enabled": True, "batching_enabled": False, "compression_type": COMPRESSIONS["lz4"]}
    # Otherwise librdkafka would report an error only after ten answers without a record.
    most = 1_000_000_000
    with (
        assigned(gateway.bootstrap, topic, max_partition_fetch_bytes=most) as waiting,
        producer(pulsar, pulsar_name(topic), **options) as writer,
    ):
        writer.send(b"before")
        assert offsets_of(take(waiting, 1)) == [0]
        writer.send(large, partition_key="key")
        writer.send(b"behind")
        read = take(waiting, 2)
    assert [(message.offset(), message.value()) for message in read] == [(3, large), (4, b"behind")]
    for offset in (1, 3):
        (found,) = consume(gateway.bootstrap, topic, 1, offset=offset)
        assert (found.offset(), found.key(), found.value()) == (3, b"key", large)


def test_a_native_message_without_event_time_has_its_publish_time(
    pulsar: PulsarStandalone, gateway: GatewayProcess, topic: str
) -> None:
    before = int(time.time() * 1000)
    with producer(pulsar, pulsar_name(topic)) as writer:
        writer.send(b"")
    after = int(time.time() * 1000)
    [record] = map(record_of, consume(gateway.bootstrap, topic, 1))
    assert (record.value, record.key, record.headers) == (b"", None, ())
    assert record.timestamp_ms is not None
    assert before <= record.timestamp_ms <= after


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("batched", [True, False], ids=["batched", "single"])
def test_native_compression(
    pulsar: PulsarStandalone, gateway: GatewayProcess, topic: str, compression: str, batched: bool
) -> None:
    options = {"batching_enabled": batched, "batching_max_messages": 30, "compression_type": COMPRESSIONS[compression]}
    with producer(pulsar, pulsar_name(topic), **options) as writer:
        for number in range(100):
            writer.send_async(b"%d " % number * 50, None, partition_key=f"{number}", properties={"n": f"{number}"})
        writer.flush()
    read = consume(gateway.bootstrap, topic, 100)
    assert offsets_of(read) == [*range(100)]
    assert [message.value() for message in read] == [b"%d " % number * 50 for number in range(100)]
    assert [message.key() for message in read] == [b"%d" % number for number in range(100)]
    assert [message.headers() for message in read] == [[("n", b"%d" % number)] for number in range(100)]
    assert watermarks(gateway.bootstrap, topic) == (0, 100)


def test_reading_starts_within_a_native_batch(pulsar: PulsarStandalone, gateway: GatewayProcess, topic: str) -> None:
    with producer(pulsar, pulsar_name(topic), batching_enabled=True, batching_max_publish_delay_ms=1000) as writer:
        for number in range(50):
            writer.send_async(b"%d" % number, None)
        writer.flush()
    with assigned(gateway.bootstrap, topic, offset=37) as consumer:
        assert [(message.offset(), message.value()) for message in take(consumer, 2)] == [(37, b"37"), (38, b"38")]


def test_producers_take_turns(pulsar: PulsarStandalone, gateway: GatewayProcess, topic: str) -> None:
    expected: list[bytes] = []
    with producer(pulsar, pulsar_name(topic), batching_enabled=True, batching_max_messages=7) as writer:
        for turn in range(10):
            ours = [b"kafka %d %d" % (turn, number) for number in range(5)]
            offsets = produce(gateway.bootstrap, topic, [Record(value) for value in ours])
            assert offsets == [*range(len(expected), len(expected) + 5)]
            theirs = [b"native %d %d" % (turn, number) for number in range(20)]
            for value in theirs:
                writer.send_async(value, None)
            writer.flush()
            expected += ours + theirs
    read = consume(gateway.bootstrap, topic, len(expected))
    assert [message.value() for message in read] == expected
    assert offsets_of(read) == [*range(len(expected))]


def test_producers_write_at_once(pulsar: PulsarStandalone, gateway: GatewayProcess, topic: str) -> None:
    """Whatever the order of the entries, a Produce response has the offset at which the record is read."""
    ours = [b"kafka %d" % number for number in range(2_000)]
    theirs = [b"native %d" % number for number in range(2_000)]

    def write_natively() -> None:
        options = {"batching_enabled": True, "batching_max_messages": 11, "block_if_queue_full": True}
        with producer(pulsar, pulsar_name(topic), **options) as writer:
            for value in theirs:
                writer.send_async(value, None)
            writer.flush()

    thread = threading.Thread(target=write_natively)
    thread.start()
    offsets = produce(gateway.bootstrap, topic, [Record(value) for value in ours], batch_num_messages=10)
    thread.join(TIMEOUT_S)
    read = consume(gateway.bootstrap, topic, 4_000)
    assert offsets_of(read) == [*range(4_000)]
    values = [message.value() for message in read]
    assert [values[offset] for offset in offsets] == ours
    assert [value for value in values if value is not None and value.startswith(b"native")] == theirs
    assert watermarks(gateway.bootstrap, topic) == (0, 4_000)


@pytest.mark.parametrize("last_writer", ["nobody", "kafka", "native"])
def test_native_messages_wake_a_waiting_consumer(
    pulsar: PulsarStandalone, gateway: GatewayProcess, topic: str, last_writer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    latencies_ms: list[float] = []
    with producer(pulsar, pulsar_name(topic)) as writer:
        start = 0
        if last_writer == "kafka":
            start = produce(gateway.bootstrap, topic, [Record(b"before")])[-1] + 1
        elif last_writer == "native":
            writer.send(b"before")
            start = 1
        with assigned(gateway.bootstrap, topic, offset=start, fetch_wait_max_ms=FETCH_WAIT_MS) as consumer:
            assert consumer.poll(1.0) is None
            for number in range(20):
                sent_at = time.monotonic()
                writer.send(b"%d" % number)
                [message] = take(consumer, 1)
                latencies_ms.append((time.monotonic() - sent_at) * 1000)
                assert (message.offset(), message.value()) == (start + number, b"%d" % number)
    with capsys.disabled():
        print(
            f"\nnative to Kafka, last writer {last_writer}: "
            f"median {median(latencies_ms):.1f} ms, most {max(latencies_ms):.1f} ms"
        )
    assert max(latencies_ms) < PROMPT_S * 1000


@pytest.mark.parametrize("partitions", [0, 3])
def test_a_topic_made_in_pulsar_is_a_kafka_topic(
    pulsar: PulsarStandalone, gateway: GatewayProcess, admin: Admin, partitions: int
) -> None:
    topic = unique_topic("made-in-pulsar")
    if partitions:
        admin.create_partitioned(topic, partitions)
    else:
        admin.create(topic)
    count = max(1, partitions)
    assert wait_for(lambda: listed(gateway).get(topic), "the topic is listed") == count
    assert not any(name.startswith(f"{topic}-") for name in listed(gateway))
    for partition in range(count):
        name = pulsar_name(topic, partition) if partitions else topic
        with producer(pulsar, name) as writer:
            writer.send(b"native")
        assert produce(gateway.bootstrap, topic, [Record(b"kafka")], partition=partition) == [1]
        read = consume(gateway.bootstrap, topic, 2, partition=partition)
        assert [message.value() for message in read] == [b"native", b"kafka"]


def test_a_topic_made_by_kafka_is_a_pulsar_topic(gateway: GatewayProcess, admin: Admin) -> None:
    topic = unique_topic("made-by-kafka")
    create_topic(gateway.bootstrap, topic, 3, {"retention.ms": "7200000", "retention.bytes": "10485760"})
    assert full_name(topic) in admin.call("GET", f"persistent/{NAMESPACE}/partitioned")
    metadata = admin.topic("GET", topic, "/partitions")
    assert metadata["partitions"] == 3
    properties = metadata["properties"]
    assert properties["kafka.config.retention.ms"] == "7200000"
    assert len(properties["kafka.topic.id"]) == 36
    retention = wait_for(lambda: admin.topic("GET", topic, "/retention"), "the topic has its retention policy")
    assert retention == {"retentionTimeInMinutes": 120, "retentionSizeInMB": 10}
    produce(gateway.bootstrap, topic, [Record(b"x")] * 7, partition=2)
    assert admin.topic("GET", pulsar_name(topic, 2), "/stats")["msgInCounter"] == 7


def test_a_topic_deleted_by_kafka_is_gone_from_pulsar(gateway: GatewayProcess, admin: Admin, topic: str) -> None:
    produce(gateway.bootstrap, topic, [Record(b"x")])
    client = AdminClient({"bootstrap.servers": gateway.bootstrap})
    client.delete_topics([topic])[topic].result(TIMEOUT_S)
    assert full_name(topic) not in admin.call("GET", f"persistent/{NAMESPACE}/partitioned")
    assert full_name(pulsar_name(topic)) not in admin.call("GET", f"persistent/{NAMESPACE}")
    assert topic not in listed(gateway)


def test_a_topic_deleted_in_pulsar_is_gone_from_kafka(gateway: GatewayProcess, admin: Admin, topic: str) -> None:
    produce(gateway.bootstrap, topic, [Record(b"x")])
    admin.topic("DELETE", topic, "/partitions?force=true")
    wait_for(lambda: topic not in listed(gateway), "the topic is no longer listed")


def test_partitions_added_in_pulsar_are_seen_by_kafka(gateway: GatewayProcess, admin: Admin, topic: str) -> None:
    admin.topic("POST", topic, "/partitions", 3)
    wait_for(lambda: listed(gateway)[topic] == 3, "the new partitions are listed")
    assert produce(gateway.bootstrap, topic, [Record(b"x")], partition=2) == [0]


def test_a_name_with_pulsars_partition_suffix(pulsar: PulsarStandalone, gateway: GatewayProcess) -> None:
    """It is a topic of its own, not a partition of the topic whose name precedes the suffix."""
    base = unique_topic("suffix")
    topic = f"{base}-partition-1"
    create_topic(gateway.bootstrap, base, 2)
    create_topic(gateway.bootstrap, topic, 2)
    names = {name: count for name, count in listed(gateway).items() if name.startswith(base)}
    assert names == {base: 2, topic: 2}
    produce(gateway.bootstrap, base, [Record(b"base")], partition=1)
    produce(gateway.bootstrap, topic, [Record(b"kafka")], partition=1)
    with producer(pulsar, f"{base}~partition-1-partition-1") as writer:
        writer.send(b"native")
    assert [message.value() for message in consume(gateway.bootstrap, base, 1, partition=1)] == [b"base"]
    assert [message.value() for message in consume(gateway.bootstrap, topic, 2, partition=1)] == [b"kafka", b"native"]
    assert watermarks(gateway.bootstrap, base, 1) == (0, 1)
