"""The group ids that Spark reads with: its own, with a given prefix, or a given id. Spark never commits."""

from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab
from spark_compat.runner.records import numbered

COMMITTED = 7


def run(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("fetchOffset.numRetries", "5")
        .option("fetchOffset.retryIntervalMs", "20")
        .options(**options)
        .load()
        .selectExpr("partition", "offset", "string(value) AS value")
    )


def trial(lab: Lab) -> Rows:
    topic = lab.new_topic("groups", numbered(40, 2), partitions=2)
    # Spark caches consumers by group and partition, and does not reuse one for another cluster.
    given = lab.name(f"given-{lab.side.name}")
    _committed(lab.bootstrap, given, TopicPartition(topic, 0, COMMITTED))
    rows = {
        "kafka.group.id": run(lab.spark, lab.bootstrap, topic, **{"kafka.group.id": given}).collect(),
        "groupIdPrefix": run(lab.spark, lab.bootstrap, topic, groupIdPrefix=lab.name("etl")).collect(),
    }
    # Spark's old way of fetching offsets joins a group; the new one uses the admin client.
    lab.spark.conf.set("spark.sql.streaming.kafka.useDeprecatedOffsetFetching", "true")
    try:
        rows["offsets by way of a group"] = run(lab.spark, lab.bootstrap, topic).collect()
    finally:
        lab.spark.conf.unset("spark.sql.streaming.kafka.useDeprecatedOffsetFetching")
    rows["the group's place"] = [(_committed(lab.bootstrap, given, TopicPartition(topic, 0)),)]
    return rows


def _committed(bootstrap: str, group: str, position: TopicPartition) -> int:
    """Commit the position if it has an offset, and return the group's offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        if position.offset >= 0:
            consumer.commit(offsets=[position], asynchronous=False)
        return int(consumer.committed([position], 30.0)[0].offset)
    finally:
        consumer.close()
