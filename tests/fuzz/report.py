"""What was run, in docs/reports/fuzz.md: each run adds a line a target to build/fuzz.jsonl, the page is made of all."""

from __future__ import annotations

import base64
import json
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fuzz.campaign import MAX_CPU_S, MAX_GROWTH_BYTES, Result
from tests.support.gateway_process import REPOSITORY

RUNS_PATH = REPOSITORY / "build" / "fuzz.jsonl"
REPORT_PATH = REPOSITORY / "docs" / "reports" / "fuzz.md"

_HEAD = f"""# Fuzzing of the decoders

Written by `python -m tests.fuzz --report`; `make test` replays the kept corpus and runs a few seconds more.

Inputs are whole ones of every version, changed: bits, lengths, varints, cut off, doubled, mixed. Those with a new
outcome are changed further. Each must give a value or a declared error, take at most {MAX_CPU_S} s of CPU and
{MAX_GROWTH_BYTES >> 20} MiB; encoders and second decoders, where there are any, must agree.
"""


def note(results: Sequence[Result], path: Path = RUNS_PATH) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as out:
        for result in results:
            out.write(json.dumps(_line(result)) + "\n")


def _line(result: Result) -> dict[str, Any]:
    return {
        "target": result.target,
        "seed": result.seed,
        "inputs": result.inputs,
        "seconds": round(result.seconds, 1),
        "outcomes": result.outcomes,
        "findings": [[found.what, base64.b64encode(found.data).decode()] for found in result.findings],
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def write(runs_path: Path = RUNS_PATH, report_path: Path = REPORT_PATH) -> None:
    """The page, of all runs that were noted."""
    runs = [json.loads(line) for line in runs_path.read_text().splitlines()]
    report_path.parent.mkdir(parents=True, exist_ok=True)
    report_path.write_text("\n".join([_HEAD, _facts(runs), "", *_table(runs), ""]))


def _facts(runs: Sequence[dict[str, Any]]) -> str:
    dates, commits, seeds = (sorted({run[key] for run in runs}) for key in ("date", "commit", "seed"))
    return (
        f"{' to '.join(dict.fromkeys((dates[0], dates[-1])))}, commit {', '.join(commits)}, seeds {seeds[0]} to "
        f"{seeds[-1]}; {platform.platform()}, {os.cpu_count()} processors, Python {platform.python_version()}."
    )


def _table(runs: Sequence[dict[str, Any]]) -> list[str]:
    lines = ["| decoder | inputs | µs an input | outcomes | findings |", "|---|---:|---:|---:|---:|"]
    for target in dict.fromkeys(run["target"] for run in runs):
        own = [run for run in runs if run["target"] == target]
        inputs, seconds = sum(run["inputs"] for run in own), sum(run["seconds"] for run in own)
        outcomes, findings = max(run["outcomes"] for run in own), sum(len(run["findings"]) for run in own)
        lines.append(f"| {target} | {inputs:,} | {seconds / inputs * 1e6:.0f} | {outcomes:,} | {findings} |")
    total, findings = sum(run["inputs"] for run in runs), sum(len(run["findings"]) for run in runs)
    return [*lines, f"| **all** | **{total:,}** | | | **{findings}** |"]


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.strip()
