"""librdkafka's clients, kcat and confluent-kafka, produce and consume; the same against Apache Kafka."""

import random
import subprocess

import pytest
from confluent_kafka import OFFSET_END, KafkaError, Message, Producer, TopicPartition

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
from tests.integration.transactional import Transactions
from tests.support.names import unique_topic

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
START_MS = 1_700_000_000_000
ALMOST_1_GIB = 1_000_000_000

RECORDS = [
    Record(
        value=None if number % 7 == 3 else b"value %d " % number * 10,
        key=None if number % 3 == 0 else b"key %d" % number,
        headers=(("trace", b"%d" % number), ("empty", b""), ("null", None), ("trace", b"again")),
        timestamp_ms=START_MS + number * 1000,
    )
    for number in range(50)
]


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = unique_topic("librdkafka")
    create_topic(bootstrap, name)
    return name


def kcat(bootstrap: str, *arguments: str, stdin: str = "") -> str:
    command = ["kcat", "-b", bootstrap, "-X", "topic.auto.offset.reset=error", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_reads_what_it_wrote(bootstrap: str, topic: str, codec: str) -> None:
    lines = "".join(f"key{number}:{'value' * 20} {number}\n" for number in range(100))
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", "-z", codec, "-K", ":", "-H", "from=kcat", stdin=lines)
    read = kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-f", r"%o %k %s %h\n")
    assert read.splitlines() == [f"{number} key{number} {'value' * 20} {number} from=kcat" for number in range(100)]


def test_kcat_lists_topics_and_offsets(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, RECORDS)
    assert f'topic "{topic}" with 1 partitions' in kcat(bootstrap, "-L", "-t", topic)
    assert kcat(bootstrap, "-Q", "-t", f"{topic}:0:-1").split()[-1] == str(len(RECORDS))
    assert kcat(bootstrap, "-Q", "-t", f"{topic}:0:{START_MS + 20_000}").split()[-1] == "20"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_records_come_back_whole(bootstrap: str, topic: str, codec: str, idempotent: bool) -> None:
    offsets = produce(bootstrap, topic, RECORDS, compression_type=codec, enable_idempotence=idempotent)
    assert offsets == [*range(len(RECORDS))]
    read = consume(bootstrap, topic, len(RECORDS))
    assert [record_of(message) for message in read] == RECORDS
    assert offsets_of(read) == offsets
    assert watermarks(bootstrap, topic) == (0, len(RECORDS))


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(bootstrap: str, topic: str, acks: str) -> None:
    produce(bootstrap, topic, RECORDS, acks=acks)
    assert [record_of(message) for message in consume(bootstrap, topic, len(RECORDS))] == RECORDS


def test_offsets_for_times(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, RECORDS, batch_num_messages=10)
    cases = {0: 0, START_MS: 0, START_MS + 1: 1, START_MS + 15_000: 15, START_MS + 49_000: 49}
    with assigned(bootstrap, topic) as consumer:
        for timestamp_ms, offset in cases.items():
            [found] = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], timeout=TIMEOUT_S)
            assert found.offset == offset, timestamp_ms
        [found] = consumer.offsets_for_times([TopicPartition(topic, 0, START_MS + 50_000)], timeout=TIMEOUT_S)
        assert found.offset == OFFSET_END


def test_log_append_time_is_the_brokers(bootstrap: str) -> None:
    topic = unique_topic("librdkafka")
    create_topic(bootstrap, topic, config={"message.timestamp.type": "LogAppendTime"})
    produce(bootstrap, topic, RECORDS)
    stamps = [message.timestamp() for message in consume(bootstrap, topic, len(RECORDS))]
    assert all(kind == 2 and stamp > START_MS + 1_000_000 for kind, stamp in stamps)


def test_seek_within_a_batch_and_back(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, RECORDS, batch_num_messages=20)
    with assigned(bootstrap, topic, offset=33) as consumer:
        assert offsets_of(take(consumer, 3)) == [33, 34, 35]
        consumer.seek(TopicPartition(topic, 0, 7))
        assert offsets_of(take(consumer, 3)) == [7, 8, 9]
        consumer.seek(TopicPartition(topic, 0, 49))
        assert offsets_of(take(consumer, 1)) == [49]


def test_a_position_outside_the_log_is_an_error(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, RECORDS)
    with assigned(bootstrap, topic, offset=len(RECORDS) + 1) as consumer:
        [message] = consumer.consume(1, TIMEOUT_S)
    error = message.error()
    assert error is not None
    assert error.code() in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}


def test_a_consumer_at_the_end_gets_what_comes(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, RECORDS)
    with assigned(bootstrap, topic, offset=len(RECORDS)) as consumer:
        assert consumer.consume(1, 0.5) == []
        for number in range(5):
            produce(bootstrap, topic, [Record(b"later %d" % number)])
            [message] = take(consumer, 1)
            assert (message.offset(), message.value()) == (len(RECORDS) + number, b"later %d" % number)


def test_partitions_are_logs_of_their_own(bootstrap: str) -> None:
    topic = unique_topic("librdkafka")
    create_topic(bootstrap, topic, partitions=3)
    for partition in range(3):
        produce(bootstrap, topic, [Record(b"%d" % partition)] * (partition + 1), partition=partition)
    for partition in range(3):
        assert watermarks(bootstrap, topic, partition) == (0, partition + 1)
        read = consume(bootstrap, topic, partition + 1, partition=partition)
        assert {message.value() for message in read} == {b"%d" % partition}


def test_an_unknown_topic_is_created_on_first_use(bootstrap: str) -> None:
    topic = unique_topic("librdkafka-auto")
    assert produce(bootstrap, topic, RECORDS) == [*range(len(RECORDS))]
    assert len(consume(bootstrap, topic, len(RECORDS))) == len(RECORDS)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_large_messages(bootstrap: str, topic: str, codec: str) -> None:
    values = [random.Random(number).randbytes(900_000) for number in range(12)]
    offsets = produce(bootstrap, topic, [Record(value) for value in values], compression_type=codec)
    assert offsets == [*range(12)]
    # A fetch that is smaller than one message returns it nevertheless.
    read = consume(bootstrap, topic, 12, fetch_message_max_bytes=10_000)
    assert [message.value() for message in read] == values


def test_a_message_above_the_topics_limit_is_refused(bootstrap: str) -> None:
    topic = unique_topic("librdkafka")
    create_topic(bootstrap, topic, config={"max.message.bytes": "100000"})
    outcome: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap})

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        outcome.append(error)

    producer.produce(topic, b"x" * 200_000, on_delivery=on_delivery)
    producer.flush(TIMEOUT_S)
    [error] = outcome
    assert error is not None
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert produce(bootstrap, topic, [Record(b"x" * 50_000)]) == [0]


def test_many_small_batches_on_many_partitions(bootstrap: str) -> None:
    topic = unique_topic("librdkafka")
    create_topic(bootstrap, topic, partitions=4)
    settings = {"linger.ms": 1, "batch.num.messages": 50, "enable.idempotence": True}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for number in range(20_000):
        producer.produce(topic, b"%d" % number, partition=number % 4)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    for partition in range(4):
        read = consume(bootstrap, topic, 5_000, partition=partition)
        assert [message.value() for message in read] == [b"%d" % number for number in range(partition, 20_000, 4)]
        assert offsets_of(read) == [*range(5_000)]


def test_answers_without_a_record_are_no_errors(bootstrap: str) -> None:
    """After each answer in which it finds nothing, it asks for twice as much, and for 1 GiB at last: then it reports a
    message that is too large."""
    topic = unique_topic("librdkafka")
    create_topic(bootstrap, topic, config={"cleanup.policy": "compact"})
    writer = Transactions(bootstrap, unique_topic("writer"))
    with assigned(
        bootstrap, topic, isolation_level="read_committed", max_partition_fetch_bytes=ALMOST_1_GIB
    ) as waiting:
        writer.write(topic, b"first", key=b"key")
        writer.commit()
        assert [message.value() for message in take(waiting, 1)] == [b"first"]
        for _ in range(5):
            writer.write(topic, b"aborted", key=b"key")
            writer.abort()
            assert waiting.poll(0.5) is None
        writer.write(topic, b"last", key=b"key")
        writer.commit()
        assert [message.value() for message in take(waiting, 1)] == [b"last"]
