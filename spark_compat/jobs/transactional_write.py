"""A job whose tasks write in transactions of their own: no record of a failed task is read."""

from collections.abc import Iterator

import confluent_kafka  # Spark can send the module to its workers, but not the class
from pyspark.sql import DataFrame, Row, SparkSession

from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab

ROWS = 400
TASKS = 4
TIMEOUT_S = 30.0


def write(rows: DataFrame, bootstrap: str, topic: str, job: str) -> None:
    """One transaction for each task. The first attempt of each task is aborted, as a task that fails aborts it."""

    def write_partition(number: int, content: Iterator[Row]) -> Iterator[int]:
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{job}-{number}"})
        producer.init_transactions(TIMEOUT_S)
        kept = [(row["key"], row["value"]) for row in content]
        for attempt in ("failed", "final"):
            producer.begin_transaction()
            for key, value in kept:
                producer.produce(topic, value=f"{value} {attempt}", key=key, partition=number)
            if attempt == "final":
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.flush(TIMEOUT_S)
                producer.abort_transaction(TIMEOUT_S)
        yield len(kept)

    rows.rdd.mapPartitionsWithIndex(write_partition).sum()


def read(spark: SparkSession, bootstrap: str, topic: str, isolation: str) -> DataFrame:
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", isolation)
        .option("subscribe", topic)
        .load()
        .selectExpr("partition", "offset", "string(key) AS key", "string(value) AS value")
    )


def trial(lab: Lab) -> Rows:
    topic = lab.new_topic("transactional-write", partitions=TASKS)
    rows = lab.spark.range(ROWS).selectExpr("string(id) AS key", "concat('row ', id) AS value").repartition(TASKS)
    write(rows, lab.bootstrap, topic, lab.name("job"))
    committed = read(lab.spark, lab.bootstrap, topic, "read_committed")
    everything = read(lab.spark, lab.bootstrap, topic, "read_uncommitted")
    return {
        "committed": sorted(row["value"] for row in committed.select("value").collect()),
        "attempts": [(everything.where(f"value LIKE '% {each}'").count(),) for each in ("failed", "final")],
    }
