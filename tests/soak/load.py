"""One round of mixed load: topics of every format, groups whose members change, and the violations that a checker
found.

`python -m tests.soak.load BOOTSTRAP SECONDS` prints them as JSON. It is a process of its own, so that no client
remains.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka.admin import AdminClient

from tests.integration.confluent import committed, create_topic, read_all_values
from tests.regions.lab import Writer, until
from tests.regions.member import Members
from tests.support.gateway_process import REPOSITORY
from tests.support.names import unique_topic
from tests.support.traffic.history import SHOWN, Allowed, History, Lookup, violations

PARTITIONS = 2
PER_SECOND = 20
FLUSH_S = 240.0
"""Pulsar may be down for more than a minute, if the machine is busy."""
UNTIL_FLUSHED: dict[str, Any] = {"message_timeout_ms": int(1000 * FLUSH_S)}
PATIENCE: dict[str, Any] = {"socket.timeout.ms": 10_000, "reconnect.backoff.max.ms": 500}
IN_ORDER: dict[str, Any] = {"max.in.flight.requests.per.connection": 1}
"""Without sequence numbers, a batch that is sent again would be written after its successors."""
IDEMPOTENT: dict[str, Any] = {"enable.idempotence": True}
MESSAGE_SETS: dict[str, Any] = {"api.version.request": False, **IN_ORDER}


@dataclass(frozen=True)
class Kind:
    """A format of a topic, with the settings of its producer."""

    name: str
    producer: dict[str, Any]
    topic: dict[str, str] = field(default_factory=dict)
    consumer: dict[str, Any] = field(default_factory=dict)

    @property
    def is_idempotent(self) -> bool:
        return "enable.idempotence" in self.producer

    def violations(self, history: History) -> list[str]:
        """When a leader changes, librdkafka keeps the order of idempotent producers only: a batch in flight to the old
        leader may be sent again after batches that the new leader has written."""
        rules = violations(history, Allowed(copies=not self.is_idempotent))
        kept = (rule for name, rule in rules.items() if self.is_idempotent or name != "order")
        return [text for rule in kept for text in itertools.islice(rule, SHOWN)]


_KIP_848 = {"group.protocol": "consumer", "session.timeout.ms": None}
KINDS = (
    Kind("idempotent-lz4", {**IDEMPOTENT, "compression.type": "lz4"}),
    Kind("idempotent-zstd", {**IDEMPOTENT, "compression.type": "zstd"}, consumer=_KIP_848),
    Kind("plain-gzip", {**IN_ORDER, "compression.type": "gzip"}, {"message.timestamp.type": "LogAppendTime"}),
    Kind("message-set-0.9", {**MESSAGE_SETS, "broker.version.fallback": "0.9.0.1", "compression.type": "snappy"}),
    Kind("message-set-0.10", {**MESSAGE_SETS, "broker.version.fallback": "0.10.1.0"}, consumer=_KIP_848),
    Kind("native-messages", IDEMPOTENT, {"entry.format": "pulsar"}),
)


class Round:
    """Load on new topics for this number of seconds. A failure is recorded as text and does not end the other topics.
    """

    def __init__(self, bootstrap: str, seconds: float) -> None:
        self.failures: list[str] = []
        self.records = 0
        self.topics_deleted = 0
        self._bootstrap = bootstrap
        self._seconds = seconds
        self._lock = threading.Lock()

    def run(self) -> None:
        works: list[tuple[str, Callable[[], None]]] = [(kind.name, self._work(kind)) for kind in KINDS]
        works.append(("topics made and deleted", self._churn))
        threads = [threading.Thread(target=self._guard, args=work, daemon=True) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _guard(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            with self._lock:
                self.failures.append(f"{name}: {type(error).__name__}: {error}")

    def _work(self, kind: Kind) -> Callable[[], None]:
        return lambda: self._write_and_read(kind)

    def _write_and_read(self, kind: Kind) -> None:
        topic = group = unique_topic(kind.name)
        until(lambda: self._create(topic, PARTITIONS, kind.topic), f"{topic} is created")
        writer = Writer(self._bootstrap, topic, PARTITIONS, **{**PATIENCE, **UNTIL_FLUSHED, **kind.producer})
        options = {**PATIENCE, **kind.consumer}
        with Members(self._bootstrap, group, topic, count=2, **options) as members:
            writer.write(self._seconds / 3, PER_SECOND)
            with Members(self._bootstrap, group, topic, count=1, **options) as guest:
                writer.write(self._seconds / 3, PER_SECOND)
            writer.write(self._seconds / 3, PER_SECOND)
            writer.flush(FLUSH_S)
            writer.check_no_errors()
            members.await_values({*writer.offsets, *writer.unplaced} - guest.values)
        history = History(
            writer.writes, reads=[*members.reads, *(read._replace(member="guest") for read in guest.reads)],
            commits=[*members.commits, *guest.commits],
        )  # fmt: skip
        self._look_up(history, group, topic)
        lost = writer.unplaced - {value for log in history.logs.values() for _, value in log}
        assert not lost, f"{len(lost)} values are not in the log: {sorted(lost)[:SHOWN]}"
        assert not (found := kind.violations(history)), "; ".join(found)
        with self._lock:
            self.records += len(history.writes)
        until(lambda: self._delete(topic), f"{topic} is deleted")

    def _look_up(self, history: History, group: str, topic: str) -> None:
        def look() -> bool:
            asked = time.monotonic()
            offsets = committed(self._bootstrap, group, topic, PARTITIONS)
            history.lookups = [Lookup(each, offset, asked, time.monotonic()) for each, offset in enumerate(offsets)]
            history.logs = {each: read_all_values(self._bootstrap, topic, each) for each in range(PARTITIONS)}
            return True

        until(look, f"{topic} is read")

    def _churn(self) -> None:
        """Topics that are deleted soon after they are created, while a client writes to them."""
        end = time.monotonic() + self._seconds
        while time.monotonic() < end:
            topic = unique_topic("brief")
            until(lambda topic=topic: self._create(topic, 3, {}), f"{topic} is created", FLUSH_S)  # type: ignore[misc]
            writer = Writer(self._bootstrap, topic, 3, **PATIENCE)
            writer.write(2, PER_SECOND)
            until(lambda topic=topic: self._delete(topic), f"{topic} is deleted", FLUSH_S)  # type: ignore[misc]
            writer.abandon()
            self.topics_deleted += 1

    def _create(self, topic: str, partitions: int, config: dict[str, str]) -> bool:
        """Create a topic. If the response was lost, the topic exists at the next attempt, which is a success."""
        if topic not in AdminClient({"bootstrap.servers": self._bootstrap}).list_topics(timeout=10).topics:
            create_topic(self._bootstrap, topic, partitions, config)
        return True

    def _delete(self, topic: str) -> bool:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        if topic in admin.list_topics(timeout=10).topics:
            admin.delete_topics([topic])[topic].result(30)
        return True


@dataclass(frozen=True)
class RoundResult:
    records: int
    topics_deleted: int
    failures: list[str]


def run_round(bootstrap: str, seconds: float, timeout_s: float) -> RoundResult:
    command = [sys.executable, "-m", "tests.soak.load", bootstrap, str(seconds)]
    try:
        ended = subprocess.run(
            command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=timeout_s, check=True
        )
    except subprocess.SubprocessError as error:
        return RoundResult(0, 0, [f"the round itself: {error}"])
    return RoundResult(**json.loads(ended.stdout.splitlines()[-1]))


if __name__ == "__main__":
    turn = Round(sys.argv[1], float(sys.argv[2]))
    turn.run()
    print(json.dumps({"records": turn.records, "topics_deleted": turn.topics_deleted, "failures": turn.failures}))
