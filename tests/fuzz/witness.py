"""A correct client that notices when others disturb it: it writes, and reads as a group's member."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any, Self

from confluent_kafka import Consumer, Producer

from tests.integration.confluent import TIMEOUT_S, create_topic
from tests.support.names import unique_topic

PAUSE_S = 0.01
STATISTICS_MS = 500


class Witness:
    """Runs in the context; then `errors` has the problems, and no record may be missing."""

    def __init__(self, bootstrap: str) -> None:
        self.errors: list[str] = []
        self.written = 0
        self.read: list[int] = []
        self.assignments = 0
        self._connections: dict[tuple[str, str], int] = {}
        self._topic = unique_topic("witness")
        self._leaving = threading.Event()
        self._all_written = threading.Event()
        """`written` is final."""
        create_topic(bootstrap, self._topic)
        common: dict[str, Any] = {
            "bootstrap.servers": bootstrap, "statistics.interval.ms": STATISTICS_MS,
            "error_cb": lambda error: self.errors.append(str(error)),
        }  # fmt: skip
        self._producer = Producer({**common, "linger.ms": 0, "stats_cb": self._noting("producer")})
        group = {"group.id": unique_topic("witness"), "auto.offset.reset": "earliest", "heartbeat.interval.ms": 300}
        self._consumer = Consumer({**common, **group, "stats_cb": self._noting("consumer")})
        self._threads = [threading.Thread(target=each) for each in (self._write, self._read)]

    def __enter__(self) -> Self:
        self._consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *reason: object) -> None:
        """Everything that was written is read."""
        self._leaving.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)
        self._consumer.close()
        del self._producer  # its callbacks refer to this object: it would live on, and reconnect

    @property
    def reconnects(self) -> int:
        """Reconnections to brokers with known ids."""
        return sum(count for (_, broker), count in self._connections.items() if "bootstrap" not in broker)

    def check(self) -> None:
        """It was not disturbed, and has read what it wrote, in order."""
        assert self.errors == []
        assert self.reconnects == 0
        assert self.assignments == 1
        wrong = next((place for place, value in enumerate(self.read) if value != place), None)
        assert wrong is None, f"in a wrong order: {self.read[max(0, wrong - 5) : wrong + 20]}"
        assert len(self.read) == self.written

    def await_reading(self) -> None:
        self._wait(lambda: len(self.read) > 0)

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(PAUSE_S)

    def _write(self) -> None:
        while not self._leaving.wait(PAUSE_S):
            self._producer.produce(self._topic, str(self.written), on_delivery=self._delivered)
            self.written += 1
            self._producer.poll(0)
        self._all_written.set()
        if self._producer.flush(TIMEOUT_S):
            self.errors.append("not everything was acknowledged")

    def _read(self) -> None:
        deadline: float | None = None
        while not self._all_written.is_set() or len(self.read) < self.written:
            message = self._consumer.poll(0.1)
            if message is not None:
                value = message.value()
                if message.error() is not None or value is None:
                    self.errors.append(f"read: {message.error()}")
                else:
                    self.read.append(int(value))
            if self._leaving.is_set():
                deadline = deadline or time.monotonic() + TIMEOUT_S
                if time.monotonic() > deadline:
                    self.errors.append("not everything was read")
                    return

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self.errors.append(f"write: {error}")

    def _assigned(self, *_: object) -> None:
        self.assignments += 1

    def _revoked(self, *_: object) -> None:
        if not self._leaving.is_set():
            self.errors.append("partitions were taken away")

    def _noting(self, who: str) -> Callable[[str], None]:
        def note(statistics: str) -> None:
            for name, broker in json.loads(statistics)["brokers"].items():
                self._connections[who, name] = broker["disconnects"]

        return note
