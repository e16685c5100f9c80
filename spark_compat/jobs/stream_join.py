"""Impressions joined with the clicks on them within a minute: two topics, inner and left outer."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab
from spark_compat.runner.records import FIRST_TIMESTAMP_MS, Record

WITHIN_A_MINUTE = "ad = clicked AND click_time BETWEEN shown_time AND shown_time + INTERVAL 1 MINUTE"


def run(spark: SparkSession, bootstrap: str, impressions: str, clicks: str, how: str) -> StreamingQuery:
    shown = _events(spark, bootstrap, impressions).selectExpr("key AS ad", "timestamp AS shown_time")
    clicked = _events(spark, bootstrap, clicks).selectExpr("key AS clicked", "timestamp AS click_time", "value AS user")
    joined = shown.withWatermark("shown_time", "10 seconds").join(
        clicked.withWatermark("click_time", "20 seconds"), F.expr(WITHIN_A_MINUTE), how
    )
    return joined.writeStream.format("memory").queryName(f"joined_{how}").start()


def _events(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("string(key) AS key", "string(value) AS value", "timestamp")
    )


def trial(lab: Lab) -> Rows:
    impressions = lab.new_topic("impressions", [_event(f"ad{n}", "", n) for n in range(60)])
    clicks = lab.new_topic("clicks", [_event(f"ad{n}", f"user{n % 7}", n + 5 * (n % 20)) for n in range(0, 60, 3)])
    queries = [run(lab.spark, lab.bootstrap, impressions, clicks, how) for how in ("inner", "leftOuter")]
    for query in queries:
        query.processAllAvailable()
    # Later events move the watermark past the first ones; impressions without a click come out without a match.
    lab.feed(impressions, [_event("ad-last", "", 600)])
    lab.feed(clicks, [_event("ad-last", "user-last", 601)])
    for query in queries:
        query.processAllAvailable()
        query.stop()
    return {how: lab.spark.table(f"joined_{how}").collect() for how in ("inner", "leftOuter")}


def _event(key: str, value: str, second: int) -> Record:
    return Record(value.encode(), key.encode(), timestamp_ms=FIRST_TIMESTAMP_MS + second * 1000)
