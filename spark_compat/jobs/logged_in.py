"""Over SASL_SSL, with a password: a batch read, a stream from topic to topic, and a job with a wrong password."""

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from spark_compat.runner.compare import Rows
from spark_compat.runner.lab import Lab
from spark_compat.runner.records import numbered
from tests.support.jaas import jaas_config
from tests.support.logins import Login

NEEDS_OWN_SERVERS = True
"""Servers that were started elsewhere may have no such listener."""
LISTENER = "SASL_TLS"
MECHANISMS = ("PLAIN", "SCRAM-SHA-512")
RECORDS = 200
REFUSED = "SaslAuthenticationException"


def options(login: Login) -> dict[str, str]:
    """Kafka's settings, each with the prefix `kafka.`."""
    return {
        "kafka.bootstrap.servers": login["bootstrap"],
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": login["mechanism"],
        "kafka.sasl.jaas.config": jaas_config(login["mechanism"], login["user"], login["password"]),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": login["authority"],
    }


def read(spark: SparkSession, cluster: Mapping[str, str], topic: str) -> DataFrame:
    rows = spark.read.format("kafka").options(**cluster).option("subscribe", topic).load()
    return rows.selectExpr("key", "value", "topic", "partition", "offset", "timestamp")


def copy(spark: SparkSession, cluster: Mapping[str, str], source: str, target: str, checkpoint: Path) -> None:
    rows = spark.readStream.format("kafka").options(**cluster).option("subscribe", source)
    copied = rows.option("startingOffsets", "earliest").load().selectExpr("key", "concat('copy of ', value) AS value")
    writing = copied.writeStream.format("kafka").options(**cluster).option("topic", target)
    writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


def refusal(spark: SparkSession, cluster: Mapping[str, str], topic: str) -> str:
    try:
        read(spark, cluster, topic).collect()
    except Exception as error:  # the exception is Spark's or Java's; only its message is compared
        return REFUSED if REFUSED in str(error) else str(error)
    return "let in"


def trial(lab: Lab) -> Rows:
    source = lab.new_topic("logged-in", numbered(RECORDS, 2), partitions=2)
    found = {}
    for mechanism in MECHANISMS:
        login = lab.side.login(LISTENER, mechanism)
        assert login is not None
        target = lab.new_topic(f"copies-{mechanism.lower()}")
        copy(lab.spark, options(login), source, target, lab.work_dir / mechanism)
        found[f"{mechanism}: read"] = read(lab.spark, options(login), source).collect()
        found[f"{mechanism}: copied"] = read(lab.spark, options(login), target).select("key", "value").collect()
        wrong = options(login | {"password": "wrong"})
        found[f"{mechanism}: a wrong password"] = [(refusal(lab.spark, wrong, source),)]
    return found
