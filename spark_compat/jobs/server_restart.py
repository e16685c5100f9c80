"""The server is killed while a query runs, and restarted: the query continues, with every record once."""

from collections.abc import Callable
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab
from spark_compat.runner.records import numbered, paced

NEEDS_OWN_SERVERS = True
PARTITIONS = 3
BEFORE = 600
DURING = 2_000
DURING_PER_S = 150.0
DOWN_S = 3.0
MAX_STARTS = 5


def run(spark: SparkSession, bootstrap: str, topic: str, output: Path) -> StreamingQuery:
    def write(batch: DataFrame, batch_id: int) -> None:
        batch.write.mode("overwrite").parquet(str(output / "rows" / f"batch={batch_id}"))

    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 300)
        .load()
        .selectExpr("string(key) AS key", "string(value) AS value", "partition", "offset", "timestamp")
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(output / "checkpoint"))
        .start()
    )


def run_to_end(spark: SparkSession, bootstrap: str, topic: str, output: Path, query: StreamingQuery) -> list[Row]:
    """A query that failed is started again from its checkpoint, as a supervisor would do. Each record arrives exactly
    once."""
    for _ in range(MAX_STARTS):
        try:
            query.processAllAvailable()
            break
        except StreamingQueryException:
            query = run(spark, bootstrap, topic, output)
    query.stop()
    rows = spark.read.parquet(str(output / "rows")).drop("batch").collect()
    assert len(rows) == BEFORE + DURING, f"{len(rows)} rows from {BEFORE + DURING} records"
    return list(rows)


def ride_out(lab: Lab, name: str, fault: Callable[[], None]) -> Rows:
    """All rows of a query that runs, and gets new records, during the fault."""
    topic = lab.new_topic(name, numbered(BEFORE, PARTITIONS), PARTITIONS)
    query = run(lab.spark, lab.bootstrap, topic, lab.work_dir)
    lab.wait_for_progress(query, 1)
    with lab.feeding(topic, paced(numbered(DURING, PARTITIONS, first=BEFORE), DURING_PER_S)):
        fault()
    return {"rows": run_to_end(lab.spark, lab.bootstrap, topic, lab.work_dir, query)}


def trial(lab: Lab) -> Rows:
    return ride_out(lab, "restart", lambda: lab.faults.restart(DOWN_S))
