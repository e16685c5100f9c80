"""Limits of a read: minPartitions, maxRecordsPerPartition, maxOffsetsPerTrigger, minOffsetsPerTrigger."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id

from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab
from spark_compat.runner.records import numbered


def run(spark: SparkSession, bootstrap: str, topic: str, **options: int) -> DataFrame:
    """The number of tasks of a batch read."""
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .options(**options)
        .load()
        .groupBy(spark_partition_id().alias("task"), "partition")
        .agg({"offset": "min", "*": "count"})
    )


def run_stream(
    spark: SparkSession, bootstrap: str, topic: str, checkpoint: str, **options: str
) -> list[tuple[int, int]]:
    """The number of rows of each micro-batch that reads the topic."""
    sizes = []

    def collect(batch: DataFrame, batch_id: int) -> None:
        sizes.append((batch_id, batch.count()))

    query = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .options(**options)
        .load()
        .writeStream.foreachBatch(collect)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return sizes


def trial(lab: Lab) -> Rows:
    topic = lab.new_topic("limits", numbered(1000, 3), partitions=3)
    checkpoint = str(lab.work_dir / "checkpoint")
    return {
        "as many tasks as partitions": run(lab.spark, lab.bootstrap, topic).collect(),
        "minPartitions": run(lab.spark, lab.bootstrap, topic, minPartitions=7).collect(),
        "maxRecordsPerPartition": run(lab.spark, lab.bootstrap, topic, maxRecordsPerPartition=100).collect(),
        "maxOffsetsPerTrigger": run_stream(lab.spark, lab.bootstrap, topic, checkpoint, maxOffsetsPerTrigger="300"),
        "minOffsetsPerTrigger": run_stream(
            lab.spark,
            lab.bootstrap,
            topic,
            checkpoint + "-min",
            minOffsetsPerTrigger="400",
            maxOffsetsPerTrigger="400",
            maxTriggerDelay="2s",
        ),
    }
