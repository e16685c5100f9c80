"""What a batch costs inside the gateway: `python -m tests.bench.inside [--against REV | --python FILE] [--only CASE]`.

Without Pulsar, sockets and load generator (`scene`). `--instructions` counts instead of measuring, which takes minutes
and is nearly the same in every run. `--profile` shows the functions that take the time.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table

from tests.bench.against import sources_of
from tests.bench.inside import profile, turns
from tests.bench.inside.cases import CASES
from tests.bench.inside.instructions import count
from tests.bench.inside.turns import Side
from tests.support.gateway_process import REPOSITORY


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.inside", description=__doc__)
    parser.add_argument("--against", metavar="REV", default="HEAD", help="the commit to compare this tree with")
    parser.add_argument("--python", metavar="FILE", help="compare with this interpreter, which has the dependencies")
    parser.add_argument("--only", action="append", choices=CASES, help="this case; may be given several times")
    parser.add_argument("--rounds", type=int, default=turns.ROUNDS)
    parser.add_argument("--instructions", action="store_true", help="count instructions; needs valgrind")
    parser.add_argument("--profile", action="store_true", help="show where this tree's calls and time go instead")
    options = parser.parse_args()
    cases = options.only or list(CASES)
    if options.profile:
        for case in cases:
            uvloop.run(profile.show(case))
        return
    if options.python:
        found = turns.compare(Side(REPOSITORY), Side(REPOSITORY, options.python), cases, options.rounds)
        _show_cpu(f"{sys.executable} and {options.python}", found)
        return
    with (
        tempfile.TemporaryDirectory(prefix="kafka-gateway-inside-") as folder,
        sources_of(options.against, Path(folder) / "sources") as before,
    ):
        if options.instructions:
            _show_instructions(options.against, before, cases)
        else:
            found = turns.compare(Side(before), Side(REPOSITORY), cases, options.rounds)
            _show_cpu(f"{options.against} and this tree", found)


def _show_cpu(sides: str, found: dict[str, turns.Cost]) -> None:
    rows = []
    for case, cost in found.items():
        before, after = turns.quickest(cost.before), turns.quickest(cost.after)
        rows.append([case, f"{before:.1f}", f"{after:.1f}", f"{cost.ratio:.3f}", f"{cost.median_ratio:.3f}"])
    _print(f"CPU inside the gateway, µs a batch: {sides}", rows, "median of rounds")


def _show_instructions(revision: str, before: Path, cases: Sequence[str]) -> None:
    counts = zip(cases, count(before, cases), count(REPOSITORY, cases), strict=True)
    rows = [[case, f"{old:.1f}", f"{new:.1f}", f"{new / old:.3f}"] for case, old, new in counts]
    _print(f"Instructions inside the gateway, thousands a batch: {revision} and this tree", rows)


def _print(title: str, rows: Sequence[Sequence[str]], *more: str) -> None:
    table = Table(title=title, title_justify="left")
    for heading in ("case", "before", "after", "ratio", *more):
        table.add_column(heading, justify="left" if heading == "case" else "right")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
