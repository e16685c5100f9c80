"""A query with a micro-batch every 200 ms, while records arrive; and a one-time trigger."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab
from spark_compat.runner.records import numbered

ROUNDS = 5


def run(spark: SparkSession, bootstrap: str, topic: str, table: str, starting: str, **trigger: Any) -> StreamingQuery:
    rows: DataFrame = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", starting)
        .load()
        .selectExpr("partition", "offset", "string(value) AS value", "timestamp")
    )
    return rows.writeStream.format("memory").queryName(table).trigger(**trigger).start()


def trial(lab: Lab) -> Rows:
    spark = lab.spark
    topic = lab.new_topic("triggers", numbered(50, 2), partitions=2)
    earliest = run(spark, lab.bootstrap, topic, "from_earliest", "earliest", processingTime="200 milliseconds")
    latest = run(spark, lab.bootstrap, topic, "from_latest", "latest", processingTime="0 seconds")
    latest.processAllAvailable()  # the query has chosen its starting offsets
    for number in range(ROUNDS):
        lab.feed(topic, numbered(20, 2, first=50 + 20 * number))
        earliest.processAllAvailable()
        latest.processAllAvailable()
    earliest.stop()
    latest.stop()
    run(spark, lab.bootstrap, topic, "run_once", "earliest", once=True).awaitTermination()
    return {name: spark.table(name).collect() for name in ("from_earliest", "from_latest", "run_once")}
