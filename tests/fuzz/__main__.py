"""Damaged inputs for every decoder: `python -m tests.fuzz [TARGET ...] [--inputs N] [--seed S] [--report] [--keep]`."""

from __future__ import annotations

import argparse
import base64

from tests.fuzz import corpus, report
from tests.fuzz.all_targets import TARGETS
from tests.fuzz.campaign import Campaign, Result, quiet


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"all, or some of: {', '.join(TARGETS)}")
    parser.add_argument("--inputs", type=int, default=100_000, help="for each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", action="store_true", help="add the run to docs/reports/fuzz.md")
    parser.add_argument("--keep", action="store_true", help="add inputs with new outcomes to the corpus")
    options = parser.parse_args()
    unknown = set(options.targets) - TARGETS.keys()
    if unknown:
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    results = [_run(name, options.inputs, options.seed) for name in options.targets or TARGETS]
    if options.keep:
        for result in results:
            corpus.add(result.target, (*(found.data for found in result.findings), *result.kept))
    if options.report:
        report.note(results)
        report.write()
    raise SystemExit(any(result.findings for result in results))


def _run(name: str, inputs: int, seed: int) -> Result:
    with quiet():
        result = Campaign(TARGETS[name], seed, corpus.load(name)).run(inputs)
    rate = result.inputs / max(result.seconds, 1e-6)
    print(f"{name:20} {result.inputs:9,} inputs  {rate:8,.0f}/s  {result.outcomes:5} outcomes", flush=True)
    for found in result.findings:
        print(f"    {found.what}\n    {base64.b64encode(found.data[:300]).decode()}", flush=True)
    return result


main()
