"""A batch read of a topic: from the earliest record, between given offsets, between given times."""

import json

from pyspark.sql import DataFrame, SparkSession

from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab
from spark_compat.runner.records import FIRST_TIMESTAMP_MS, numbered

PARTITIONS = 3
RECORDS = 300


def run(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .options(**options)
        .load()
        .selectExpr("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    )


def trial(lab: Lab) -> Rows:
    topic = lab.new_topic("batch-read", numbered(RECORDS, PARTITIONS), PARTITIONS)
    between_offsets = {
        "startingOffsets": json.dumps({topic: {"0": 10, "1": -2, "2": 90}}),
        "endingOffsets": json.dumps({topic: {"0": 20, "1": 5, "2": -1}}),
    }
    from_time = FIRST_TIMESTAMP_MS + 100_500
    between_times = {
        "startingOffsetsByTimestamp": json.dumps({topic: {"0": from_time, "1": from_time + 20_000, "2": 0}}),
        "endingOffsetsByTimestamp": json.dumps(
            {topic: {"0": from_time + 30_000, "1": from_time + 30_000, "2": FIRST_TIMESTAMP_MS + 3_600_000}}
        ),
    }
    at_one_time = {"startingTimestamp": str(from_time), "endingTimestamp": str(from_time + 12_000)}
    return {
        "default": run(lab.spark, lab.bootstrap, topic).collect(),
        "earliest to latest": run(
            lab.spark, lab.bootstrap, topic, startingOffsets="earliest", endingOffsets="latest"
        ).collect(),
        "offsets of each partition": run(lab.spark, lab.bootstrap, topic, **between_offsets).collect(),
        "timestamps of each partition": run(lab.spark, lab.bootstrap, topic, **between_times).collect(),
        "one timestamp for all": run(lab.spark, lab.bootstrap, topic, **at_one_time).collect(),
        "read_committed": run(
            lab.spark, lab.bootstrap, topic, **{"kafka.isolation.level": "read_committed"}
        ).collect(),
        "count": [(run(lab.spark, lab.bootstrap, topic).count(),)],
    }
