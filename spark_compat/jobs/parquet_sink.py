"""foreachBatch into Parquet with a checkpoint. The driver is killed twice and started again: every record once."""

import os
import signal
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from deploy.local.process import ChildProcess
from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab
from spark_compat.runner.records import numbered
from spark_compat.runner.session import start_session

RECORDS = 2_000
KILLS = 2
TIMEOUT_S = 180.0


def run(spark: SparkSession, bootstrap: str, topic: str, output: Path) -> None:
    def write(batch: DataFrame, batch_id: int) -> None:
        """A batch that is retried overwrites the rows of its first attempt."""
        batch.write.mode("overwrite").parquet(str(output / "rows" / f"batch={batch_id}"))

    query = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 200)
        .load()
        .selectExpr("string(key) AS key", "string(value) AS value", "partition", "offset")
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(output / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def trial(lab: Lab) -> Rows:
    topic = lab.new_topic("parquet", numbered(RECORDS, 3), partitions=3)
    for kill in range(KILLS):
        _kill_driver_after_batch(lab, topic, 2 + 3 * kill)
    run(lab.spark, lab.bootstrap, topic, lab.work_dir)
    rows = lab.spark.read.parquet(str(lab.work_dir / "rows")).drop("batch").collect()
    assert len(rows) == RECORDS, f"{len(rows)} rows from {RECORDS} records"
    return {"rows": rows}


def _kill_driver_after_batch(lab: Lab, topic: str, batch_id: int) -> None:
    """Run the job in a driver of its own, and SIGKILL the driver and its JVM when this batch is written."""
    command = [sys.executable, "-m", "spark_compat.jobs.parquet_sink", lab.bootstrap, topic, str(lab.work_dir)]
    driver = ChildProcess("the driver", lab.work_dir / "driver.log")
    driver.start(command)
    written = lab.work_dir / "rows" / f"batch={batch_id}" / "_SUCCESS"
    try:
        driver.wait_until(written.exists, TIMEOUT_S)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)  # its JVM too
        driver.kill()


if __name__ == "__main__":
    run(start_session(Path(sys.argv[3])), sys.argv[1], sys.argv[2], Path(sys.argv[3]))
