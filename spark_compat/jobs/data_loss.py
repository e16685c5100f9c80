"""Records expire, or the topic is deleted and created again, before a query has read them: failOnDataLoss true and
false."""

from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab
from spark_compat.runner.records import numbered

KNOWN_REASONS = ("Some data may have been lost", "Some data may be lost", "may have been lost", "data loss")


def run(spark: SparkSession, bootstrap: str, topic: str, output: Path, fail_on_data_loss: bool) -> None:
    def write(batch: DataFrame, batch_id: int) -> None:
        batch.write.mode("overwrite").parquet(str(output / "rows" / f"batch={batch_id}"))

    query = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", str(fail_on_data_loss).lower())
        .load()
        .selectExpr("partition", "offset", "string(value) AS value")
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(output / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def reason(failure: StreamingQueryException) -> str:
    """The reason, without details that differ from run to run."""
    reasons = [known for known in KNOWN_REASONS if known in str(failure)]
    return reasons[0] if reasons else str(failure)


def trial(lab: Lab) -> Rows:
    rows = {}
    for fail_on_data_loss in (True, False):
        suffix = "fails" if fail_on_data_loss else "goes on"
        expired = lab.new_topic(f"expired-{fail_on_data_loss}", numbered(40, 2), partitions=2)
        renewed = lab.new_topic(f"renewed-{fail_on_data_loss}", numbered(40, 2), partitions=2)
        for topic in (expired, renewed):
            run(lab.spark, lab.bootstrap, topic, lab.work_dir / topic, fail_on_data_loss)
        lab.feed(expired, numbered(40, 2, first=40))
        lab.delete_records(expired, {0: 30, 1: 40})
        lab.delete_topic(renewed)
        lab.wait_until_gone(renewed)
        lab.new_topic(f"renewed-{fail_on_data_loss}", numbered(10, 2, first=100), partitions=2)
        rows[f"expired, {suffix}"] = _second_run(lab, expired, fail_on_data_loss)
        rows[f"renewed, {suffix}"] = _second_run(lab, renewed, fail_on_data_loss)
    return rows


def _second_run(lab: Lab, topic: str, fail_on_data_loss: bool) -> list[tuple[object, ...]]:
    output = lab.work_dir / topic
    ending = "ended well"
    try:
        run(lab.spark, lab.bootstrap, topic, output, fail_on_data_loss)
    except StreamingQueryException as failure:
        ending = reason(failure)
    written = lab.spark.read.parquet(str(output / "rows")).collect()
    return [*map(tuple, written), (ending,)]
