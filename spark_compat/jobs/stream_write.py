"""A streaming job from topic to topics: JSON orders in, routed by a topic column."""

import json

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab
from spark_compat.runner.records import FIRST_TIMESTAMP_MS, Record

SCHEMA = "id BIGINT, country STRING, amount DECIMAL(10,2), items ARRAY<STRUCT<sku: STRING, count: INT>>"

PIECES = "aggregate(order.items.count, 0, (a, b) -> a + b) AS pieces"


def run(spark: SparkSession, bootstrap: str, orders: str, domestic: str, foreign: str, checkpoint: str) -> None:
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", orders)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 70)
        .load()
    )
    order = source.select("key", F.from_json(F.col("value").cast("string"), SCHEMA).alias("order"))
    routed = order.where("order.id IS NOT NULL").select(
        "key",
        F.to_json(F.struct("order.id", "order.amount", F.expr(PIECES))).alias("value"),
        F.when(F.col("order.country") == "DE", domestic).otherwise(foreign).alias("topic"),
    )
    query = (
        routed.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def trial(lab: Lab) -> Rows:
    orders = lab.new_topic("json-orders", map(_order, range(300)), partitions=3)
    domestic = lab.new_topic("domestic", partitions=3)
    foreign = lab.new_topic("foreign", partitions=2)
    run(lab.spark, lab.bootstrap, orders, domestic, foreign, str(lab.work_dir / "checkpoint"))
    return {
        name: [(record.key, record.value, record.partition) for record in lab.read_all(topic)]
        for name, topic in (("domestic", domestic), ("foreign", foreign))
    }


def _order(number: int) -> Record:
    country = ("DE", "FR", "PL")[number % 3]
    items = [{"sku": "a", "count": 2}, {"sku": "b", "count": number % 4}]
    order = {"id": number, "country": country, "amount": number + 0.25, "items": items}
    value = "this is no JSON" if number % 50 == 49 else json.dumps(order)
    return Record(value.encode(), f"customer-{number % 13}".encode(), number % 3, FIRST_TIMESTAMP_MS + number)
