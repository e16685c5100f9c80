"""A product's pipeline: clicks in sessions, enriched from a compacted topic of pages, into Parquet and an alerts topic.

Clicks arrive out of order, some too late; the dimension topic has updates and deletions of which the last one counts.
"""

import json
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab
from spark_compat.runner.records import FIRST_TIMESTAMP_MS, Record

CLICK = "user STRING, page STRING, at BIGINT"
PAGE = "section STRING, price DOUBLE"
USERS = 12
ROUNDS = 6
CLICKS_PER_ROUND = 150
MANY_CLICKS = 8


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


def run(spark: SparkSession, bootstrap: str, clicks: str, dimension: str, alerts: str, output: Path) -> None:
    """One scheduled run of the pipeline over what is new."""
    sections = pages(spark, bootstrap, dimension)
    events = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", clicks)
        .option("startingOffsets", "earliest")
        .load()
        .select(F.from_json(F.col("value").cast("string"), CLICK).alias("click"))
        .select("click.user", "click.page", F.timestamp_millis("click.at").alias("at"))
        .join(sections, "page", "left")
        .withWatermark("at", "20 seconds")
    )
    sessions = (
        events.groupBy("user", F.session_window("at", "10 seconds").alias("session"))
        .agg(
            F.count("*").alias("clicks"),
            F.sum("price").alias("value"),
            F.sort_array(F.collect_set("section")).alias("sections"),
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

    query = (
        sessions.writeStream.foreachBatch(write)
        .outputMode("append")
        .option("checkpointLocation", str(output / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def trial(lab: Lab) -> Rows:
    clicks = lab.new_topic("pipeline-clicks", partitions=3)
    dimension = lab.new_topic("pipeline-pages", _pages(), config={"cleanup.policy": "compact"})
    alerts = lab.new_topic("pipeline-alerts", partitions=2)
    for number in range(ROUNDS):
        lab.feed(clicks, _clicks(number))
        run(lab.spark, lab.bootstrap, clicks, dimension, alerts, lab.work_dir)
    sessions = lab.spark.read.parquet(str(lab.work_dir / "sessions")).drop("batch")
    return {
        "pages": pages(lab.spark, lab.bootstrap, dimension).collect(),
        "sessions": sessions.collect(),
        "alerts": [(record.key, record.value, record.partition) for record in lab.read_all(alerts)],
    }


def _pages() -> list[Record]:
    first = [_page(f"/p{n}", {"section": f"s{n % 4}", "price": n / 4}) for n in range(20)]
    updates = [_page(f"/p{n}", {"section": "sale", "price": 0.5}) for n in range(0, 20, 5)]
    return [*first, *updates, _page("/p7", None)]


def _page(key: str, value: dict[str, object] | None) -> Record:
    return Record(json.dumps(value).encode() if value else None, key.encode())


def _clicks(number: int) -> list[Record]:
    """A round covers 40 seconds of event time. Every eleventh click is 15 s late, every 37th a round and more."""
    records = []
    for n in range(number * CLICKS_PER_ROUND, (number + 1) * CLICKS_PER_ROUND):
        second = n * 40 / CLICKS_PER_ROUND - (15 if n % 11 == 0 else 0) - (60 if n % 37 == 0 else 0)
        user = f"user{(n * n // 7) % USERS}"
        click = {"user": user, "page": f"/p{n % 23}", "at": FIRST_TIMESTAMP_MS + int(second * 1000)}
        records.append(Record(json.dumps(click).encode(), user.encode(), n % 3))
    return records
