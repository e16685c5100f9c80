"""confluent-kafka (librdkafka) for the tests: by topic and partition, with a timeout for every wait."""

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.traffic.history import Write

TIMEOUT_S = 60.0
"""Much more than any operation needs on an idle machine: one that takes longer has failed."""
WITHOUT_LEADER = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
WITHOUT_COORDINATOR = (
    KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)  # fmt: skip


@dataclass(frozen=True)
class Record:
    """A record that a client writes and reads back."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    """None: the producer uses the current time."""


def create_topic(bootstrap: str, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config or {})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([new])[topic].result(TIMEOUT_S)


def delete_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)


def list_topics(bootstrap: str, topic: str) -> Any:
    """Metadata of the cluster and this topic."""
    return AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, TIMEOUT_S)


def delete_records(bootstrap: str, topic: str, before: int) -> None:
    """Delete the records of partition 0 before an offset."""
    wanted = TopicPartition(topic, 0, before)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_records([wanted])[wanted].result(TIMEOUT_S)


class Sender:
    """A producer that records the result of each value. Each value is sent once, to one partition.

    Options are librdkafka's, named with underscores.
    """

    def __init__(self, bootstrap: str, topic: str, *, partition: int = 0, **config: Any) -> None:
        self.sent: list[bytes] = []
        self.offsets: dict[bytes, int] = {}
        """Offsets of acknowledged values."""
        self.unplaced: set[bytes] = set()
        """Values that were acknowledged without an offset: for an idempotent producer, librdkafka takes the response to
        a later batch as the response to all earlier ones."""
        self.errors: list[KafkaError] = []
        self._topic = topic
        self._partition = partition
        options = {"bootstrap.servers": bootstrap, "linger.ms": 5, **_dotted(config)}
        self._idempotent = bool(options.get("enable.idempotence"))
        self._producer = Producer(options)

    def send(self, values: Iterable[bytes]) -> None:
        """Pass values to librdkafka, which sends them in its own threads."""
        for value in values:
            self.sent.append(value)
            self._producer.produce(self._topic, value, partition=self._partition, on_delivery=self._delivered)
            self._producer.poll(0)

    @property
    def writes(self) -> list[Write]:
        """The acknowledged values."""
        return [
            Write(self._partition, offset, value, f"producer {id(self)}", number)
            for number, value in enumerate(self.sent)
            if (offset := self.offsets.get(value)) is not None
        ]

    def check_offsets(self, log: Sequence[bytes]) -> None:
        """The offset of each acknowledged value is its position in the log."""
        assert self.offsets.keys() | self.unplaced == set(self.sent)
        assert {value: log.index(value) for value in self.offsets} == self.offsets

    @property
    def acknowledged(self) -> int:
        """The number of values that are acknowledged so far."""
        self._producer.poll(0)
        return len(self.offsets) + len(self.unplaced)

    def flush(self, timeout_s: float = TIMEOUT_S) -> None:
        assert self._producer.flush(timeout_s) == 0, f"some records met no fate in {timeout_s:.0f} s"

    def purge(self) -> None:
        """Drop the values that are not acknowledged."""
        self._producer.purge()
        self._producer.flush(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value, offset = message.value(), message.offset()
        if error is not None:
            self.errors.append(error)
            return
        assert value is not None
        assert value not in self.offsets and value not in self.unplaced
        if offset is not None:
            self.offsets[value] = offset
        else:
            assert self._idempotent, value
            self.unplaced.add(value)


def produce(bootstrap: str, topic: str, records: Sequence[Record], *, partition: int = 0, **config: Any) -> list[int]:
    """The offsets of the Produce responses, in the order of the records, -1 for acks=0.

    Options are librdkafka's, named with underscores.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **_dotted(config)})
    offsets = [-1] * len(records)

    def acknowledged(number: int) -> Callable[[Any, Message], None]:
        def on_delivery(error: Any, message: Message) -> None:
            assert error is None, error
            offset = message.offset()
            offsets[number] = -1 if offset is None else offset

        return on_delivery

    for number, record in enumerate(records):
        times: dict[str, Any] = {} if record.timestamp_ms is None else {"timestamp": record.timestamp_ms}
        producer.produce(
            topic, record.value, record.key, partition, on_delivery=acknowledged(number),
            headers=list(record.headers), **times,
        )  # fmt: skip
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0, "some records were not acknowledged in time"
    return offsets


@contextmanager
def assigned(
    bootstrap: str, topic: str, *, partition: int = 0, offset: int = OFFSET_BEGINNING, **config: Any
) -> Iterator[Consumer]:
    """A consumer of one partition, without its group."""
    settings = {"group.id": "none", "enable.auto.commit": False, "auto.offset.reset": "error", **_dotted(config)}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        yield consumer
    finally:
        consumer.close()


def take(consumer: Consumer, count: int, timeout_s: float = TIMEOUT_S) -> list[Message]:
    """The next ``count`` messages."""
    found: list[Message] = []
    deadline = time.monotonic() + timeout_s
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message)
    assert len(found) == count, f"{len(found)} of {count} messages came in {timeout_s:.0f} s"
    return found


def consume(bootstrap: str, topic: str, count: int, **options: Any) -> list[Message]:
    with assigned(bootstrap, topic, **options) as consumer:
        return take(consumer, count)


def watermarks(bootstrap: str, topic: str, partition: int = 0, **config: Any) -> tuple[int, int]:
    """Log start and end offsets, fetched from the broker. The end is the last stable offset, unless `config` has
    read_uncommitted. librdkafka does not retry this while there is no leader."""
    deadline = time.monotonic() + TIMEOUT_S
    with assigned(bootstrap, topic, partition=partition, **config) as consumer:
        while True:
            try:
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].code() not in WITHOUT_LEADER or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return low, high


def read_all(bootstrap: str, topic: str, partition: int = 0) -> list[bytes]:
    """Every value of a log that starts at 0 and has no gaps: a value's position in the list is its offset."""
    low, high = watermarks(bootstrap, topic, partition)
    read = consume(bootstrap, topic, high, partition=partition)
    assert low == 0
    assert offsets_of(read) == [*range(high)]
    return [message.value() or b"" for message in read]


def read_all_values(bootstrap: str, topic: str, partition: int = 0) -> list[tuple[int, bytes]]:
    """Offsets and values of a log that may have gaps, for instance of a replicated topic."""
    found: list[tuple[int, bytes]] = []
    with assigned(bootstrap, topic, partition=partition, enable_partition_eof=True) as consumer:
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            for message in consumer.consume(500, 0.2):
                error = message.error()
                if error is None:
                    found.append((message.offset() or 0, message.value() or b""))
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
                else:
                    raise AssertionError(error)
    raise AssertionError(f"the end was not reached in {TIMEOUT_S:.0f} s")


def committed(bootstrap: str, group: str, topic: str, partitions: int = 1) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    asked = [TopicPartition(topic, number) for number in range(partitions)]
    try:
        return [found.offset for found in _coordinated(lambda: consumer.committed(asked, TIMEOUT_S))]
    finally:
        consumer.close()


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    """Commit as a consumer that is no member."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        _coordinated(lambda: consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False))
    finally:
        consumer.close()


def _coordinated(ask: Callable[[], Any]) -> Any:
    """librdkafka gives up after half a second while the coordinator moves or loads, or at once."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in WITHOUT_COORDINATOR or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def record_of(message: Message) -> Record:
    kind, timestamp_ms = message.timestamp()
    headers = tuple(message.headers() or ())
    return Record(message.value(), message.key(), headers, None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms)  # type: ignore[arg-type]


def offsets_of(messages: Iterable[Message]) -> list[int | None]:
    return [message.offset() for message in messages]


def _dotted(config: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in config.items()}


@contextmanager
def sending(senders: Sequence[Sender], pause_s: float, at_once: int = 1) -> Iterator[None]:
    """Each sends so many numbers, pauses, and goes on until the end of the block."""
    stopping = threading.Event()

    def send() -> None:
        for number in itertools.count(step=at_once):
            for sender in senders:
                sender.send(b"%d" % (number + each) for each in range(at_once))
            if stopping.wait(pause_s):
                return

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
