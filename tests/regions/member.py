"""A consumer group whose members poll and commit in threads, and remember what they have read and in which order."""

from __future__ import annotations

import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

POLL_S = 0.1
WAIT_S = 120.0


class Members:
    """Values by partition, in the order in which they came; offsets never seen with two values."""

    def __init__(self, bootstrap: str, group: str, topic: str, *, count: int = 1, **config: Any) -> None:
        self.values: dict[int, list[bytes]] = {}
        self.by_offset: dict[tuple[int, int], bytes] = {}
        self.committed: dict[int, int] = {}
        """The offset behind the last value whose commit was answered, by partition."""
        self.read = 0
        self._topic = topic
        self._stop = threading.Event()
        self._abandoned = False
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        settings = {
            "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "session.timeout.ms": 6_000, "reconnect.backoff.max.ms": 500, **config,
        }  # fmt: skip
        self._threads = [threading.Thread(target=self._live, args=(settings,), daemon=True) for _ in range(count)]

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
        """Its servers are gone: closing would wait for them."""
        self._abandoned = True
        self._stop.set()

    def await_values(self, distinct: int, timeout_s: float = WAIT_S) -> float:
        """Until so many different records were read; seconds."""
        start = time.monotonic()
        while sum(len(set(values)) for values in self.values.values()) < distinct:
            if self._failure is not None:
                raise self._failure
            assert time.monotonic() - start < timeout_s, f"{self.read} read, {distinct} wanted in {timeout_s:.0f} s"
            time.sleep(POLL_S)
        return time.monotonic() - start

    def await_value(self, value: bytes, timeout_s: float = WAIT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not any(value in values for values in list(self.values.values())):
            assert time.monotonic() < deadline, f"{value!r} was not read in {timeout_s:.0f} s"
            time.sleep(POLL_S)

    def await_quiet(self, quiet_s: float = 3.0) -> None:
        """Until nothing came for a while."""
        seen, since = self.read, time.monotonic()
        while time.monotonic() - since < quiet_s:
            if self.read != seen:
                seen, since = self.read, time.monotonic()
            time.sleep(POLL_S)

    def _live(self, settings: dict[str, Any]) -> None:
        consumer = Consumer(settings)
        consumer.subscribe([self._topic])
        try:
            while not self._stop.is_set():
                self._take(consumer, consumer.consume(500, POLL_S))
        except BaseException as error:
            self._failure = error
        finally:
            consumer.close()

    def _take(self, consumer: Consumer, messages: list[Any]) -> None:
        offsets: dict[int, int] = {}
        for message in messages:
            if message.error() is not None:
                assert message.error().retriable() or message.error().code() < 0, message.error()
                continue
            partition, offset, value = message.partition(), message.offset(), message.value()
            with self._lock:
                assert self.by_offset.setdefault((partition, offset), value) == value, "an offset with two values"
                self.values.setdefault(partition, []).append(value)
                self.read += 1
            offsets[partition] = offset + 1
        if offsets:
            self._commit(consumer, offsets)

    def _commit(self, consumer: Consumer, offsets: dict[int, int]) -> None:
        wanted = [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]
        try:
            consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:  # who owns the partition then reads again
            assert error.args[0].code() != KafkaError.OFFSET_OUT_OF_RANGE
        else:
            self.committed |= offsets
