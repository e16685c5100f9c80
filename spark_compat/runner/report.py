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


def write_report(version: str, verdict: Verdict) -> None:
    """The newest verdict on each job counts, of every Spark version that has any."""
    RESULTS_DIR.mkdir(parents=True, exist_ok=True)
    path = RESULTS_DIR / f"{version}.json"
    verdicts = json.loads(path.read_text()) if path.exists() else {}
    verdicts[verdict.job] = verdict.to_json()
    path.write_text(json.dumps(verdicts, indent=1, sort_keys=True))
    versions = sorted((path.stem for path in RESULTS_DIR.glob("*.json")), reverse=True)
    sections = [_section(each, json.loads((RESULTS_DIR / f"{each}.json").read_text())) for each in versions]
    REPORT.write_text("\n".join([HEAD.format(cores=os.cpu_count(), load=os.getloadavg()[0]), *sections]))


HEAD = """\
# PySpark jobs on the gateway

Written by `make spark`: each job of [jobs](jobs) ran on Apache Kafka 3.9.2 and on the gateway with Pulsar 4.0.7: same
records, same code, another bootstrap address. *Same* means the same rows, all columns compared. Times are those of
whole trials, feeding included; who goes first pays for what Spark loads for the job, and the sides take turns. It was a
machine of {cores} cores, whose load average was {load:.0f} in the end (alone, the run makes about 3): other programs
stretch the times. What differs is explained in [FINDINGS.md](FINDINGS.md).
"""


def _section(version: str, by_job: dict[str, Any]) -> str:
    verdicts = [by_job[job] for job in sorted(by_job)]
    same = sum(verdict["result"] == "same" for verdict in verdicts)
    lines = [
        f"## Spark {version}: {same} of {len(verdicts)} jobs the same",
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
