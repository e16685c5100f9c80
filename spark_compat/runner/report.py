"""docs/reports/spark.md: one table for each Spark version that was run on this machine."""

import json
from pathlib import Path
from typing import Any

from spark_compat.runner.verdict import Verdict
from tests.support.report import REPORTS, machine, table, today

REPOSITORY = Path(__file__).parents[2]
RESULTS_DIR = REPOSITORY / "build" / "spark_compat"
SHORTEST_S = 0.01
"""Seconds are rounded to this."""
REPORT = REPORTS / "spark.md"
JOBS = "../../spark_compat/jobs"
"""The path of the jobs in links of the report."""


def write_report(version: str, verdict: Verdict) -> None:
    """Write the newest verdict on each job, for every Spark version that has one."""
    RESULTS_DIR.mkdir(parents=True, exist_ok=True)
    path = RESULTS_DIR / f"{version}.json"
    verdicts = json.loads(path.read_text()) if path.exists() else {}
    verdicts[verdict.job] = verdict.to_json()
    path.write_text(json.dumps(verdicts, indent=1, sort_keys=True))
    versions = sorted((path.stem for path in RESULTS_DIR.glob("*.json")), reverse=True)
    sections = [_section(each, json.loads((RESULTS_DIR / f"{each}.json").read_text())) for each in versions]
    REPORT.write_text("\n".join([HEAD.format(today=today(), **machine()), *sections]))


HEAD = """\
# PySpark jobs

Written by `make spark`: {today}, {cores} cores, {system}, Python {python}; load average at the end {load_average[0]}.

Each job ran on Apache Kafka 3.9.2 and on the gateway with Pulsar 4.0.7: the same records and the same code with another
bootstrap address. *same* means that all rows and all columns are equal. The differences that an application can meet
are in [guides/spark.md](../guides/spark.md).

Times are those of whole trials, with the writing of their input. Kafka and the gateway take turns in going first,
because the first one pays for what Spark loads. *ratio* is the gateway's time divided by Kafka's. Other programs on the
machine stretch the times: alone, a run has a load average of about 3.
"""


HEADINGS = ("job", "what it does", "result", "rows compared", "Kafka s", "gateway s", "ratio")


def _section(version: str, by_job: dict[str, Any]) -> str:
    verdicts = [by_job[job] for job in sorted(by_job)]
    same = sum(verdict["result"] == "same" for verdict in verdicts)
    lines = [
        f"## Spark {version}: {same} of {len(verdicts)} jobs the same",
        "",
        *table(HEADINGS, (_row(verdict) for verdict in verdicts), texts=3),
        "",
    ]
    lines += _timings(verdicts)
    for verdict in verdicts:
        lines += [f"- {verdict['job']}: {line[:300]}" for line in verdict["details"]]
    return "\n".join(lines) + "\n"


def _timings(verdicts: list[dict[str, Any]]) -> list[str]:
    """A table of the parts that trials measured. The ratio compares rates: above 1 the gateway is faster."""
    rows = [
        (name, f"{kafka_s:.2f}", f"{gateway_s:.2f}", f"{kafka_s / max(gateway_s, SHORTEST_S):.2f}")
        for verdict in verdicts
        if not verdict["gateway"]["error"]
        for name, kafka_s in verdict["kafka"]["timings"].items()
        for gateway_s in [verdict["gateway"]["timings"][name]]
    ]
    headings = ("measured alone, best of several", "Kafka s", "gateway s", "rate against Kafka's")
    return [*table(headings, rows, texts=1), ""] if rows else []


def _row(verdict: dict[str, Any]) -> list[str]:
    kafka, gateway = verdict["kafka"], verdict["gateway"]
    failed = kafka["error"] or gateway["error"]
    ratio = "" if failed else f"{gateway['seconds'] / max(kafka['seconds'], SHORTEST_S):.2f}"
    return [
        f"[{verdict['job']}]({JOBS}/{verdict['job']}.py)",
        verdict["title"],
        verdict["result"],
        str(sum(kafka["rows"].values())),
        f"{kafka['seconds']:.1f}",
        f"{gateway['seconds']:.1f}",
        ratio,
    ]
