"""An hourly job: reads all records since the last run, then stops. The checkpoint has the offsets."""

from pathlib import Path

from pyspark.sql import SparkSession

from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab
from spark_compat.runner.records import numbered


def run(spark: SparkSession, bootstrap: str, topic: str, output: Path) -> None:
    query = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 100)
        .load()
        .selectExpr("string(key) AS key", "string(value) AS value", "partition", "offset", "timestamp")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(output / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(output / "rows"))
    )
    query.awaitTermination()


def trial(lab: Lab) -> Rows:
    topic = lab.new_topic("available-now", numbered(250, 2), partitions=2)
    rows = str(lab.work_dir / "rows")
    run(lab.spark, lab.bootstrap, topic, lab.work_dir)
    first = lab.spark.read.parquet(rows).collect()
    lab.feed(topic, numbered(130, 2, first=250))
    run(lab.spark, lab.bootstrap, topic, lab.work_dir)
    second = lab.spark.read.parquet(rows).collect()
    run(lab.spark, lab.bootstrap, topic, lab.work_dir)
    return {
        "first hour": first,
        "both hours": second,
        "an hour without news": lab.spark.read.parquet(rows).collect(),
    }
