"""A stream with `kafka.isolation.level=read_committed`, while producers commit, abort, and are slow."""

from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab

EACH = 20
ROUNDS = 4
TIMEOUT_S = 30.0


def run(spark: SparkSession, bootstrap: str, topic: str, checkpoint: Path, table: str) -> StreamingQuery:
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("offset", "string(value) AS value")
        .writeStream.format("memory")
        .queryName(table)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )


def trial(lab: Lab) -> Rows:
    topic = lab.new_topic("read-committed")
    table = f"committed_{lab.side.name}".replace("-", "_")
    first, second = (_producer(lab, name) for name in ("first", "second"))
    query = run(lab.spark, lab.bootstrap, topic, lab.work_dir / "checkpoint", table)
    try:
        for number in range(ROUNDS):
            for producer, name in ((first, "first"), (second, "second")):
                producer.begin_transaction()
                _write(producer, topic, f"{name} {number}")
            if number % 2:
                first.commit_transaction(TIMEOUT_S)
                second.abort_transaction(TIMEOUT_S)
            else:
                second.commit_transaction(TIMEOUT_S)
                first.abort_transaction(TIMEOUT_S)
            lab.wait_for_rows(table, EACH * (number + 1), query)
        first.begin_transaction()
        _write(first, topic, "open")
        second.begin_transaction()
        _write(second, topic, "behind an open one")
        second.commit_transaction(TIMEOUT_S)
        before = lab.spark.table(table).collect()
        first.commit_transaction(TIMEOUT_S)
        lab.wait_for_rows(table, EACH * (ROUNDS + 2), query)
    finally:
        query.stop()
    found = lab.spark.table(table).orderBy("offset").select("value")  # the offsets of markers depend on timing
    return {"while one was open": [(row["value"],) for row in before], "in the end": found.collect()}


def _producer(lab: Lab, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": lab.bootstrap, "transactional.id": lab.name(f"committed-{name}")})
    producer.init_transactions(TIMEOUT_S)
    return producer


def _write(producer: Producer, topic: str, text: str) -> None:
    for number in range(EACH):
        producer.produce(topic, f"{text}: {number}", partition=0)
    producer.flush(TIMEOUT_S)
