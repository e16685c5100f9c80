"""kafka-python's producer, consumer and admin client; the same against Apache Kafka."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.errors import MessageSizeTooLargeError

from tests.integration.native import wait_for
from tests.support.names import unique_topic

CODECS = (None, "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 60
POLL_MS = 500
POLLS = 120
START_MS = 1_700_000_000_000
HEADERS = [("trace", b"7"), ("empty", b"")]


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = unique_topic("kafka-python")
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        admin.create_topics([NewTopic(name, 2, 1)])
    return name


def write(bootstrap: str, topic: str, count: int, **config: Any) -> list[int]:
    """Write records to partition 0, some without a key, others without a value. Returns their offsets."""
    with closing(KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, **config)) as producer:
        sent = [
            producer.send(
                topic,
                value=None if number % 5 == 1 else b"value %d" % number,
                key=None if number % 5 == 2 else b"key %d" % number,
                headers=HEADERS,
                partition=0,
                timestamp_ms=START_MS + number,
            )
            for number in range(count)
        ]
        producer.flush(TIMEOUT_S)
        return [future.get(TIMEOUT_S).offset for future in sent]


@contextmanager
def assigned(bootstrap: str, topic: str, **config: Any) -> Iterator[Any]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="none", **config)
    with closing(consumer):
        consumer.assign([TopicPartition(topic, 0)])
        yield consumer


def take(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(POLLS):
        for records in consumer.poll(POLL_MS, max_records=count - len(found)).values():
            found += records
        if len(found) >= count:
            break
    assert len(found) == count
    return found


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_records_come_back_whole(bootstrap: str, topic: str, codec: str | None, idempotent: bool) -> None:
    assert write(bootstrap, topic, 60, compression_type=codec, enable_idempotence=idempotent) == [*range(60)]
    with assigned(bootstrap, topic) as consumer:
        consumer.seek_to_beginning()
        read = take(consumer, 60)
    assert [record.offset for record in read] == [*range(60)]
    assert [record.value for record in read] == [None if n % 5 == 1 else b"value %d" % n for n in range(60)]
    assert [record.key for record in read] == [None if n % 5 == 2 else b"key %d" % n for n in range(60)]
    assert [record.timestamp for record in read] == [START_MS + number for number in range(60)]
    assert all([*map(tuple, record.headers)] == HEADERS for record in read)


def test_positions_and_times(bootstrap: str, topic: str) -> None:
    write(bootstrap, topic, 60)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with assigned(bootstrap, topic) as consumer:
        assert consumer.beginning_offsets([first, second]) == {first: 0, second: 0}
        assert consumer.end_offsets([first, second]) == {first: 60, second: 0}
        found = consumer.offsets_for_times({first: START_MS + 20, second: START_MS})
        assert (found[first].offset, found[first].timestamp, found[second]) == (20, START_MS + 20, None)
        consumer.seek(first, 41)
        assert [record.offset for record in take(consumer, 2)] == [41, 42]
        consumer.seek(first, 3)
        assert [record.offset for record in take(consumer, 2)] == [3, 4]


def test_a_consumer_at_the_end_gets_what_comes(bootstrap: str, topic: str) -> None:
    write(bootstrap, topic, 10)
    with assigned(bootstrap, topic) as consumer:
        consumer.seek_to_end()
        assert consumer.position(TopicPartition(topic, 0)) == 10
        assert write(bootstrap, topic, 5) == [*range(10, 15)]
        assert [record.offset for record in take(consumer, 5)] == [*range(10, 15)]


def test_topics_are_administered(bootstrap: str, topic: str) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        # Kafka's brokers apply changes of the controller a moment later.
        wait_for(lambda: topic in admin.list_topics(), "the topic is listed")
        admin.create_partitions({topic: NewPartitions(5)})
        wait_for(lambda: len(admin.describe_topics([topic])[0]["partitions"]) == 5, "five partitions are described")
        admin.delete_topics([topic])
        wait_for(lambda: topic not in admin.list_topics(), "the topic is not listed any more")


def test_topics_are_configured(bootstrap: str, topic: str) -> None:
    def modified() -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        found = admin.describe_configs([resource])["topic"][topic]
        return {name: config["value"] for name, config in found.items()}

    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        changes = {"retention.ms": "7000", "cleanup.policy": (AlterConfigOp.APPEND, "compact")}
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, changes)])
        expected = {"retention.ms": "7000", "cleanup.policy": "delete,compact"}
        deadline = time.monotonic() + TIMEOUT_S
        while modified() != expected:  # Kafka's broker applies changes of the controller later
            assert time.monotonic() < deadline, modified()
        bad = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "soon"})
        assert "Invalid value soon for configuration retention.ms" in str(admin.alter_configs([bad]))
        assert modified() == expected


def test_a_message_above_the_limit_is_refused(bootstrap: str, topic: str) -> None:
    # An idempotent producer cannot be used after such an error.
    settings = {"max_request_size": 4_000_000, "enable_idempotence": False}
    with closing(KafkaProducer(bootstrap_servers=bootstrap, **settings)) as producer:
        with pytest.raises(MessageSizeTooLargeError):
            producer.send(topic, b"x" * 2_000_000, partition=0).get(TIMEOUT_S)
        assert producer.send(topic, b"small", partition=0).get(TIMEOUT_S).offset == 0
