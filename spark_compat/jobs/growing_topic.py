"""While the query runs, its topic gets more partitions, and more topics match its pattern."""

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab
from spark_compat.runner.records import numbered

TABLE = "growing_topic"


def run(spark: SparkSession, bootstrap: str, pattern: str) -> StreamingQuery:
    rows = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.metadata.max.age.ms", "1000")
        .option("subscribePattern", pattern)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("topic", "partition", "offset", "string(value) AS value")
    )
    return rows.writeStream.format("memory").queryName(TABLE).start()


def trial(lab: Lab) -> Rows:
    expected = 10
    topic = lab.new_topic("growing-a", numbered(10))
    query = run(lab.spark, lab.bootstrap, lab.name("growing-.*"))
    query.processAllAvailable()
    lab.grow_topic(topic, 3)
    lab.feed(topic, numbered(30, 3, first=10))
    lab.wait_for_rows(TABLE, expected := expected + 30, query)
    lab.new_topic("growing-b", numbered(20, 2), partitions=2)
    lab.wait_for_rows(TABLE, expected + 20, query)
    query.stop()
    return {"rows": lab.spark.table(TABLE).collect()}
