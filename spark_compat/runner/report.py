"""REPORT.md: one table for each Spark version that was run on this machine."""

import json
import os
from pathlib import Path
from typing import Any

from spark_compat.runner.verdict import Verdict

REPOSITORY = Path(__file__).parents[2]
RESULTS_DIR = REPOSITORY / "build" / "spark_compat"
SHORTEST_S = 0.01
"""As the seconds are rounded."""
REPORT = REPOSITORY / "spark_compat" / "REPORT.md"


def write_report(version: str, verdicts: list[Verdict]) -> None:
    RESULTS_DIR.mkdir(parents=True, exist_ok=True)
    result = {"spark": version, "verdicts": [verdict.to_json() for verdict in verdicts]}
    (RESULTS_DIR / f"{version}.json").write_text(json.dumps(result, indent=1))
    runs = [json.loads(path.read_text()) for path in sorted(RESULTS_DIR.glob("*.json"), reverse=True)]
    REPORT.write_text("\n".join([HEAD.format(cores=os.cpu_count()), *(_section(run) for run in runs)]))


HEAD = """\
# PySpark jobs on the gateway

Written by `make spark`: each job of [jobs](jobs) ran on Apache Kafka 3.9.2 and on the gateway with Pulsar 4.0.7: same
records, same code, another bootstrap address. *Same* means the same rows, all columns compared. Times are those of
whole trials, feeding included, on a machine of {cores} cores. What differs is explained in [FINDINGS.md](FINDINGS.md).
"""


def _section(run: dict[str, Any]) -> str:
    verdicts = run["verdicts"]
    same = sum(verdict["result"] == "same" for verdict in verdicts)
    lines = [
        f"## Spark {run['spark']}: {same} of {len(verdicts)} jobs the same",
        "",
        "| job | what it does | result | rows compared | Kafka s | gateway s | ratio |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: |",
        *(_row(verdict) for verdict in verdicts),
        "",
    ]
    lines += _timings(verdicts)
    for verdict in verdicts:
        lines += [f"- {verdict['job']}: {line[:300]}" for line in verdict["details"]]
    return "\n".join(lines) + "\n"


def _timings(verdicts: list[dict[str, Any]]) -> list[str]:
    """What trials measured apart. The ratio is that of the rates: above 1 the gateway is faster."""
    rows = [
        f"| {name} | {kafka_s:.2f} | {verdict['gateway']['timings'][name]:.2f} "
        f"| {kafka_s / max(verdict['gateway']['timings'][name], SHORTEST_S):.2f} |"
        for verdict in verdicts
        if not verdict["gateway"]["error"]
        for name, kafka_s in verdict["kafka"]["timings"].items()
    ]
    head = [
        "| measured alone, best of several | Kafka s | gateway s | rate against Kafka's |",
        "| --- | ---: | ---: | ---: |",
    ]
    return [*head, *rows, ""] if rows else []


def _row(verdict: dict[str, Any]) -> str:
    kafka, gateway = verdict["kafka"], verdict["gateway"]
    rows = sum(kafka["rows"].values())
    failed = kafka["error"] or gateway["error"]
    ratio = "" if failed else f"{gateway['seconds'] / max(kafka['seconds'], SHORTEST_S):.2f}"
    job = f"[{verdict['job']}](jobs/{verdict['job']}.py)"
    times = f"{kafka['seconds']:.1f} | {gateway['seconds']:.1f} | {ratio}"
    return f"| {job} | {verdict['title']} | {verdict['result']} | {rows} | {times} |"
