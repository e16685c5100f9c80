"""The job itself keeps the offsets, with its results, in one transaction of a database, as jobs with DStreams did.

The checkpoint is not used. A batch whose transaction fails ends the query; the next start continues from the stored
offsets.
"""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab
from spark_compat.runner.records import numbered

RECORDS = 900
FAILING_BATCHES = (2, 4)
TABLES = """
CREATE TABLE IF NOT EXISTS positions (topic TEXT, part INT, next INT, PRIMARY KEY (topic, part));
CREATE TABLE IF NOT EXISTS totals (key TEXT PRIMARY KEY, records INT, offsets INT);
"""


def run(spark: SparkSession, bootstrap: str, topic: str, database: Path, check: Callable[[int], None]) -> None:
    """`check` is called in the transaction."""

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        ends = batch.groupBy("partition").agg(F.max("offset")).collect()
        sums = batch.groupBy("key").agg(F.count("*"), F.sum("offset")).collect()
        batch.unpersist()
        with closing(sqlite3.connect(database)) as connection, connection:
            add = "ON CONFLICT DO UPDATE SET records = records + excluded.records, offsets = offsets + excluded.offsets"
            connection.executemany(f"INSERT INTO totals VALUES (?, ?, ?) {add}", [tuple(row) for row in sums])
            check(batch_id)
            places = [(topic, partition, offset + 1) for partition, offset in ends]
            connection.executemany("INSERT OR REPLACE INTO positions VALUES (?, ?, ?)", places)

    query = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", _stored_offsets(database, topic))
        .option("maxOffsetsPerTrigger", 100)
        .load()
        .selectExpr("string(key) AS key", "partition", "offset")
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", mkdtemp(dir=database.parent))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _stored_offsets(database: Path, topic: str) -> str:
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(TABLES)
        stored = connection.execute("SELECT part, next FROM positions WHERE topic = ?", (topic,)).fetchall()
    return json.dumps({topic: {str(part): place for part, place in stored}}) if stored else "earliest"


def trial(lab: Lab) -> Rows:
    topic = lab.new_topic("own-offsets", numbered(RECORDS, 3), partitions=3)
    database = lab.work_dir / "results.db"
    for failing in FAILING_BATCHES:
        try:
            run(lab.spark, lab.bootstrap, topic, database, partial(_fail_at, failing))
        except StreamingQueryException:
            continue
        raise AssertionError("the transaction did not fail")
    run(lab.spark, lab.bootstrap, topic, database, lambda _batch_id: None)
    with closing(sqlite3.connect(database)) as connection:
        totals = connection.execute("SELECT * FROM totals").fetchall()
        positions = connection.execute("SELECT * FROM positions").fetchall()
    counted = sum(records for _key, records, _offsets in totals)
    assert counted == RECORDS, f"{counted} counted of {RECORDS}"
    return {"totals": totals, "positions": positions}


def _fail_at(last: int, batch_id: int) -> None:
    if batch_id == last:
        raise sqlite3.OperationalError("the disk is full")
