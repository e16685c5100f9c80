"""Compacted topics on a real Pulsar: its own compaction, and what Kafka clients and native clients then read."""

from pathlib import Path
from typing import Any

import pulsar as native
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import TIMEOUT_S, Record, consume, create_topic, produce, record_of, watermarks
from tests.integration.native import Admin, full_name, wait_for
from tests.integration.servers import gateway_on, running
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic

HEADERS = (("a", b"1"), ("a", b"2"), ("binary", b"\xff\x00"), ("null", None))
COMPACT = {"cleanup.policy": "compact"}

Found = dict[int, tuple[bytes | None, bytes | None]]


@pytest.fixture
def admin(pulsar: PulsarStandalone) -> Admin:
    return Admin(pulsar)


def part(topic: str, partition: int = 0) -> str:
    return f"{topic}-partition-{partition}"


def read_from(gateway: GatewayProcess, topic: str, offset: int) -> Found:
    """Offset → key and value, from ``offset`` to the end of the partition according to the consumer."""
    low, _ = watermarks(gateway.bootstrap, topic)
    assert low == 0, "compaction leaves the log's start where it was"
    settings = {"group.id": "none", "enable.auto.commit": False, "auto.offset.reset": "error"}
    consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "enable.partition.eof": True, **settings})
    found: Found = {}
    try:
        consumer.assign([TopicPartition(topic, 0, offset)])
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"no end of the partition after {sorted(found)}"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            at = message.offset()
            assert at is not None
            found[at] = message.key(), message.value()
    finally:
        consumer.close()


def compact(admin: Admin, topic: str, partition: int = 0) -> None:
    """Wait until the result is in use; the status may still be that of the previous compaction."""

    def compacted_ledger() -> int:
        found: int = admin.topic("GET", name, "/internalStats")["compactedLedger"]["ledgerId"]
        return found

    name = part(topic, partition)
    before = compacted_ledger()
    admin.topic("PUT", name, "/compaction")
    wait_for(lambda: compacted_ledger() != before, "compaction")
    wait_for(lambda: admin.topic("GET", name, "/compaction")["status"] == "SUCCESS", "the end of compaction")


def write(gateway: GatewayProcess, topic: str, *pairs: tuple[bytes, bytes | None], **config: Any) -> list[int]:
    return produce(gateway.bootstrap, topic, [Record(value, key) for key, value in pairs], **config)


def test_compaction(pulsar: PulsarStandalone, tmp_path: Path) -> None:
    """In a namespace with one gateway: another gateway would show the removed records for a while."""
    topic, admin = unique_topic("compacted"), Admin(pulsar, "kafka/compacted")
    with running(gateway_on(pulsar, tmp_path, pulsar={"namespace": "compacted"})) as gateway:
        create_topic(gateway.bootstrap, topic, config=COMPACT)
        pairs = [(b"key %d" % (number % 3), b"value %d" % number) for number in range(10)]
        assert write(gateway, topic, *pairs, compression_type="lz4") == [*range(10)]
        assert write(gateway, topic, (b"\xff\xfe", b"binary"), (b"", b"no key"), (b"empty", b"")) == [10, 11, 12]
        assert write(gateway, topic, (b"key 1", None)) == [13]
        assert len(read_from(gateway, topic, 0)) == 14

        compact(admin, topic)
        left: Found = {
            8: (b"key 2", b"value 8"),
            9: (b"key 0", b"value 9"),
            10: (b"\xff\xfe", b"binary"),
            11: (b"", b"no key"),
            12: (b"empty", b""),
        }
        wait_for(lambda: read_from(gateway, topic, 0) == left, "the gateway forgets what is compacted away")
        assert read_from(gateway, topic, 10) == {at: pair for at, pair in left.items() if at >= 10}
        assert write(gateway, topic, (b"key 0", b"newer")) == [14]
        left |= {14: (b"key 0", b"newer")}
        assert read_from(gateway, topic, 0) == left

        assert write(gateway, topic, (b"key 0", None), (b"key 2", None)) == [15, 16]
        compact(admin, topic)
        for gone in (8, 9, 14):
            del left[gone]
        drop_uncompacted(admin, topic)
        gateway.stop()
        gateway.start()
        gateway.wait_ready()
        assert watermarks(gateway.bootstrap, topic) == (0, 17)
        wait_for(lambda: read_from(gateway, topic, 0) == left, "the view after the second compaction")
        assert read_from(gateway, topic, 13) == {}
        assert write(gateway, topic, (b"key 2", b"again")) == [17]
        assert read_from(gateway, topic, 0) == left | {17: (b"key 2", b"again")}


def test_compressed_batches_with_ordinary_keys(pulsar: PulsarStandalone, tmp_path: Path) -> None:
    """Pulsar's compaction fails with compressed messages, for ever, where a key is not where it expects one."""
    topic, namespace, keys = unique_topic("compacted"), unique_topic("compacted"), 1_000
    with running(gateway_on(pulsar, tmp_path, pulsar={"namespace": namespace})) as gateway:
        create_topic(gateway.bootstrap, topic, config=COMPACT)
        for count in range(10, 110):
            pairs = [(b"a key of usual length %d" % (count * each % keys), b"value") for each in range(count)]
            write(gateway, topic, *pairs, compression_type="gzip")
        written = read_from(gateway, topic, 0)
        compact(Admin(pulsar, f"kafka/{namespace}"), topic)
        left = {key: offset for offset, (key, _) in written.items()}
        assert read_from(gateway, topic, 0).items() >= {offset: (key, b"value") for key, offset in left.items()}.items()


def drop_uncompacted(admin: Admin, topic: str) -> None:
    """Like retention: only the compacted records remain."""
    admin.unload(part(topic))
    wait_for(lambda: len(admin.ledgers(part(topic))) > 1, "the topic is loaded again, with a new ledger")
    admin.truncate(part(topic))
    wait_for(lambda: [ledger["entries"] for ledger in admin.ledgers(part(topic))] == [0], "only that one is left")


def test_records_without_a_key_are_refused(gateway: GatewayProcess) -> None:
    topic = unique_topic("keyless")
    create_topic(gateway.bootstrap, topic, config=COMPACT)
    with pytest.raises(AssertionError, match="INVALID_RECORD"):
        produce(gateway.bootstrap, topic, [Record(b"value")])


def test_messages_for_native_consumers(pulsar: PulsarStandalone, gateway: GatewayProcess) -> None:
    """``entry.format=pulsar``: a message for each record, and Kafka clients read all that Kafka clients wrote."""
    topic = unique_topic("messages")
    create_topic(gateway.bootstrap, topic, config={"entry.format": "pulsar"})
    records = [Record(b"value %d" % number, b"key %d" % number, HEADERS, 1_000 + number) for number in range(5)]
    records += [Record(None, None, (), 7_000), Record(b"", b"", (), 1)]
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        produce(gateway.bootstrap, topic, records, compression_type=codec, enable_idempotence=True)
    read = consume(gateway.bootstrap, topic, 5 * len(records))
    assert [record_of(message) for message in read] == 5 * records

    client = native.Client(pulsar.service_url, logger=native.ConsoleLogger(native.LoggerLevel.Error))
    try:
        reader = client.create_reader(full_name(part(topic)), native.MessageId.earliest)
        messages = [reader.read_next(int(TIMEOUT_S * 1000)) for _ in range(5 * len(records))]
        for message, record in zip(messages, 5 * records, strict=True):
            assert message.data() == (record.value or b"")
            assert message.event_timestamp() == record.timestamp_ms
            assert message.partition_key() == (record.key or b"").decode()
        assert messages[0].properties()["binary"] == "/wA="
    finally:
        client.close()


def test_a_topic_with_record_batches_does_not_become_compacted(gateway: GatewayProcess, admin: Admin) -> None:
    """Pulsar cannot compact existing record batches, so the change is refused: they would stay for ever."""
    topic = unique_topic("late")
    create_topic(gateway.bootstrap, topic, config={"retention.ms": "60000"})
    for policy in ("compact", "delete"):
        alter(gateway, topic, "cleanup.policy", policy)
    assert write(gateway, topic, (b"key", b"old")) == [0]
    for policy in ("compact", "compact,delete"):
        with pytest.raises(KafkaException, match="Pulsar cannot compact them"):
            alter(gateway, topic, "cleanup.policy", policy)
    assert not admin.topic("GET", topic, "/compactionThreshold")
    alter(gateway, topic, "retention.ms", "120000")
    assert write(gateway, topic, (b"key", b"new")) == [1]


def test_compacted_topics_hold_messages(gateway: GatewayProcess) -> None:
    topic = unique_topic("compacted")
    create_topic(gateway.bootstrap, topic, config=COMPACT)
    with pytest.raises(KafkaException, match=r"entry\.format"):
        alter(gateway, topic, "entry.format", "kafka")


def alter(gateway: GatewayProcess, topic: str, name: str, value: str) -> None:
    change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
    client = AdminClient({"bootstrap.servers": gateway.bootstrap})
    client.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
