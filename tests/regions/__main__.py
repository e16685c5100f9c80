"""`make regions`: every topology as processes of this machine, faults under load, and docs/reports/regions.md.

`python -m tests.regions [TOPOLOGY…] [TRIAL…]` runs a part, for instance sync-small with the trials of sync.
"""

from __future__ import annotations

import inspect
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console

from tests.regions import (
    combined,
    copies,
    faults,
    geo,
    geo_transactional,
    mesh,
    moving,
    network,
    single_address,
    stretched,
    transactional,
)
from tests.regions.lab import Lab, topology
from tests.regions.report import Report, Seen
from tests.support.java_programs.java_clients import fetch_newest
from tests.support.report import REPORTS

Trial = Callable[[Lab], dict[str, str]]
PLAN: Sequence[tuple[str, Sequence[Trial]]] = (
    # us is not lost in these trials: what it wrote while eu was away has copies in us only.
    ("sync", (
        stretched.lose_a_bookie,
        faults.pause_a_gateway,
        faults.cut_a_gateway_off,
        faults.cut_a_gateway_off_briefly,
        single_address.cut_between_gateways,
        faults.pause_a_broker,
        stretched.lose_a_region,
        stretched.region_returns,
        transactional.lose_a_region_with_transactions,
        stretched.region_returns,
        faults.pause_a_region,
        faults.cut_a_region_off,
    )),
    # What eu wrote in the meantime has copies in eu only: if eu were killed next, these entries would be missing.
    ("sync", (faults.cut_between_regions,)),
    ("geo", (
        geo.write_in_both,
        geo.lose_a_region,
        geo.lose_a_region_with_a_tail,
        moving.clients_move,
        geo_transactional.lose_a_region_of_transactions,
        geo_transactional.lose_a_tail_of_transactions,
        geo_transactional.give_up_a_region_of_transactions,
        copies.open_copies_again,
    )),
    ("combined", (geo.write_in_both, combined.lose_a_region)),
    ("mesh", (geo.write_in_all, mesh.restart_gateways, mesh.lose_one_of_three)),
)  # fmt: skip
NEEDS_NETWORK = {
    faults.cut_a_gateway_off,
    faults.cut_a_gateway_off_briefly,
    faults.cut_a_region_off,
    faults.cut_between_regions,
    geo.lose_a_region_with_a_tail,
    geo_transactional.lose_a_tail_of_transactions,
    mesh.lose_one_of_three,
    single_address.cut_between_gateways,
}
NEEDS_TWO_BOOKIES = {faults.cut_between_regions}
"""Cut off, the region that serves the topic goes on with its own bookies; in the small shapes it has one."""
SHAPES = ("sync", "sync-small", "geo", "geo-small", "combined", "mesh")
PIPED_COLUMNS = 160
REPORT = REPORTS / "regions.md"


def main(wanted: Sequence[str]) -> int:
    unknown = {*wanted} - {*SHAPES} - {trial.__name__ for _, trials in PLAN for trial in trials}
    if unknown:
        sys.exit(f"no such topology or trial: {', '.join(sorted(unknown))}")
    console = Console(width=None if sys.stdout.isatty() else PIPED_COLUMNS)
    fetch_newest()
    no_network = network.enter_own(wanted)
    if no_network is None:
        network.prepare()
    else:
        console.print(f"nothing can be cut: {no_network}")
    run = Run(console, networked=no_network is None)
    for name, trials in _planned(wanted):
        run.trials(name, trials)
    console.print(run.report.console_table())
    if not wanted:
        REPORT.write_text(run.report.markdown())
    return 1 if run.report.failures else 0


def _planned(wanted: Sequence[str]) -> Iterator[tuple[str, Sequence[Trial]]]:
    """The trials of these arguments: topologies, trials of all topologies, or trials of the named topologies."""
    shapes = [name for name in SHAPES if name in wanted] or [*dict(PLAN)]
    named = [name for name in wanted if name not in SHAPES]
    for shape in shapes:
        for name, trials in PLAN:
            chosen = [trial for trial in trials if trial.__name__ in named or not named]
            if shape.endswith("-small"):
                chosen = [trial for trial in chosen if trial not in NEEDS_TWO_BOOKIES]
            if name == shape.removesuffix("-small") and chosen:
                yield shape, chosen


class Run:
    def __init__(self, console: Console, *, networked: bool) -> None:
        self.report = Report()
        self._console = console
        self._networked = networked

    def trials(self, name: str, trials: Sequence[Trial]) -> None:
        """Start a topology, and run these trials on it."""
        start = time.monotonic()
        self._console.print(f"{name}: starting")
        with (
            tempfile.TemporaryDirectory(prefix="kafka-gateway-regions-") as folder,
            topology(name, Path(folder), networked=self._networked) as lab,
        ):
            self._console.print(f"{name}: up after {time.monotonic() - start:.0f} s")
            for trial in trials:
                if self._networked or trial not in NEEDS_NETWORK:
                    self._try(name, trial, lab)

    def _try(self, name: str, trial: Trial, lab: Lab) -> None:
        start = time.monotonic()
        seen: dict[str, str] | None = None
        try:
            seen = trial(lab)
        except Exception:
            self._console.print(traceback.format_exc(), markup=False)
            self._console.print(f"logs: {_kept_logs(lab.cluster.folder)}")
        done = Seen(name, trial.__name__, inspect.getdoc(trial) or "", time.monotonic() - start, seen)
        self.report.add(done)
        self._console.print(f"{name}: {done.title} in {done.took_s:.0f} s: {done.text}", markup=False)


def _kept_logs(folder: Path) -> Path:
    """A folder with copies of the logs, which stays."""
    kept = Path(tempfile.mkdtemp(prefix="kafka-gateway-regions-logs-"))
    for log in folder.glob("*/log"):
        shutil.copy(log, kept / log.parent.name)
    return kept


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
