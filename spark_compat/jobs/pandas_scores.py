"""Scores by a pandas UDF over Arrow, in the middle of a stream from topic to topic."""

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab
from spark_compat.runner.records import numbered


def run(spark: SparkSession, bootstrap: str, source: str, sink: str, checkpoint: str) -> None:
    def score(values: pd.Series, offsets: pd.Series) -> pd.Series:
        return values.str.len() * 1000.0 + offsets % 7

    scored = F.pandas_udf(score, "double")
    query = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
        .select("key", scored(F.col("value").cast("string"), "offset").cast("string").alias("value"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", sink)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def trial(lab: Lab) -> Rows:
    source = lab.new_topic("unscored", numbered(200, 2), partitions=2)
    sink = lab.new_topic("scored", partitions=2)
    run(lab.spark, lab.bootstrap, source, sink, str(lab.work_dir / "checkpoint"))
    return {"scores": [(record.key, record.value, record.partition) for record in lab.read_all(sink)]}
