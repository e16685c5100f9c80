"""Members of a group that read and commit all the time, and whether they skipped anything.

librdkafka in threads of this process: a trial kills servers, not clients.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.traffic.transactional_traffic import IMPATIENT, Client, is_record, stop_all

MOST_RECORDS = 500
POLL_S = 0.2
LOOKUP_TIMEOUT_S = 30.0
CLASSIC = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
CONSUMER = {"group.protocol": "consumer"}
PROTOCOLS: Mapping[str, Mapping[str, Any]] = {"classic": CLASSIC, "consumer": CONSUMER}


class Member(Client):
    def __init__(self, bootstrap: str, group: str, topic: str, protocol: str) -> None:
        super().__init__(group)
        self.read: dict[int, dict[int, bytes]] = defaultdict(dict)
        """Values by partition and offset."""
        self._topic = topic
        self._config = {
            **IMPATIENT,
            **PROTOCOLS[protocol],
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }

    @property
    def count(self) -> int:
        return sum(map(len, self.read.values()))

    def go_on(self) -> None:
        consumer = Consumer(self._config)
        try:
            consumer.subscribe([self._topic])
            while not self.stopping.is_set():
                self._take(consumer)
        finally:
            consumer.close()

    def _take(self, consumer: Consumer) -> None:
        """A commit may fail while its coordinator moves: the records are then committed with later ones, or read
        again."""
        found = [each for each in consumer.consume(MOST_RECORDS, POLL_S) if is_record(each)]
        for each in found:
            self.read[each.partition() or 0][each.offset() or 0] = each.value() or b""
        if found:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                assert not error.args[0].fatal(), error


class GroupTraffic:
    """The members of one group, which run from `__enter__` to `__exit__`. They use the addresses in turn."""

    def __init__(self, bootstraps: Sequence[str], topic: str, protocol: str) -> None:
        self.group = f"{topic}-{protocol}"
        self._topic = topic
        self._members = [Member(each, self.group, topic, protocol) for each in bootstraps]

    def __enter__(self) -> GroupTraffic:
        for each in self._members:
            each.start()
        return self

    def __exit__(self, *reason: object) -> None:
        stop_all(self._members)

    @property
    def count(self) -> int:
        """The records that were read so far."""
        return sum(each.count for each in self._members)

    def check(self, bootstrap: str, logs: Sequence[Sequence[bytes]]) -> None:
        """Each record below the committed offset was read as it is in the log. `logs` has the values of all partitions.
        Raises AssertionError."""
        for partition, committed in enumerate(self._committed(bootstrap, len(logs))):
            assert committed > 0, f"{self.group} has committed nothing of partition {partition}"
            read: dict[int, bytes] = {}
            for each in self._members:
                read |= each.read[partition]
            skipped = [offset for offset in range(committed) if offset not in read]
            assert not skipped, f"{self.group} has skipped {skipped[:5]} of partition {partition}"
            assert all(logs[partition][offset] == value for offset, value in read.items())

    def _committed(self, bootstrap: str, partitions: int) -> list[int]:
        asking = Consumer({**IMPATIENT, "bootstrap.servers": bootstrap, "group.id": self.group})
        try:
            rows = asking.committed([TopicPartition(self._topic, each) for each in range(partitions)], LOOKUP_TIMEOUT_S)
        finally:
            asking.close()
        assert not [row.error for row in rows if row.error]
        return [row.offset for row in rows]
