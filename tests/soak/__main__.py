"""`make soak`: hours of mixed load with restarts. What clients saw is checked, and memory must not grow.

`python -m tests.soak [--minutes 120]`. A gateway is restarted every 5 minutes, Pulsar every 20. Writes
docs/reports/soak.md after two hours, or the file that `--report` names.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.soak.load import run_round
from tests.soak.measure import LogFindings, Sample, Sampler, client_sockets, sample, slope_mb_per_hour
from tests.soak.servers import GATEWAY_EVERY_S, PULSAR_EVERY_S, Faults, Servers
from tests.support.report import REPORTS, head, table

REPORT = REPORTS / "soak.md"
ROUND_S = 90.0
ROUND_TIMEOUT_S = 900.0
WHOLE_MINUTES = 120.0
WARM_UP = 0.25
"""The part of the samples that is ignored, because caches fill."""
FLAT_MB_PER_HOUR = 10.0
"""A slope is growth when it exceeds this value and three times its standard error."""
QUIET_S = 90.0
"""Clients have disconnected, but unused logs and readers are still open during this time."""


class Soak:
    def __init__(self, folder: Path, minutes: float) -> None:
        self.servers = Servers(folder)
        self.before = sample(self.servers.veteran)
        self.failures: list[str] = []
        self.rounds = self.records = self.topics_deleted = 0
        self.findings = LogFindings()
        self._minutes = minutes
        self._faults = Faults(self.servers, GATEWAY_EVERY_S, PULSAR_EVERY_S)
        self._sampler = Sampler(self.servers.veteran)
        self.after = self.before
        self.client_sockets_left = 0

    def run(self) -> None:
        end = time.monotonic() + self._minutes * 60
        with self._faults.going_on():
            with self._sampler.going_on():
                while time.monotonic() < end and self._faults.failure is None:
                    self._run_round()
            with self._faults.suspended():  # in a whole fleet the gateway leads as many coordinators as at first
                time.sleep(QUIET_S)
                self.after = sample(self.servers.veteran)
                self.client_sockets_left = client_sockets(self.servers.veteran, self.servers.gateways[1:])
        for gateway in self.servers.gateways:
            self.findings.read(gateway.log_path)
        self._judge()

    def _run_round(self) -> None:
        turn = run_round(self.servers.bootstrap, ROUND_S, ROUND_TIMEOUT_S)
        self.rounds += 1
        self.records += turn.records
        self.topics_deleted += turn.topics_deleted
        self.failures += [f"round {self.rounds}: {text}" for text in turn.failures]
        print(f"round {self.rounds}: {turn.records} records, {len(turn.failures)} failures", *turn.failures, flush=True)

    @property
    def samples(self) -> list[Sample]:
        return self._sampler.samples[int(WARM_UP * len(self._sampler.samples)) :]

    def _judge(self) -> None:
        slope, error = slope_mb_per_hour(self.samples)
        if slope > max(FLAT_MB_PER_HOUR, 3 * error):
            self.failures.append(f"memory grows by {slope:.1f} MB an hour")
        if self.after.tasks > self.before.tasks:
            self.failures.append(f"{self.after.tasks - self.before.tasks} tasks are left over")
        if self.client_sockets_left:
            self.failures.append(f"{self.client_sockets_left} sockets of clients are left over")
        if self.findings.failed_requests or self.findings.failed_tasks:
            self.failures.append(
                f"{self.findings.failed_requests} requests and {self.findings.failed_tasks} background tasks failed "
                "by an unexpected exception"
            )

    def report(self) -> str:
        slope, error = slope_mb_per_hour(self.samples)
        resident = sorted(each.resident_mb for each in self.samples)
        quiet = f"{QUIET_S:.0f} s after the last client"
        rows = {
            "rounds, records written and checked": f"{self.rounds}, {self.records}",
            "topics made and deleted under a writer": str(self.topics_deleted),
            "restarts of a gateway, of Pulsar": f"{self._faults.gateway_restarts}, {self._faults.pulsar_restarts}",
            "failures": str(len(self.failures)),
            "memory of the gateway that was not restarted": (
                f"{self.before.resident_mb:.0f} MB at first, {resident[len(resident) // 2]:.0f} in the median, "
                f"{resident[-1]:.0f} at the most, {self.after.resident_mb:.0f} in the end"
            ),
            "its growth": f"{slope:.1f} ± {error:.1f} MB an hour",
            "its sockets": (
                f"{self.before.sockets} at first, {self.after.sockets} {quiet}, {self.client_sockets_left} of clients"
            ),
            "its tasks": f"{self.before.tasks} at first, {self.after.tasks} {quiet}",
            "event loop stalls over 100 ms, all gateways": (
                f"{self.findings.stalls}, the longest took {self.findings.longest_stall_cpu_ms} ms of CPU"
            ),
            "where the longest was": f"{self.findings.longest_stall_stack or 'nowhere'}",
        }
        lines = [head("Soak", "make soak", self._minutes * 60, HOW_TO_READ), *table(("what", "seen"), rows.items()), ""]
        lines += ["Failures:", "", *(f"* {text}" for text in self.failures)] if self.failures else []
        return "\n".join(lines).rstrip() + "\n"


HOW_TO_READ = f"""\
Producers and groups of every kind work through a fleet, and topics are created and deleted under them. A gateway is
restarted every {GATEWAY_EVERY_S / 60:.0f} minutes, Pulsar every {PULSAR_EVERY_S / 60:.0f}.
Every acknowledged record must be read at its offset. One gateway is never restarted: its memory must stay flat, and
none of its clients' connections and tasks may be left when the clients have gone.
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=WHOLE_MINUTES)
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="kafka-gateway-soak-"))
    soak = Soak(folder, options.minutes)
    try:
        soak.run()
    finally:
        soak.servers.stop()
    text = soak.report()
    print(text)
    file = options.report or (REPORT if options.minutes >= WHOLE_MINUTES else None)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    if soak.failures:
        print(f"logs are in {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
