"""The run as a table on the terminal, as JSON, and as the last part of docs/benchmarks.md."""

import json
import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench.goals import GOALS, Goal
from tests.bench.run import Row, Run

MARK = "<!-- The rest is written by `make bench`. -->"
TARGET_NAMES = {"pulsar": "Pulsar", "gateway": "gateway", "kafka": "Kafka"}
Cells = list[str]
WIDTH = 120

RATES = ["batches/s", "records/s"]
COSTS = ["CPU µs/batch", "MB"]
HEADINGS: dict[str, tuple[str, Cells]] = {
    "produce": ("Produce: records a batch, from so many in flight", [*RATES, "of Pulsar", "of Kafka", *COSTS]),
    "tail": ("Consume from memory: records a batch", [*RATES, "of Kafka", "batches/fetch", *COSTS]),
    "catch-up": (
        "Consume from the start: records a batch", [*RATES, "of Pulsar", "of Kafka", "first after ms", *COSTS],
    ),
    "latency": (
        "Latency at 100 records/s, ms", ["produce p50", "produce p99", "end to end p50", "end to end p99"],
    ),
    "memory": ("Memory of the gateway", ["MB", "peak MB"]),
    "tools": ("Kafka's own tools", ["records/s", "of Kafka"]),
    "groups": ("Groups: requests, from so many in flight", ["requests/s", "of Kafka", "p50", "p99", "CPU µs/request"]),
    "many groups": (
        "Groups at rest, a heartbeat of each member every 3 s", ["requests/s", "p50", "p99", "busy", "MB", "stable s"],
    ),
    "cold start": (
        "Partitions that nobody has used yet, 20 records in each", ["s", "records/s", "CPU ms/partition",
        "produce p50", "produce p99"],
    ),
    "loading": ("Start of a gateway", ["offsets/s", "ready s", "ready s without", "MB"]),
}  # fmt: skip
FIGURES = {
    "batches/s": "batches_per_s", "records/s": "records_per_s", "batches/fetch": "batches_per_fetch",
    "CPU µs/batch": "cpu_us_per_batch", "MB": "resident_mb", "peak MB": "peak_mb", "first after ms": "first_batch_ms",
    "produce p50": "produce_ms.p50", "produce p99": "produce_ms.p99",
    "requests/s": "batches_per_s", "p50": "request_ms.p50", "p99": "request_ms.p99",
    "CPU µs/request": "cpu_us_per_batch", "busy": "server_busy", "stable s": "stable_s",
    "s": "all_s", "CPU ms/partition": "cpu_ms_per_partition",
    "offsets/s": "offsets_per_s", "ready s": "ready_s", "ready s without": "ready_empty_s",
    "end to end p50": "end_to_end_ms.p50", "end to end p99": "end_to_end_ms.p99",
}  # fmt: skip
RATIOS = {"of Pulsar": "pulsar", "of Kafka": "kafka"}


def show(run: Run) -> None:
    console = Console(width=max(WIDTH, Console().width))
    for title, headings, rows in tables(run):
        table = Table(title=title, title_justify="left")
        for number, heading in enumerate(headings):
            table.add_column(heading, justify="left" if number < 2 else "right")
        for cells in rows:
            table.add_row(*cells)
        console.print(table)
    for what, reason in run.left_out.items():
        console.print(f"Left out: {what}: {reason}")


def tables(run: Run) -> Iterable[tuple[str, Cells, list[Cells]]]:
    """(title, headings, rows) of each part that was run, then of the goals."""
    for part, (title, columns) in HEADINGS.items():
        rows = [row for row in run.rows.values() if row.part == part]
        if rows:
            cells = [
                [row.case, TARGET_NAMES[row.target], *(_cell(run, row, column) for column in columns)] for row in rows
            ]
            yield title, ["case", "through", *columns], cells
    measured = [_goal_cells(run, goal) for goal in GOALS if goal.measure(run) is not None]
    if measured:
        yield "Goals", ["goal", "reached", "wanted", "measured"], measured


def _cells(run: Run, row: Row, columns: Cells) -> Cells:
    return [row.case, TARGET_NAMES[row.target], *(_cell(run, row, column) for column in columns)]


def _cell(run: Run, row: Row, column: str) -> str:
    if column in RATIOS:
        if row.target == RATIOS[column] or row.target == "kafka":
            return ""
        figure = "batches_per_s" if row.median("batches_per_s") is not None else "records_per_s"
        return _number(run.ratio(row.part, row.case, row.target, RATIOS[column], figure))
    return _number(row.median(FIGURES[column]))


def _goal_cells(run: Run, goal: Goal) -> Cells:
    sign = "≤" if goal.at_most else "≥"
    answer = "yes" if goal.reached(run) else "no"
    return [
        goal.text,
        answer,
        f"{sign} {_number(goal.bound)} {goal.unit}".rstrip(),
        f"{_number(goal.measure(run))} {goal.unit}".rstrip(),
    ]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if abs(value) >= 1_000_000:
        return f"{value / 1_000_000:,.2f} M"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def write_json(run: Run, path: Path, duration_s: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document(run, duration_s), indent=1, ensure_ascii=False) + "\n")


def document(run: Run, duration_s: float) -> dict[str, Any]:
    return {
        "machine": machine(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "duration_s": round(duration_s),
        "results": [
            {"part": row.part, "case": row.case, "target": row.target, "medians": row.medians(), "rounds": row.rounds}
            for row in run.rows.values()
        ],
        "goals": [
            {"goal": goal.text, "bound": goal.bound, "at_most": goal.at_most, "unit": goal.unit,
             "measured": goal.measure(run), "reached": goal.reached(run)}
            for goal in GOALS
        ],
        "left_out": run.left_out,
    }  # fmt: skip


def machine() -> dict[str, Any]:
    return {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version(),
            "load_average": [round(each, 1) for each in os.getloadavg()]}  # fmt: skip


def update_docs(run: Run, path: Path, duration_s: float) -> None:
    """Replace what follows the mark."""
    text, found, _ = path.read_text().partition(MARK)
    if found:
        path.write_text(text + MARK + "\n\n" + markdown(run, duration_s))


def markdown(run: Run, duration_s: float) -> str:
    facts = machine()
    lines = [
        f"{datetime.now(UTC):%Y-%m-%d}, {facts['cores']} cores, {facts['system']}, Python {facts['python']}; "
        f"{duration_s / 60:.0f} minutes, load average at the end {facts['load_average'][0]}.", ""]  # fmt: skip
    for title, headings, rows in tables(run):
        alignment = ["---" if number < 2 else "--:" for number in range(len(headings))]
        lines += [f"### {title}", ""]
        lines += ["| " + " | ".join(cells) + " |" for cells in (headings, alignment, *rows)] + [""]
    lines += [f"Left out: {what}: {reason}" for what, reason in run.left_out.items()]
    return "\n".join(lines).rstrip() + "\n"
