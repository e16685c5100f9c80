"""What a trial has in hand: the session, the cluster of one side, and topics that no other trial uses."""

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_compat.runner.records import Record, feed, read_all
from spark_compat.runner.servers import Faults, Side

ADMIN_TIMEOUT_S = 30.0
ROWS_TIMEOUT_S = 180.0
"""Longer than the minute for which Java clients try one thing."""
POLL_S = 0.2


@dataclass(frozen=True)
class Lab:
    spark: SparkSession
    side: Side
    run_id: str
    """Part of every topic name. Both sides have the same, so the rows' topic columns compare."""
    work_dir: Path
    """Empty, of this trial on this side: for checkpoints and output."""
    timings: dict[str, float] = field(default_factory=dict)
    """What was measured → seconds."""

    @property
    def bootstrap(self) -> str:
        return self.side.bootstrap

    @property
    def faults(self) -> Faults:
        assert self.side.faults is not None, "a job that NEEDS_OWN_SERVERS is not run without"
        return self.side.faults

    def name(self, topic: str) -> str:
        return f"{self.run_id}-{topic}"

    def new_topic(
        self, topic: str, records: Iterable[Record] = (), partitions: int = 1, config: Mapping[str, str] = {}
    ) -> str:
        """Create a topic and fill it; returns its full name."""
        name = self.name(topic)
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config))
        admin = self._admin()  # its futures fail when it is gone
        _wait(admin.create_topics([new], operation_timeout=ADMIN_TIMEOUT_S))
        self.feed(name, records)
        return name

    def feed(self, name: str, records: Iterable[Record]) -> None:
        feed(self.bootstrap, name, records)

    @contextmanager
    def feeding(self, name: str, records: Iterable[Record], bootstrap: str | None = None) -> Iterator[None]:
        """Records are written all the while; in the end all are acknowledged."""
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(feed, bootstrap or self.bootstrap, name, records)
            yield
            done.result()

    def read_all(self, name: str) -> list[Record]:
        return read_all(self.bootstrap, name)

    def grow_topic(self, name: str, partitions: int) -> None:
        admin = self._admin()
        _wait(admin.create_partitions([NewPartitions(name, partitions)], operation_timeout=ADMIN_TIMEOUT_S))

    def delete_topic(self, name: str) -> None:
        admin = self._admin()
        _wait(admin.delete_topics([name], operation_timeout=ADMIN_TIMEOUT_S))

    def delete_records(self, name: str, before: Mapping[int, int]) -> None:
        """Move the log start of partitions, as expiry does."""
        positions = [TopicPartition(name, partition, offset) for partition, offset in before.items()]
        admin = self._admin()
        _wait(admin.delete_records(positions, operation_timeout=ADMIN_TIMEOUT_S))

    def wait_for_rows(self, table: str, count: int, query: StreamingQuery) -> None:
        """Until a memory table has this many rows. Raises what ended the query, or AssertionError after a time."""
        deadline = time.monotonic() + ROWS_TIMEOUT_S
        while (found := self.spark.table(table).count()) < count:
            if failure := query.exception():
                raise failure
            assert time.monotonic() < deadline, f"{found} rows in {table}, {count} expected"
            time.sleep(POLL_S)

    def wait_for_progress(self, query: StreamingQuery, batches: int) -> None:
        """Until the query has written that many micro-batches."""
        deadline = time.monotonic() + ROWS_TIMEOUT_S
        while (progress := query.lastProgress) is None or progress["batchId"] < batches:
            assert time.monotonic() < deadline, f"{query.status}"
            time.sleep(POLL_S)

    def wait_until_gone(self, name: str) -> None:
        """Until the cluster does not list a deleted topic. Asking for all topics creates none."""
        deadline = time.monotonic() + ROWS_TIMEOUT_S
        admin = self._admin()
        while name in admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics:
            assert time.monotonic() < deadline, f"{name} is still there"
            time.sleep(POLL_S)

    @contextmanager
    def measured(self, name: str) -> Iterator[None]:
        """The best of several measurements of one name counts."""
        began = time.monotonic()
        yield
        duration_s = time.monotonic() - began
        self.timings[name] = min(duration_s, self.timings.get(name, duration_s))

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})


def _wait(answers: Mapping[Any, Future[Any]]) -> None:
    for answer in answers.values():
        answer.result(ADMIN_TIMEOUT_S)
