"""Avro payloads behind a schema registry's five-byte header: written by a batch, read by a stream, broken ones null."""

import json

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro

from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab
from spark_compat.runner.records import Record

PAYMENT = json.dumps(
    {
        "type": "record",
        "name": "Payment",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "payer", "type": ["null", "string"]},
            {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
        ],
    }
)
HEADER = "X'0000000007'"
"""Magic byte and schema id."""
HEADER_BYTES = 5
ROWS = 300


def run_write(spark: SparkSession, bootstrap: str, topic: str) -> None:
    payments = spark.range(ROWS).select(
        "id",
        F.expr("if(id % 9 = 0, NULL, concat('payer-', id % 17)) AS payer"),
        F.expr("cast(id * 1.25 AS DECIMAL(12, 2)) AS amount"),
        F.expr("transform(sequence(0, int(id % 3)), n -> concat('t', n)) AS tags"),
    )
    encoded = payments.select(
        F.col("id").cast("string").alias("key"),
        F.concat(F.expr(HEADER), to_avro(F.struct("id", "payer", "amount", "tags"), PAYMENT)).alias("value"),
        F.expr("int(id % 2) AS partition"),
    )
    encoded.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", topic).save()


def run(spark: SparkSession, bootstrap: str, topic: str, table: str) -> None:
    payload = F.substring("value", HEADER_BYTES + 1, 1_000_000)
    payment = from_avro(payload, PAYMENT, {"mode": "PERMISSIVE"})
    rows: DataFrame = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .select("partition", F.col("key").cast("string"), payment.alias("p"))
        .select("partition", "key", "p.id", "p.payer", F.col("p.amount").cast("string"), "p.tags")
    )
    rows.writeStream.format("memory").queryName(table).trigger(availableNow=True).start().awaitTermination()


def trial(lab: Lab) -> Rows:
    topic = lab.new_topic("avro", partitions=2)
    run_write(lab.spark, lab.bootstrap, topic)
    lab.feed(topic, [Record(b"\0\0\0\0\7\xff\xff", b"broken"), Record(None, b"tombstone", 1)])
    run(lab.spark, lab.bootstrap, topic, "avro_payloads")
    return {"payments": lab.spark.table("avro_payloads").collect()}
