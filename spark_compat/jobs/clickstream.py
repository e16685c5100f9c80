"""Two minutes at 300 clicks/s: sessions, enriched from a compacted topic, into Parquet and an alerts topic.

A complete pipeline. The query runs all the time while clicks arrive. Every eleventh click is 15 s late, and a few are
ten minutes late, which is too late. The dimension topic has updates and deletions; only the last one of a key counts.
The expected result is computed from the clicks without Spark: each session once, on both sides.
"""

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab
from spark_compat.runner.records import FIRST_TIMESTAMP_MS, Record, paced

CLICK = "user STRING, page STRING, at BIGINT"
PAGE = "section STRING, price DOUBLE"
GAP_MS = 10_000
WATERMARK_DELAY = "45 seconds"
"""Much longer than the lateness, so that no partition falls behind the watermark."""
PER_SECOND = 300
SECONDS = 120
MANY_CLICKS = 12
USERS = 2_000
LATE_MS = 15_000
TOO_LATE_MS = 600_000


class Click(NamedTuple):
    user: str
    page: str
    at_ms: int


class Session(NamedTuple):
    user: str
    start_ms: int
    end_ms: int
    clicks: int
    value: float | None
    sections: str


def pages(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """The compacted topic as a table: the last value of each key, without the deleted ones."""
    newest = Window.partitionBy("key").orderBy(F.desc("partition"), F.desc("offset"))
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .load()
        .withColumn("rank", F.row_number().over(newest))
        .where("rank = 1 AND value IS NOT NULL")
        .select(F.col("key").cast("string").alias("page"), F.from_json(F.col("value").cast("string"), PAGE).alias("p"))
        .select("page", "p.section", "p.price")
    )


def run(spark: SparkSession, bootstrap: str, clicks: str, dimension: str, alerts: str, output: Path) -> StreamingQuery:
    events = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", clicks)
        .option("startingOffsets", "earliest")
        .load()
        .select(F.from_json(F.col("value").cast("string"), CLICK).alias("click"))
        .select("click.user", "click.page", F.timestamp_millis("click.at").alias("at"))
        .join(pages(spark, bootstrap, dimension), "page", "left")
        .withWatermark("at", WATERMARK_DELAY)
    )
    sessions = (
        events.groupBy("user", F.session_window("at", f"{GAP_MS} milliseconds").alias("session"))
        .agg(
            F.count("*").alias("clicks"),
            F.sum("price").alias("value"),
            F.array_join(F.sort_array(F.collect_set("section")), ",").alias("sections"),
        )
        .select("user", "session.start", "session.end", "clicks", "value", "sections")
    )

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        batch.write.mode("overwrite").parquet(str(output / "sessions" / f"batch={batch_id}"))
        (
            batch.where(F.col("clicks") >= MANY_CLICKS)
            .select(F.col("user").alias("key"), F.to_json(F.struct("start", "clicks", "value")).alias("value"))
            .write.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", alerts)
            .save()
        )
        batch.unpersist()

    return (
        sessions.writeStream.foreachBatch(write)
        .outputMode("append")
        .option("checkpointLocation", str(output / "checkpoint"))
        .trigger(processingTime="3 seconds")
        .start()
    )


def trial(lab: Lab) -> Rows:
    clicks = lab.new_topic("pipeline-clicks", partitions=3)
    dimension = lab.new_topic("pipeline-pages", _page_records(), config={"cleanup.policy": "compact"})
    alerts = lab.new_topic("pipeline-alerts", partitions=2)
    query = run(lab.spark, lab.bootstrap, clicks, dimension, alerts, lab.work_dir)
    in_time = _clicks()
    lab.feed(clicks, _records(in_time[:PER_SECOND]))
    query.processAllAvailable()  # there is a watermark now, so a click that is ten minutes late is certainly too late
    last = Click("nobody", "/p0", FIRST_TIMESTAMP_MS + 3_600_000)  # closes all sessions except its own
    lab.feed(clicks, paced(_records(chain(_with_hopeless(in_time[PER_SECOND:]), [last])), PER_SECOND))
    query.processAllAvailable()
    query.stop()
    expected = sorted(_sessions(in_time))
    sessions = sorted(map(_session, lab.spark.read.parquet(str(lab.work_dir / "sessions")).collect()))
    assert sessions == expected, f"{len(sessions)} sessions, {len({*sessions} & {*expected})} of them right"
    written = [(record.key, record.value, record.partition) for record in lab.read_all(alerts)]
    busy = sum(session.clicks >= MANY_CLICKS for session in expected)
    assert len(written) == busy, f"{len(written)} alerts, {busy} expected"
    return {"pages": pages(lab.spark, lab.bootstrap, dimension).collect(), "sessions": sessions, "alerts": written}


def _page_records() -> list[Record]:
    first = [_page(f"/p{n}", {"section": f"s{n % 4}", "price": n / 4}) for n in range(20)]
    updates = [_page(f"/p{n}", {"section": "sale", "price": 0.5}) for n in range(0, 20, 5)]
    return [*first, *updates, _page("/p7", None)]


def _page(key: str, value: dict[str, object] | None) -> Record:
    return Record(json.dumps(value).encode() if value else None, key.encode())


def _clicks() -> list[Click]:
    """The clicks in order of arrival. Event time passes as fast as the clock. Some pages are not in the dimension
    topic."""
    chance = random.Random(1)
    return [
        Click(
            f"user{chance.randrange(USERS)}",
            f"/p{chance.randrange(23)}",
            FIRST_TIMESTAMP_MS + number * 1000 // PER_SECOND - (LATE_MS if number % 11 == 10 else 0),
        )
        for number in range(PER_SECOND * SECONDS)
    ]


def _with_hopeless(clicks: Iterable[Click]) -> Iterator[Click]:
    for number, click in enumerate(clicks):
        yield click
        if number % 37 == 0:
            yield click._replace(at_ms=click.at_ms - TOO_LATE_MS)


def _records(clicks: Iterable[Click]) -> Iterator[Record]:
    for number, (user, page, at_ms) in enumerate(clicks):
        value = json.dumps({"user": user, "page": page, "at": at_ms}).encode()
        yield Record(value, user.encode(), number % 3)


def _session(row: Row) -> Session:
    start_ms, end_ms = (round(at.timestamp() * 1000) for at in (row.start, row.end))
    return Session(row.user, start_ms, end_ms, row.clicks, row.value, row.sections)


def _sessions(clicks: Iterable[Click]) -> Iterator[Session]:
    """A click that follows another one within the gap belongs to the same session."""
    by_user = defaultdict(list)
    for click in clicks:
        by_user[click.user].append(click)
    table = {record.key: json.loads(record.value) if record.value else {} for record in _page_records()}
    for user, theirs in by_user.items():
        theirs.sort(key=lambda click: click.at_ms)
        starts = [n for n, click in enumerate(theirs) if n == 0 or click.at_ms > theirs[n - 1].at_ms + GAP_MS]
        for first, after in zip(starts, [*starts[1:], len(theirs)], strict=True):
            visited = [table.get(click.page.encode(), {}) for click in theirs[first:after]]
            prices = [page["price"] for page in visited if page]
            sections = ",".join(sorted({page["section"] for page in visited if page}))
            start_ms, end_ms = theirs[first].at_ms, theirs[after - 1].at_ms + GAP_MS
            yield Session(user, start_ms, end_ms, after - first, sum(prices) if prices else None, sections)
