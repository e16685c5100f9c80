"""Records as other applications leave them: headers, null keys and values (tombstones), empty and binary ones."""

from pyspark.sql import DataFrame, SparkSession

from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab
from spark_compat.runner.records import Record

RECORDS = (
    Record(b"plain", b"key"),
    Record(None, b"tombstone"),
    Record(b"no key", None),
    Record(None, None),
    Record(b"", b""),
    Record(bytes(range(256)), bytes(reversed(range(256)))),
    Record("größer".encode(), "ключ".encode()),
    Record(b"one header", headers=(("trace", b"abc"),)),
    Record(b"a header twice", headers=(("h", b"1"), ("h", b"2"), ("other", b"\x00\xff"))),
    Record(b"null and empty headers", headers=(("null", None), ("empty", b""), ("", b"no name"))),
    Record(b"x" * 900_000, b"large"),
)


def run(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .load()
        .selectExpr("offset", "key", "left(value, 300) AS value", "length(value) AS size", "headers")
    )


def trial(lab: Lab) -> Rows:
    topic = lab.new_topic("headers", RECORDS)
    return {"records": run(lab.spark, lab.bootstrap, topic).collect()}
