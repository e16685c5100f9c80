"""Each event once, although its producer sent some events again: dropDuplicates in a stream, with and without a
watermark."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab
from spark_compat.runner.records import numbered


def run(spark: SparkSession, bootstrap: str, topic: str, *, watermark: bool) -> StreamingQuery:
    events = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("string(value) AS id", "timestamp")
    )
    return _once(events, watermark).writeStream.format("memory").queryName(_table(watermark)).start()


def _once(events: DataFrame, watermark: bool) -> DataFrame:
    if watermark:
        return events.withWatermark("timestamp", "1 minute").dropDuplicatesWithinWatermark(["id"])
    return events.dropDuplicates(["id"])


def _table(watermark: bool) -> str:
    return "dedup_watermark" if watermark else "dedup_all"


def trial(lab: Lab) -> Rows:
    topic = lab.new_topic("dedup", [*numbered(60), *numbered(30, first=20)])
    queries = [run(lab.spark, lab.bootstrap, topic, watermark=watermark) for watermark in (False, True)]
    for first in (50, 5):
        for query in queries:
            query.processAllAvailable()
        lab.feed(topic, numbered(40, first=first))
    for query in queries:
        query.processAllAvailable()
        query.stop()
    return {_table(watermark): lab.spark.table(_table(watermark)).collect() for watermark in (False, True)}
