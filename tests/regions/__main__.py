"""`make regions`: every topology as processes here, regions killed under load, and a table of what was seen."""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.regions import geo, stretched
from tests.regions.lab import Lab, topology

Trial = Callable[[Lab], dict[str, str]]
PLAN: dict[str, Sequence[Trial]] = {
    "sync": (stretched.lose_a_bookie, stretched.lose_a_region, stretched.region_returns),
    "geo": (geo.write_in_both, geo.lose_a_region),
    "combined": (geo.write_in_both,),
}
PIPED_COLUMNS = 160


def main(names: Sequence[str]) -> int:
    console = Console(width=None if sys.stdout.isatty() else PIPED_COLUMNS)
    table = Table("TOPOLOGY", "TRIAL", "SECONDS", "SEEN", title="Regions")
    failures = 0
    for name in names or PLAN:
        failures += _run_topology(name, table, console)
    console.print(table)
    return 1 if failures else 0


def _run_topology(name: str, table: Table, console: Console) -> int:
    failures = 0
    with tempfile.TemporaryDirectory(prefix="kafka-gateway-regions-") as folder:
        start = time.monotonic()
        console.print(f"{name}: starting")
        with topology(name, Path(folder)) as lab:
            table.add_row(name, "up", f"{time.monotonic() - start:.0f}", "")
            for trial in PLAN[name]:
                start = time.monotonic()
                try:
                    seen = ", ".join(f"{what}: {value}" for what, value in trial(lab).items())
                except Exception:
                    seen, failures = "FAILED", failures + 1
                    console.print(traceback.format_exc(), markup=False)
                took = f"{time.monotonic() - start:.0f}"
                table.add_row(name, trial.__name__.replace("_", " "), took, seen)
                console.print(f"{name}: {trial.__name__} in {took} s: {seen}")
    return failures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
