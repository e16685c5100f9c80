"""Costs that grow with the number of partitions: `python -m spark_compat.scale`. Writes docs/reports/spark-scale.md."""

import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyspark
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamReader

from spark_compat.runner.lab import Lab
from spark_compat.runner.records import Record
from spark_compat.runner.servers import Side, both_sides
from spark_compat.runner.session import start_session
from tests.bench.process import cpu_seconds
from tests.support.gateway_process import GatewayProcess
from tests.support.report import REPORTS, head, table

REPORT = REPORTS / "spark-scale.md"
PARTITIONS = (1, 3, 12, 48, 200)
CACHED_CONSUMERS = 64
"""Spark's default. With more partitions, Spark creates consumers again for each micro-batch, which takes minutes, so
such topics are read once."""
RECORDS = 48_000
VALUE_BYTES = 100
MICRO_BATCHES = 4
IDLE_S = 10.0
APIS = ("Fetch", "ListOffsets", "Metadata")
REQUESTS = "kafka_gateway_request_latency_seconds_count"
ACCEPTED = "kafka_gateway_connections_accepted_total"


class Cost(NamedTuple):
    """The cost of one action of Spark at the gateway; for Kafka, only the time is known."""

    seconds: float
    cpu_s: float
    connections: int
    requests: Counter[str]

    def row(self) -> list[str]:
        others = sum(self.requests.values()) - sum(self.requests[api] for api in APIS)
        counts = [*(self.requests[api] for api in APIS), others, self.connections]
        return [f"{self.seconds:.1f}", f"{self.cpu_s:.2f}", *map(str, counts)]


COST_COLUMNS = ("s", "gateway CPU s", *APIS, "other requests", "new connections")


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and clean up
    work_dir = Path(tempfile.mkdtemp(prefix="spark-scale-"))
    began = time.monotonic()
    try:
        with both_sides(work_dir, None, None, secured=False) as sides:
            text = _partitions(sides, work_dir)
    finally:
        shutil.rmtree(work_dir, ignore_errors=True)
    title = f"What Spark {pyspark.__version__} costs a gateway"
    top = head(title, "python -m spark_compat.scale", time.monotonic() - began, HOW_TO_READ)
    REPORT.write_text(f"{top}{text}")


def _partitions(sides: Sequence[Side], work_dir: Path) -> str:
    spark = start_session(work_dir)
    jobs: dict[str, Callable[[SparkSession, str, str], object]] = {
        f"batch read of {RECORDS:,} records": read,
        f"the same as a stream of {MICRO_BATCHES} micro-batches": drain,
        f"a query that waits {IDLE_S:.0f} s, asking once a second": wait,
    }
    rows: dict[str, list[list[str]]] = {name: [] for name in jobs}
    read(spark, sides[0].bootstrap, _topic(spark, sides[0], 2))  # Spark loads what every read needs
    for partitions in PARTITIONS:
        topics = {side.name: _topic(spark, side, partitions) for side in sides}
        for name, job in jobs.items():
            if partitions > CACHED_CONSUMERS and job is not read:
                continue
            kafka, gateway = (_cost(side, partial(job, spark, side.bootstrap, topics[side.name])) for side in sides)
            rows[name].append([str(partitions), f"{kafka.seconds:.1f}", *gateway.row()])
            print(name, rows[name][-1], flush=True)
    spark.stop()
    headings = ("partitions", "Kafka s", *COST_COLUMNS)
    lines = [
        line
        for name, found in rows.items()
        for line in ("", f"## {name[0].upper()}{name[1:]}", "", *table(headings, found, texts=0))
    ]
    return "\n".join(lines) + "\n"


def _topic(spark: SparkSession, side: Side, partitions: int) -> str:
    number = time.monotonic_ns()
    records = (Record(b"x" * VALUE_BYTES, partition=number % partitions) for number in range(RECORDS))
    return Lab(spark, side, f"scale-{number}", Path()).new_topic(f"p{partitions}", records, partitions)


def read(spark: SparkSession, bootstrap: str, topic: str) -> None:
    rows = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic).load()
    found = rows.agg(F.count("*"), F.sum(F.length("value"))).collect()[0]
    assert tuple(found) == (RECORDS, RECORDS * VALUE_BYTES), found


def drain(spark: SparkSession, bootstrap: str, topic: str) -> None:
    rows = _stream(spark, bootstrap, topic, "earliest").option("maxOffsetsPerTrigger", RECORDS // MICRO_BATCHES).load()
    rows.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()


def wait(spark: SparkSession, bootstrap: str, topic: str) -> None:
    rows = _stream(spark, bootstrap, topic, "latest").load()
    query = rows.writeStream.format("noop").trigger(processingTime="1 second").start()
    time.sleep(IDLE_S)
    query.stop()


def _stream(spark: SparkSession, bootstrap: str, topic: str, starting: str) -> DataStreamReader:
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    return source.option("subscribe", topic).option("startingOffsets", starting)


def _cost(side: Side, work: Callable[[], object]) -> Cost:
    before = _state(side.gateway)
    began = time.monotonic()
    work()
    seconds = time.monotonic() - began
    after = _state(side.gateway)
    new = after.connections - before.connections
    return Cost(seconds, after.cpu_s - before.cpu_s, new, after.requests - before.requests)


class State(NamedTuple):
    cpu_s: float
    connections: int
    requests: Counter[str]


def _state(gateway: GatewayProcess | None) -> State:
    if gateway is None:
        return State(0, 0, Counter())
    requests: Counter[str] = Counter()
    connections = 0
    for family in text_string_to_metric_families(gateway.get("/metrics")[1]):
        for sample in family.samples:
            if sample.name == REQUESTS:
                requests[sample.labels["api"]] += int(sample.value)
            elif sample.name == ACCEPTED:
                connections = int(sample.value)
    return State(cpu_seconds(gateway.pid), connections, requests)


HOW_TO_READ = """\
Spark runs as `local[2]`, with Kafka, Pulsar and the gateway on the same machine. CPU, requests and connections are the
gateway's; times include Spark's own work. What follows for a job: [guides/spark.md](../guides/spark.md).
"""


if __name__ == "__main__":
    main()
