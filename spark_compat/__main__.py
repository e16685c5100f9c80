"""Run the jobs on Apache Kafka and on the gateway, compare, write the report: `python -m spark_compat [JOB …]`."""

import argparse
import shutil
import signal
import sys
import tempfile
import uuid
from pathlib import Path

import pyspark

from spark_compat.runner.report import write_report
from spark_compat.runner.run import can_run, job_names, run_job
from spark_compat.runner.servers import both_sides
from spark_compat.runner.session import start_session
from spark_compat.runner.verdict import SAME, Verdict

WARM_UP_JOB = "headers_and_nulls"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m spark_compat", description=__doc__)
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"of: {', '.join(job_names())}; all by default")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="use this cluster instead of starting one")
    parser.add_argument("--gateway", metavar="HOST:PORT", help="use this gateway instead of starting one on a Pulsar")
    parser.add_argument("--no-report", dest="report", action="store_false", help="only compare: no times, no report")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and clean up
    verdicts = _run(options.jobs or job_names(), options.kafka, options.gateway, options.report)
    sys.exit(any(verdict.result != SAME for verdict in verdicts))


def _run(names: list[str], kafka: str | None, gateway: str | None, report: bool) -> list[Verdict]:
    work_dir = Path(tempfile.mkdtemp(prefix="spark-compat-"))
    run_id = f"r{uuid.uuid4().hex[:6]}"
    verdicts = []
    try:
        with both_sides(work_dir, kafka, gateway) as sides:
            spark = start_session(work_dir)
            if report:  # the first job in a JVM waits for Spark to load, so a job that is not timed runs first
                run_job(WARM_UP_JOB, spark, sides, f"{run_id}-warm-up", work_dir / "warm-up")
            for index, name in enumerate(names):
                if not can_run(name, sides):
                    print(f"{name}: not run, it kills the server")
                    continue
                # The side that runs first waits for the classes that Spark loads for this job, so the sides take turns.
                verdict = run_job(name, spark, sides[:: -1 if index % 2 else 1], run_id, work_dir)
                print(f"{name}: {verdict.result}  {verdict.kafka.duration_s:.1f} s, {verdict.gateway.duration_s:.1f} s")
                print("".join(f"  {line[:500]}\n" for line in verdict.details()), end="", flush=True)
                verdicts.append(verdict)
                if report:
                    write_report(pyspark.__version__, verdict)
            spark.stop()
    finally:
        shutil.rmtree(work_dir, ignore_errors=True)
    return verdicts


if __name__ == "__main__":
    main()
