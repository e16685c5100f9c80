"""The server is killed under a running query and comes back: the query goes on, with every record once."""

import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab
from spark_compat.runner.records import numbered

NEEDS_OWN_SERVERS = True
BEFORE = 600
AFTER = 400
DOWN_S = 3.0


def run(spark: SparkSession, bootstrap: str, topic: str, output: Path) -> StreamingQuery:
    def write(batch: DataFrame, batch_id: int) -> None:
        batch.write.mode("overwrite").parquet(str(output / "rows" / f"batch={batch_id}"))

    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 100)
        .load()
        .selectExpr("string(key) AS key", "string(value) AS value", "partition", "offset", "timestamp")
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(output / "checkpoint"))
        .start()
    )


def trial(lab: Lab) -> Rows:
    topic = lab.new_topic("restart", numbered(BEFORE, 3), partitions=3)
    query = run(lab.spark, lab.bootstrap, topic, lab.work_dir)
    lab.wait_for_progress(query, 2)
    lab.side.kill_server()
    time.sleep(DOWN_S)
    lab.side.start_server()
    lab.feed(topic, numbered(AFTER, 3, first=BEFORE))
    if query.exception():  # it may end: then it starts again from its checkpoint
        query = run(lab.spark, lab.bootstrap, topic, lab.work_dir)
    query.processAllAvailable()
    query.stop()
    rows = lab.spark.read.parquet(str(lab.work_dir / "rows")).drop("batch").collect()
    assert len(rows) == BEFORE + AFTER, f"{len(rows)} rows from {BEFORE + AFTER} records"
    return {"rows": rows}
