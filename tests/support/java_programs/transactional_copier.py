"""Kafka's own TransactionalMessageCopier. Its output must equal its input whatever happens to servers and copiers."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from deploy.local.jars import classpath
from deploy.local.java import java_executable
from deploy.local.kafka import LOG4J_CONFIG
from deploy.local.process import bound

TOOL = "org.apache.kafka.tools.TransactionalMessageCopier"
JVM_OPTIONS = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
POLL_S = 0.2
READ_TIMEOUT_S = 60.0


class Copier:
    """Copies one partition to the partition with the same number. It aborts some transactions, and reads their records
    again.

    It ends when it has copied all records that the partition had when it started, or at an error that is fatal for a
    transactional producer; then `keep_copying` starts it again.
    """

    def __init__(self, work_dir: Path, bootstrap: str, source: str, target: str, partition: int, size: int) -> None:
        self.restarts = 0
        self._log = work_dir / f"copier-{target}-{partition}.log"
        arguments = {
            "broker-list": bootstrap,
            "input-topic": source,
            "input-partition": str(partition),
            "output-topic": target,
            "consumer-group": f"{target}-copiers",
            "transactional-id": f"{target}-{partition}",
            "transaction-size": str(size),
            "transaction-timeout": "20000",
        }
        log4j = f"-Dlog4j.configuration={LOG4J_CONFIG.as_uri()}"
        options = [part for name, value in arguments.items() for part in (f"--{name}", value)]
        options += ["--enable-random-aborts", "--use-group-metadata"]
        self._command = [java_executable(), *JVM_OPTIONS, log4j, "-cp", classpath("kafka"), TOOL, *options]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(bound(self._command), stdout=log, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def is_done(self) -> bool:
        """True at the end of the partition. A copier that failed or was killed is started again."""
        assert self._process is not None
        status = self._process.poll()
        if status is None or status == 0:
            return status == 0
        self.restarts += 1
        self.start()
        return False

    @property
    def copied(self) -> int:
        """The number of copied records that it reported since its first start. Records of aborted transactions count
        again."""
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        told = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return max((int(each["totalProcessed"]) for each in told), default=0)

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-2_000:]


@contextmanager
def copying(copiers: Sequence[Copier]) -> Iterator[None]:
    """Started at the beginning of the block, and ended at its end."""
    with ExitStack() as stack:
        for each in copiers:
            stack.callback(each.kill)
            each.start()
        yield


def keep_copying(copiers: Sequence[Copier], within_s: float) -> None:
    """Wait until all copiers are at the end of their partitions."""
    deadline = time.monotonic() + within_s
    going = list(copiers)
    while going := [each for each in going if not each.is_done]:
        assert time.monotonic() < deadline, "\n\n".join(each.last_words() for each in copiers)
        time.sleep(POLL_S)


def await_copied(copier: Copier, count: int, within_s: float) -> None:
    """Wait until this number of records is copied, or the copier has finished."""
    deadline = time.monotonic() + within_s
    while not copier.is_done and copier.copied < count:
        assert time.monotonic() < deadline, copier.last_words()
        time.sleep(POLL_S)


def committed_values(bootstrap: str, topic: str, partition: int) -> list[bytes]:
    """All records that a read_committed consumer reads, to the end."""
    return [message.value() or b"" for message in committed_messages(bootstrap, topic, partition)]


def committed_messages(bootstrap: str, topic: str, partition: int) -> list[Message]:
    """Has gaps at the offsets of markers and aborted records."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "none",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[Message] = []
    deadline = time.monotonic() + READ_TIMEOUT_S
    try:
        while time.monotonic() < deadline:
            for message in consumer.consume(1_000, POLL_S):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
                elif not error.retriable():
                    raise AssertionError(error)
    finally:
        consumer.close()
    raise AssertionError(f"the end of {topic} was not reached: {len(found)} records")
