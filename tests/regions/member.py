"""A consumer group whose members poll and commit in threads, and record what they read, in order."""

from __future__ import annotations

import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.support.traffic.history import Commit, Read

POLL_S = 0.1
WAIT_S = 120.0
SHOWN = 5
COORDINATOR_MOVES = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR
)  # fmt: skip
"""Errors that librdkafka reports when it cannot fetch committed offsets; it retries."""


class Members:
    """The records that the members read, in order."""

    def __init__(self, bootstrap: str, group: str, topic: str, *, count: int = 1, **config: Any) -> None:
        self.reads: list[Read] = []
        self.commits: list[Commit] = []
        """Answered commits."""
        self._values: set[bytes] = set()
        self._topic = topic
        self._stop = threading.Event()
        self._abandoned = False
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        defaults = {
            "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "session.timeout.ms": 6_000, "reconnect.backoff.max.ms": 500,
        }  # fmt: skip
        settings = {name: value for name, value in {**defaults, **config}.items() if value is not None}
        self._threads = [
            threading.Thread(target=self._live, args=(f"member {number}", settings), daemon=True)
            for number in range(count)
        ]

    def __enter__(self) -> Members:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(0 if self._abandoned else WAIT_S)
        if self._failure is not None:
            raise self._failure

    def abandon(self) -> None:
        """Leave without closing: closing would wait for servers that are dead."""
        self._abandoned = True
        self._stop.set()

    @property
    def read(self) -> int:
        return len(self.reads)

    @property
    def values(self) -> set[bytes]:
        with self._lock:
            return {*self._values}

    @property
    def committed_values(self) -> set[bytes]:
        ends = {commit.partition: commit.offset for commit in sorted(self.commits)}
        return {read.value for read in [*self.reads] if read.offset < ends.get(read.partition, 0)}

    def await_values(self, wanted: set[bytes], timeout_s: float = WAIT_S) -> float:
        """Wait until all these values were read. Returns the seconds."""
        start = time.monotonic()
        while missing := wanted - self.values:
            if self._failure is not None:
                raise self._failure
            took_s = time.monotonic() - start
            unread = f"{len(missing)} of {len(wanted)} were not read in {timeout_s:.0f} s: {sorted(missing)[:SHOWN]}"
            assert took_s < timeout_s, unread
            time.sleep(POLL_S)
        return time.monotonic() - start

    def await_any(self, timeout_s: float = WAIT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not self.reads:
            assert time.monotonic() < deadline, f"nothing was read in {timeout_s:.0f} s"
            time.sleep(POLL_S)

    def await_commits(self, partitions: int, timeout_s: float = WAIT_S) -> None:
        """Wait until every partition has a committed offset, so that no start position depends on a default."""
        deadline = time.monotonic() + timeout_s
        while len({commit.partition for commit in self.commits.copy()}) < partitions:
            assert time.monotonic() < deadline, f"nothing was committed of some partition in {timeout_s:.0f} s"
            time.sleep(POLL_S)

    def await_quiet(self, quiet_s: float = 3.0) -> None:
        """Wait until no record has arrived for this time."""
        seen, since = self.read, time.monotonic()
        while time.monotonic() - since < quiet_s:
            if self.read != seen:
                seen, since = self.read, time.monotonic()
            time.sleep(POLL_S)

    def _live(self, name: str, settings: dict[str, Any]) -> None:
        member = _Member(name)
        consumer = Consumer(settings)
        consumer.subscribe([self._topic], on_assign=member.assigned)
        try:
            while not self._stop.is_set():
                self._take(member, consumer, consumer.consume(500, POLL_S))
        except BaseException as error:
            self._failure = error
        finally:
            consumer.close()

    def _take(self, member: _Member, consumer: Consumer, messages: list[Any]) -> None:
        offsets: dict[int, int] = {}
        for message in messages:
            if message.error() is not None:
                error = message.error()
                assert error.retriable() or error.code() < 0 or error.code() in COORDINATOR_MOVES, error
                continue
            partition, offset, value = message.partition(), message.offset(), message.value()
            with self._lock:
                self.reads.append(Read(member.name, member.stint, partition, offset, value, member.since))
                self._values.add(value)
            offsets[partition] = offset + 1
        if offsets:
            self._commit(consumer, offsets)

    def _commit(self, consumer: Consumer, offsets: dict[int, int]) -> None:
        wanted = [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]
        asked = time.monotonic()
        try:
            consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:  # the next owner of the partition reads the records again
            assert error.args[0].code() != KafkaError.OFFSET_OUT_OF_RANGE
        else:
            answered = time.monotonic()
            self.commits += [Commit(partition, offset, asked, answered) for partition, offset in offsets.items()]


class _Member:
    def __init__(self, name: str) -> None:
        self.name = name
        self.stint = 0
        self.since = 0.0
        """The time of the latest assignment."""

    def assigned(self, _consumer: object, _partitions: object) -> None:
        self.stint += 1
        self.since = time.monotonic()
