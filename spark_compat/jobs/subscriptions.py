"""Three ways to subscribe, for a batch and for a stream: a list of topics, a pattern, and single partitions."""

import json

from pyspark.sql import DataFrame, SparkSession

from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab
from spark_compat.runner.records import numbered


def run(spark: SparkSession, bootstrap: str, way: str, what: str) -> DataFrame:
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option(way, what)
        .load()
        .selectExpr("topic", "partition", "offset", "string(value) AS value")
    )


def run_stream(spark: SparkSession, bootstrap: str, way: str, what: str, table: str) -> DataFrame:
    query = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option(way, what)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("topic", "partition", "offset", "string(value) AS value")
        .writeStream.format("memory")
        .queryName(table)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return spark.table(table)


def trial(lab: Lab) -> Rows:
    clicks = lab.new_topic("sub-clicks", numbered(20, 2, prefix="click"), partitions=2)
    views = lab.new_topic("sub-views", numbered(30, 3, prefix="view"), partitions=3)
    lab.new_topic("sub-empty")
    lab.new_topic("other", numbered(5))
    ways = {
        "list": ("subscribe", f"{clicks},{views}"),
        "pattern": ("subscribePattern", lab.name("sub-.*")),
        "pattern without match": ("subscribePattern", lab.name("nothing-.*")),
        "partitions": ("assign", json.dumps({clicks: [1], views: [0, 2]})),
    }
    rows = {name: run(lab.spark, lab.bootstrap, way, what).collect() for name, (way, what) in ways.items()}
    for number, (name, (way, what)) in enumerate(ways.items()):
        streamed = run_stream(lab.spark, lab.bootstrap, way, what, f"subscriptions_{number}")
        rows[f"{name}, streamed"] = streamed.collect()
    return rows
