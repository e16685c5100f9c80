"""The run as tables on the terminal, as JSON, and as docs/reports/bench.md."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench.goals import GOALS, Goal
from tests.bench.run import Row, Run
from tests.support.report import head, machine, table

TARGET_NAMES = {"pulsar": "Pulsar", "gateway": "gateway", "kafka": "Kafka"}
Cells = list[str]
WIDTH = 120

RATES = ["batches/s", "records/s"]
COSTS = ["CPU µs/batch", "MB"]
HEADINGS: dict[str, tuple[str, Cells]] = {
    "produce": ("Produce, by records in a batch and requests in flight", [*RATES, "of Pulsar", "of Kafka", *COSTS]),
    "tail": ("Consume from memory, by records in a batch", [*RATES, "of Kafka", "batches/fetch", *COSTS]),
    "catch-up": (
        "Consume from the start, by records in a batch", [*RATES, "of Pulsar", "of Kafka", "first batch ms", *COSTS],
    ),
    "latency": (
        "Latency at 100 records/s, ms", ["produce p50", "produce p99", "end to end p50", "end to end p99"],
    ),
    "memory": ("Memory of the gateway", ["MB", "peak MB"]),
    "tools": ("Kafka's own tools", ["records/s", "of Kafka"]),
    "groups": ("Groups, by requests in flight", ["requests/s", "of Kafka", "p50", "p99", "CPU µs/request"]),
    "many groups": (
        "Idle groups: each member sends a heartbeat every 3 s", ["requests/s", "p50", "p99", "busy", "MB", "stable s"],
    ),
    "cold start": (
        "Partitions that nobody has used yet, 20 records in each", ["s", "records/s", "CPU ms/partition",
        "produce p50", "produce p99"],
    ),
    "transactions": (
        "Transactions with librdkafka", [
            "transactions/s", "records/s", "of Kafka", "transaction p50", "transaction p99", "end to end p50",
        ],
    ),
    "loading": ("Start of a gateway", ["offsets/s", "ready s", "ready s without", "MB"]),
}  # fmt: skip
FIGURES = {
    "batches/s": "batches_per_s", "records/s": "records_per_s", "batches/fetch": "batches_per_fetch",
    "CPU µs/batch": "cpu_us_per_batch", "MB": "resident_mb", "peak MB": "peak_mb", "first batch ms": "first_batch_ms",
    "transactions/s": "transactions_per_s", "transaction p50": "transaction_ms.p50",
    "transaction p99": "transaction_ms.p99",
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
    """(title, headings, rows) of each measured part, then of the goals."""
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
        rates = ("batches_per_s", "transactions_per_s", "records_per_s")
        figure = next((name for name in rates if row.median(name) is not None), rates[-1])
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


def markdown(run: Run, duration_s: float) -> str:
    lines = [head("Benchmark", "make bench", duration_s, HOW_TO_READ)]
    for title, headings, rows in tables(run):
        lines += [f"## {title}", "", *table(headings, rows, texts=2), ""]
    lines += [f"Left out: {what}: {reason}" for what, reason in run.left_out.items()]
    return "\n".join(lines).rstrip() + "\n"


HOW_TO_READ = """\
One machine runs Apache Pulsar 4.0.7 (standalone), a gateway on it, Apache Kafka 3.9.2 and the load generator.
Each part sends the same record batches through each target. The goals are the last table.

| through | what is measured |
| --- | --- |
| Pulsar | The upper limit: ready batches, one Pulsar entry each, sent with the gateway's own Pulsar client |
| gateway | A Kafka client, the gateway, Pulsar |
| Kafka | The same Kafka client and Apache Kafka |

How it is measured:

* One topic, one partition, one replica. Records have 100 bytes and no key, and are not compressed. acks=all.
* Neither Pulsar nor Kafka waits for the disk before it acknowledges. Pulsar runs with `journalSyncData=false`, which a
  production bookie should not have. Each server has a heap of 1 GB.
* The load generator is a separate process. It sends requests that were encoded before, and parses no records. Five
  requests are in flight on each connection: 20 in flight are 4 connections, 200 are 40.
* The targets take turns in each round. Figures are medians over the rounds. Ratios are medians of the ratios of each
  round. On a busy machine compare ratios, not rates.

What the columns mean:

* **batches/s, records/s**: acknowledged or received after a warm-up. *first batch ms* is the time to the first batch.
* **of Pulsar, of Kafka**: the rate divided by the rate through that target. The gateway puts small batches that arrive
  together into one entry, so it can exceed Pulsar there.
* **CPU µs/batch**: user and system time of the gateway process for one batch.
* **MB**: resident memory of the gateway process after the case.

What the parts do:

* **Consume from memory** reads the newest 16 MB again and again, 1 MiB a fetch, on one connection.
* **Consume from the start** reads through a gateway that has just been started and has nothing in memory. Batches of
  ten records were written with 200 requests in flight.
* **Latency** sends one record at a time. *frames* is the load generator; *client library* is librdkafka for the gateway
  and Kafka, and pulsar-client for Pulsar. End to end ends when a waiting consumer has the record.
* **Memory**: 50 of the 1,000 connections ask for five fetches of up to 50 MB each and read no answer.
* **Groups**: each connection commits or sends heartbeats for a group of its own. *busy* is the server's share of one
  core; *stable s* is the time until all members have joined.
* **Transactions**: with offsets, each has a record in each partition, an offset of a group, and its commit; end to end
  begins with the transaction and ends when a waiting read_committed consumer has its record. A commit every 100 ms is
  compared with an idempotent producer. What is read was written in transactions of 1,000 records.
* **Kafka's own tools**: `ProducerPerformance` with default settings, and `ConsumerPerformance` without joining a group.
"""
