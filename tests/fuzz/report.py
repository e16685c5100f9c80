"""All runs in docs/reports/fuzz.md: each run adds a line for each target to build/fuzz.jsonl, which the page is made
of."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fuzz.campaign import MAX_CPU_S, MAX_GROWTH_BYTES, Result
from tests.support.gateway_process import REPOSITORY
from tests.support.report import REPORTS, commit, machine, table

RUNS_PATH = REPOSITORY / "build" / "fuzz.jsonl"
REPORT_PATH = REPORTS / "fuzz.md"

_TITLE = "# Fuzzing of the decoders\n"
_HOW_TO_READ = f"""\
Each decoder gets valid inputs of every version that were changed: flipped bits, wrong lengths and varints, inputs that
are cut off, doubled or mixed. An input with a new outcome is changed further. Every input must give a value or a
declared error, in at most {MAX_CPU_S} s of CPU and {MAX_GROWTH_BYTES >> 20} MiB. Encoders and second decoders, where
they exist, must agree. A finding is an input that breaks one of these rules. `make test` replays the kept inputs and
tries new ones for a few seconds.
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
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def write(runs_path: Path = RUNS_PATH, report_path: Path = REPORT_PATH) -> None:
    """Write the page, with all recorded runs."""
    runs = [json.loads(line) for line in runs_path.read_text().splitlines()]
    report_path.parent.mkdir(parents=True, exist_ok=True)
    report_path.write_text("\n".join([_TITLE, _facts(runs), "", _HOW_TO_READ, *_table(runs), ""]))


def _facts(runs: Sequence[dict[str, Any]]) -> str:
    dates, commits, seeds = (sorted({run[key] for run in runs}) for key in ("date", "commit", "seed"))
    facts = machine()
    return (
        f"Written by `python -m tests.fuzz --report`: {' to '.join(dict.fromkeys((dates[0], dates[-1])))}, "
        f"commit {', '.join(commits)}, seeds {seeds[0]} to {seeds[-1]}.\n"
        f"{facts['cores']} cores, {facts['system']}, Python {facts['python']}."
    )


def _table(runs: Sequence[dict[str, Any]]) -> list[str]:
    rows = []
    for target in dict.fromkeys(run["target"] for run in runs):
        own = [run for run in runs if run["target"] == target]
        inputs, seconds = sum(run["inputs"] for run in own), sum(run["seconds"] for run in own)
        outcomes, findings = max(run["outcomes"] for run in own), sum(len(run["findings"]) for run in own)
        rows.append([target, f"{inputs:,}", f"{seconds / inputs * 1e6:.0f}", f"{outcomes:,}", f"{findings}"])
    total, findings = sum(run["inputs"] for run in runs), sum(len(run["findings"]) for run in runs)
    rows.append(["**all**", f"**{total:,}**", "", "", f"**{findings}**"])
    return table(("decoder", "inputs", "µs an input", "outcomes", "findings"), rows, texts=1)
