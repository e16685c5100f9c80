"""Runs trials on both sides and compares the results."""

import importlib
import pkgutil
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from pyspark.sql import SparkSession

from spark_compat import jobs
from spark_compat.runner.compare import canonical
from spark_compat.runner.lab import Lab
from spark_compat.runner.servers import Side
from spark_compat.runner.verdict import Outcome, Verdict


def job_names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(jobs.__path__))


def can_run(name: str, sides: Sequence[Side]) -> bool:
    """Jobs that kill servers run only on servers that were started for them."""
    return all(side.faults for side in sides) or not getattr(_module(name), "NEEDS_OWN_SERVERS", False)


def run_job(name: str, spark: SparkSession, sides: Sequence[Side], run_id: str, work_dir: Path) -> Verdict:
    module = _module(name)
    outcomes = {}
    for side in sides:
        outcomes[side.name] = _outcome(module, Lab(spark, side, run_id, _new_dir(work_dir / side.name / name)))
    return Verdict(name, _title(module), outcomes["kafka"], outcomes["gateway"])


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"spark_compat.jobs.{name}")


def _outcome(module: ModuleType, lab: Lab) -> Outcome:
    began = time.monotonic()
    try:
        rows = canonical(module.trial(lab))
        error = None
    except Exception as failure:  # a job that fails is a result
        traceback.print_exc()
        rows, error = {}, f"{type(failure).__name__}: {failure}".splitlines()[0]
    finally:
        for query in lab.spark.streams.active:
            query.stop()
    return Outcome(time.monotonic() - began, rows, error, lab.timings)


def _title(module: ModuleType) -> str:
    return (module.__doc__ or "").split("\n\n")[0].replace("\n", " ")


def _new_dir(path: Path) -> Path:
    path.mkdir(parents=True)
    return path
