"""What a trial works with: the session, the cluster of one side, and topics that no other trial uses."""

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
"""Longer than the minute after which Java clients stop retrying a request."""
POLL_S = 0.2


@dataclass(frozen=True)
class Lab:
    spark: SparkSession
    side: Side
    run_id: str
    """Part of every topic name. It is the same for both sides, so that the rows' topic columns are equal."""
    work_dir: Path
    """An empty directory of this trial and side: for checkpoints and output."""
    timings: dict[str, float] = field(default_factory=dict)
    """Name of a measurement → seconds."""

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
        """Create a topic and write records to it. Returns its full name."""
        name = self.name(topic)
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config))
        admin = self._admin()  # the futures fail when the client is collected
        _wait(admin.create_topics([new], operation_timeout=ADMIN_TIMEOUT_S))
        self.feed(name, records)
        return name

    def feed(self, name: str, records: Iterable[Record]) -> None:
        feed(self.bootstrap, name, records)

    @contextmanager
    def feeding(self, name: str, records: Iterable[Record], bootstrap: str | None = None) -> Iterator[None]:
        """Write records during the block. When it ends, all of them are acknowledged."""
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
        """Move the log start of partitions, as retention does."""
        positions = [TopicPartition(name, partition, offset) for partition, offset in before.items()]
        admin = self._admin()
        _wait(admin.delete_records(positions, operation_timeout=ADMIN_TIMEOUT_S))

    def wait_for_rows(self, table: str, count: int, query: StreamingQuery) -> None:
        """Wait until a memory table has this many rows. Raises the query's exception, or AssertionError after a
        timeout."""
        deadline = time.monotonic() + ROWS_TIMEOUT_S
        while (found := self.spark.table(table).count()) < count:
            if failure := query.exception():
                raise failure
            assert time.monotonic() < deadline, f"{found} rows in {table}, {count} expected"
            time.sleep(POLL_S)

    def wait_for_progress(self, query: StreamingQuery, batches: int) -> None:
        """Wait until the query has run this many micro-batches."""
        deadline = time.monotonic() + ROWS_TIMEOUT_S
        while (progress := query.lastProgress) is None or progress["batchId"] < batches:
            assert time.monotonic() < deadline, f"{query.status}"
            time.sleep(POLL_S)

    def wait_until_gone(self, name: str) -> None:
        """Wait until the cluster does not list a deleted topic. A request for all topics creates none."""
        deadline = time.monotonic() + ROWS_TIMEOUT_S
        admin = self._admin()
        while name in admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics:
            assert time.monotonic() < deadline, f"{name} is still there"
            time.sleep(POLL_S)

    @contextmanager
    def measured(self, name: str) -> Iterator[None]:
        """Measure the block. Of several measurements with the same name, the shortest is kept."""
        began = time.monotonic()
        yield
        duration_s = time.monotonic() - began
        self.timings[name] = min(duration_s, self.timings.get(name, duration_s))

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})


def _wait(answers: Mapping[Any, Future[Any]]) -> None:
    for answer in answers.values():
        answer.result(ADMIN_TIMEOUT_S)
