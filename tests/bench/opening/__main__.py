"""What opening a log costs the gateway: `python -m tests.bench.opening [--against REV] [--profile CASE]`.

Pulsar is replaced by one that costs next to nothing (`fake_pulsar`), in a process of its own. Two commits take turns
with slices of some milliseconds. Other load of the machine makes single slices slower, never faster, so the fastest
quarter counts.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.table import Table

from tests.bench.against import sources_of
from tests.bench.opening.worker import CASES, READY
from tests.support.gateway_process import REPOSITORY

ROUNDS = 30
PLACES = 4
"""One of this number of slices counts: the fastest ones."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.opening", description=__doc__)
    parser.add_argument("--against", metavar="REV", default="HEAD", help="the commit to compare this tree with")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--profile", action="append", choices=CASES, help="show where this tree's time goes instead")
    options = parser.parse_args()
    if options.profile:
        with _pulsar() as ports:
            subprocess.run(_command(REPOSITORY, *ports, *options.profile), cwd=REPOSITORY, check=True)
        return
    folder = Path(tempfile.mkdtemp(prefix="kafka-gateway-opening-"))
    try:
        with sources_of(options.against, folder / "sources") as sources:
            _show(options.against, _compare([sources, REPOSITORY], options.rounds))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _compare(trees: Sequence[Path], rounds: int) -> dict[str, list[list[float]]]:
    """By case and work tree, the µs of CPU a partition for each round."""
    found: dict[str, list[list[float]]] = {case: [[] for _ in trees] for case in CASES}
    with ExitStack() as stack:
        workers = [stack.enter_context(_worker(tree, stack.enter_context(_pulsar()))) for tree in trees]
        for number in range(rounds):
            for case in CASES:
                for side in range(len(trees)) if number % 2 else reversed(range(len(trees))):
                    found[case][side].append(_ask(workers[side], case))
    return found


@contextmanager
def _pulsar() -> Iterator[list[str]]:
    """The ports of a fake Pulsar."""
    command = [sys.executable, "-m", "tests.bench.opening.fake_pulsar"]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        yield process.stdout.readline().split()
        process.stdin.close()


@contextmanager
def _worker(sources: Path, ports: Sequence[str]) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        _command(sources, *ports), cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        if process.stdout.readline().strip() != READY:
            raise RuntimeError(f"the worker of {sources} did not start")
        yield process
        process.stdin.close()


def _command(sources: Path, *arguments: str) -> list[str]:
    """Runs the commit's own worker. For a commit without one, it runs this one."""
    command = ["env", f"PYTHONPATH={sources}:{REPOSITORY}", sys.executable, "-P", "-m", "tests.bench.opening.worker"]
    return [*command, *arguments]


def _ask(worker: "subprocess.Popen[str]", case: str) -> float:
    assert worker.stdin is not None and worker.stdout is not None
    worker.stdin.write(f"{case}\n")
    worker.stdin.flush()
    return float(worker.stdout.readline())


def _show(revision: str, found: dict[str, list[list[float]]]) -> None:
    table = Table(title=f"CPU of the gateway, µs a partition: {revision} and this tree", title_justify="left")
    for heading in ("case", "before", "after", "ratio"):
        table.add_column(heading, justify="left" if heading == "case" else "right")
    for case, sides in found.items():
        before, after = (fmean(sorted(each)[: max(1, len(each) // PLACES)]) for each in sides)
        table.add_row(case, f"{before:.0f}", f"{after:.0f}", f"{after / before:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
