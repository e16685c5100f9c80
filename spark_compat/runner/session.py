"""The Spark session: local, small, and with the Kafka source of its own version. As a program, it downloads the jars.
"""

import os
import sys
import tempfile
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from deploy.local.jars import pom_classpath
from deploy.local.java import java_executable

POM_DIR = Path(__file__).parents[1] / "poms"
MASTER = "local[2]"
DRIVER_MEMORY = "1g"

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": DRIVER_MEMORY,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def extra_jars() -> list[Path]:
    """The jars of the Kafka source and of Avro, with their dependencies that pyspark does not contain.

    Raises ResolveError, MissingToolError.
    """
    folder = Path(pom_classpath(POM_DIR / f"spark-{pyspark.__version__}.xml")).parent
    brought = {jar.name for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}
    return sorted(jar for jar in folder.glob("*.jar") if jar.name not in brought)


def start_session(work_dir: Path) -> SparkSession:
    java_executable()  # its error names the missing package
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_DIRS"] = tempfile.mkdtemp(prefix="spark-", dir=work_dir)
    builder = SparkSession.builder.master(MASTER).appName("spark_compat")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.jars", ",".join(map(str, extra_jars())))
    spark = builder.config("spark.sql.warehouse.dir", str(work_dir / "warehouse")).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


if __name__ == "__main__":
    extra_jars()
