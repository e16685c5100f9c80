"""A batch write of rows with a topic column, keys, headers, and chosen partitions; and one to a fixed topic."""

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab

ROWS = 500


def run(spark: SparkSession, bootstrap: str, orders: str, returns: str) -> None:
    events = spark.range(ROWS).selectExpr(
        f"if(id % 5 = 0, '{returns}', '{orders}') AS topic",
        "if(id % 7 = 0, NULL, concat('customer-', id % 20)) AS key",
        "if(id % 11 = 0, NULL, to_json(named_struct('order', id, 'amount', id * 1.5))) AS value",
        "array(named_struct('key', 'source', 'value', encode(string(id % 3), 'utf-8'))) AS headers",
    )
    _kafka(events, bootstrap).option("includeHeaders", "true").save()


def run_partitioned(spark: SparkSession, bootstrap: str, topic: str) -> None:
    rows = spark.range(ROWS).selectExpr("string(id) AS value", "int(id % 3) AS partition")
    _kafka(rows, bootstrap).option("topic", topic).save()


def _kafka(rows: DataFrame, bootstrap: str) -> DataFrameWriter:
    return rows.write.format("kafka").option("kafka.bootstrap.servers", bootstrap)


def trial(lab: Lab) -> Rows:
    orders = lab.new_topic("orders", partitions=3)
    returns = lab.new_topic("returns", partitions=2)
    chosen = lab.new_topic("chosen", partitions=3)
    run(lab.spark, lab.bootstrap, orders, returns)
    run_partitioned(lab.spark, lab.bootstrap, chosen)
    # For a row without a key, the producer chooses a different partition each time.
    return {
        "orders": [(r.key, r.value, r.headers, r.partition if r.key else None) for r in lab.read_all(orders)],
        "returns": [(r.key, r.value, r.headers, r.partition if r.key else None) for r in lab.read_all(returns)],
        "chosen partitions": [(r.value, r.partition) for r in lab.read_all(chosen)],
    }
