"""One of a query's topics is deleted while it runs: with failOnDataLoss=true the query fails, otherwise it continues.
"""

from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_compat.jobs.data_loss import reason
from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab
from spark_compat.runner.records import numbered


def run(spark: SparkSession, bootstrap: str, pattern: str, table: str, output: Path, **options: str) -> StreamingQuery:
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.metadata.max.age.ms", "1000")
        .option("subscribePattern", pattern)
        .option("startingOffsets", "earliest")
        .options(**options)
        .load()
        .selectExpr("topic", "partition", "offset", "string(value) AS value")
        .writeStream.format("memory")
        .queryName(table)
        .option("checkpointLocation", str(output))
        # A client that lists offsets while the topic is being deleted waits for its timeout of one minute.
        .trigger(processingTime="2 seconds")
        .start()
    )


def trial(lab: Lab) -> Rows:
    return {f"failOnDataLoss {setting}": _trial(lab, setting) for setting in ("true", "false")}


def _trial(lab: Lab, setting: str) -> list[tuple[object, ...]]:
    kept = lab.new_topic(f"doomed-{setting}-kept", numbered(20, 2), partitions=2)
    deleted = lab.new_topic(f"doomed-{setting}-deleted", numbered(20, 2), partitions=2)
    table = f"doomed_{setting}"
    pattern = lab.name(f"doomed-{setting}-.*")
    query = run(lab.spark, lab.bootstrap, pattern, table, lab.work_dir / setting, failOnDataLoss=setting)
    lab.wait_for_rows(table, 40, query)
    lab.delete_topic(deleted)
    lab.wait_until_gone(deleted)
    ending = "goes on"
    try:
        lab.feed(kept, numbered(10, 2, first=20))
        lab.wait_for_rows(table, 50, query)
    except StreamingQueryException as failure:
        ending = reason(failure)
    query.stop()
    # If the query failed, the number of rows depends on timing.
    rows = lab.spark.table(table).collect() if ending == "goes on" else []
    return [*map(tuple, rows), (ending,)]
