"""All records of a larger topic, 100 bytes each: as one batch, and by a stream until it has read all. Measured.

FULL_SCAN_RECORDS in the environment is the number of records, a million by default.
"""

import os
from collections.abc import Iterator

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab
from spark_compat.runner.records import FIRST_TIMESTAMP_MS, Record

RECORDS = int(os.environ.get("FULL_SCAN_RECORDS", "1000000"))
VALUE_BYTES = 100
PARTITIONS = 3
ROUNDS = 3


def run(spark: SparkSession, bootstrap: str, topic: str) -> list[Row]:
    rows = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic).load()
    return _sums(rows)


def run_stream(spark: SparkSession, bootstrap: str, topic: str, checkpoint: str) -> list[Row]:
    sums: list[Row] = []
    query = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", RECORDS // 4)
        .load()
        .writeStream.foreachBatch(lambda batch, _id: sums.extend(_sums(batch)))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sums


def _sums(rows: DataFrame) -> list[Row]:
    """For each partition: the number of records, the first and last offset, and a checksum of the values."""
    sums = rows.groupBy("partition").agg(
        F.count("*"), F.min("offset"), F.max("offset"), F.sum(F.length("value")), F.sum(F.crc32("value"))
    )
    return list(sums.collect())


def trial(lab: Lab) -> Rows:
    topic = lab.new_topic("full-scan", _records(), partitions=PARTITIONS)
    rows: dict[str, list[Row]] = {}
    for number in range(ROUNDS):
        with lab.measured(f"batch read, {RECORDS:,} records"):
            rows["batch"] = run(lab.spark, lab.bootstrap, topic)
        with lab.measured(f"streaming drain, {RECORDS:,} records"):
            rows["stream"] = run_stream(lab.spark, lab.bootstrap, topic, str(lab.work_dir / f"checkpoint-{number}"))
    return rows


def _records() -> Iterator[Record]:
    for number in range(RECORDS):
        yield Record(str(number).zfill(VALUE_BYTES).encode(), None, number % PARTITIONS, FIRST_TIMESTAMP_MS + number)
