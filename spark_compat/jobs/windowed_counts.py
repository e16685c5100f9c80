"""Counts by key in windows of event time. The watermark closes windows and drops late records."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab
from spark_compat.runner.records import FIRST_TIMESTAMP_MS, Record, numbered

TABLE = "windowed_counts"


def run(spark: SparkSession, bootstrap: str, topic: str, mode: str) -> StreamingQuery:
    counts = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .withWatermark("timestamp", "30 seconds")
        .groupBy(F.window("timestamp", "20 seconds"), F.col("key").cast("string").alias("key"))
        .agg(F.count("*").alias("records"), F.min("offset").alias("first"), F.max("value").alias("last"))
        .selectExpr("window.start", "window.end", "key", "records", "first", "last")
    )
    return counts.writeStream.format("memory").queryName(f"{TABLE}_{mode}").outputMode(mode).start()


def trial(lab: Lab) -> Rows:
    topic = lab.new_topic("windows", numbered(200))
    queries = [run(lab.spark, lab.bootstrap, topic, mode) for mode in ("append", "complete")]
    for batch in (numbered(100, first=200), _late(), numbered(50, first=400)):
        for query in queries:
            query.processAllAvailable()
        lab.feed(topic, batch)
    for query in queries:
        query.processAllAvailable()
        query.stop()
    return {mode: lab.spark.table(f"{TABLE}_{mode}").collect() for mode in ("append", "complete")}


def _late() -> list[Record]:
    """Some records within the watermark, some far too late."""
    seconds = (280, 275, 5, 1, 299)
    return [Record(b"late", b"k1", timestamp_ms=FIRST_TIMESTAMP_MS + second * 1000) for second in seconds]
