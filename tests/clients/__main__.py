"""Public clients on Apache Kafka and on the gateway, the results compared: `python -m tests.clients [CLIENT …]`."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from deploy.local.jars import ResolveError
from spark_compat.runner.servers import Side, both_sides
from tests.clients.api_versions import NEWEST_KAFKA, advertised, newest_kafka
from tests.clients.cases import Case, all_cases
from tests.clients.clients import ClientKind, NotAvailableError, all_clients
from tests.clients.report import Results, as_results, save_results, save_versions, unavailable, write_report
from tests.clients.run import run_cases
from tests.clients.verdict import FAIL, Verdict


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description=__doc__)
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help="part of a name and version; all by default")
    parser.add_argument("--cases", default="", help="only those whose feature/name contains this")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="use this cluster instead of starting one")
    parser.add_argument("--gateway", metavar="HOST:PORT", help="use this gateway instead of starting one on a Pulsar")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and clean up
    kinds = [each for each in all_clients() if any(part in str(each) for part in options.clients or [""])]
    cases = [each for each in all_cases() if options.cases in f"{each.feature}/{each.name}"]
    work_dir = Path(tempfile.mkdtemp(prefix="clients-"))
    try:
        with both_sides(work_dir, options.kafka, options.gateway) as sides:
            failed = _try_clients(kinds, cases, sides, work_dir)
            if not options.cases:
                _compare_versions(sides, work_dir / "newest")
    finally:
        shutil.rmtree(work_dir, ignore_errors=True)
    write_report([str(each) for each in all_clients()])
    sys.exit(failed)


def _try_clients(kinds: Sequence[ClientKind], cases: Sequence[Case], sides: Sequence[Side], work_dir: Path) -> bool:
    """True when a case failed."""
    run_id = f"c{uuid.uuid4().hex[:6]}"
    failed = False
    for number, kind in enumerate(kinds):
        folder = work_dir / f"client-{number}"
        folder.mkdir()
        results = _try_client(kind, cases, sides, f"{run_id}-{number}", folder)
        failed |= any(each["result"] == FAIL for each in results["verdicts"])
        save_results(results)
    return failed


def _try_client(kind: ClientKind, cases: Sequence[Case], sides: Sequence[Side], run_id: str, work_dir: Path) -> Results:
    print(f"\n{kind} ({kind.language})", flush=True)
    date = datetime.now(UTC).date().isoformat()
    try:
        command = kind.prepare()
    except (NotAvailableError, ResolveError) as why:
        print(f"  not available: {why}", flush=True)
        return unavailable(kind.name, kind.version, kind.language, date, str(why))
    verdicts = []
    for verdict in run_cases(kind, command, cases, sides, run_id, work_dir):
        _show(verdict)
        verdicts.append(verdict)
    return as_results(kind.name, kind.version, kind.language, date, verdicts)


def _show(verdict: Verdict) -> None:
    times = f"{verdict.kafka.seconds:.1f} s, {verdict.gateway.seconds:.1f} s"
    print(f"  {verdict.result:4}  {verdict.feature}/{verdict.case}  {times}  {verdict.cause}", flush=True)


def _compare_versions(sides: Sequence[Side], work_dir: Path) -> None:
    kafka, gateway = sides
    with newest_kafka(work_dir) as newest:
        tables = {"gateway": gateway.bootstrap, "Kafka 3.9.2": kafka.bootstrap, f"Kafka {NEWEST_KAFKA}": newest}
        save_versions({name: advertised(bootstrap) for name, bootstrap in tables.items()})


if __name__ == "__main__":
    main()
