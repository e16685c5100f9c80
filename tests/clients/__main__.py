"""Public clients on Apache Kafka and on the gateway, with the results compared: `python -m tests.clients [CLIENT …]`.

Writes docs/reports/conformance.md when all clients ran all cases on the program's own servers, or the file that
`--report` names.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from deploy.local.jars import ResolveError
from spark_compat.runner.servers import Side, both_sides
from tests.clients.api_versions import NEWEST_KAFKA, Versions, advertised, newest_kafka
from tests.clients.cases import Case, all_cases
from tests.clients.clients import ClientKind, NotAvailableError, all_clients
from tests.clients.report import REPORT, Results, as_results, report_text, unavailable
from tests.clients.run import run_cases
from tests.clients.verdict import FAIL, Verdict

CLIENTS_AT_ONCE = 4


def main() -> None:
    options = parsed(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and clean up
    kinds = [each for each in all_clients() if any(part in str(each) for part in options.clients or [""])]
    cases = [each for each in all_cases() if options.cases in f"{each.feature}/{each.name}"]
    work_dir = Path(tempfile.mkdtemp(prefix="clients-"))
    try:
        with both_sides(work_dir, options.kafka, options.gateway) as sides:
            results = _try_clients(kinds, cases, sides, work_dir)
            versions = {} if options.cases else _compare_versions(sides, work_dir / "newest")
    finally:
        shutil.rmtree(work_dir, ignore_errors=True)
    file = report_file(options)
    if file is not None:
        file.write_text(report_text(results, versions))
    sys.exit(any(each["result"] == FAIL for client in results for each in client["verdicts"]))


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description=__doc__)
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help="part of a name and version; all by default")
    parser.add_argument("--cases", default="", help="only those whose feature/name contains this")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="use this cluster instead of starting one")
    parser.add_argument("--gateway", metavar="HOST:PORT", help="use this gateway instead of starting one on a Pulsar")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report there, whatever was run")
    return parser.parse_args(arguments)


def report_file(options: argparse.Namespace) -> Path | None:
    """The file for the report of this run. A partial run must not overwrite the complete report."""
    if options.report is not None:
        return Path(options.report)
    part = options.clients or options.cases or options.kafka or options.gateway
    return None if part else REPORT


def _try_clients(
    kinds: Sequence[ClientKind], cases: Sequence[Case], sides: Sequence[Side], work_dir: Path
) -> list[Results]:
    """Several clients at the same time: they wait most of the time."""
    run_id = f"c{uuid.uuid4().hex[:6]}"

    def try_client(number: int, kind: ClientKind) -> Results:
        folder = work_dir / f"client-{number}"
        folder.mkdir()
        return _try_client(kind, cases, sides, f"{run_id}-{number}", folder)

    with ThreadPoolExecutor(CLIENTS_AT_ONCE) as pool:
        return [*pool.map(try_client, range(len(kinds)), kinds)]


def _try_client(kind: ClientKind, cases: Sequence[Case], sides: Sequence[Side], run_id: str, work_dir: Path) -> Results:
    try:
        command = kind.prepare()
    except (NotAvailableError, ResolveError) as why:
        print(f"{kind}: not available: {why}", flush=True)
        return unavailable(kind.name, kind.version, kind.language, str(why))
    verdicts = []
    for verdict in run_cases(kind, command, cases, sides, run_id, work_dir):
        _show(kind, verdict)
        verdicts.append(verdict)
    return as_results(kind.name, kind.version, kind.language, verdicts)


def _show(kind: ClientKind, verdict: Verdict) -> None:
    times = f"{verdict.kafka.seconds:.1f} s, {verdict.gateway.seconds:.1f} s"
    print(f"{verdict.result:4}  {kind}  {verdict.feature}/{verdict.case}  {times}  {verdict.cause}", flush=True)


def _compare_versions(sides: Sequence[Side], work_dir: Path) -> dict[str, Versions]:
    kafka, gateway = sides
    with newest_kafka(work_dir) as newest:
        tables = {"gateway": gateway.bootstrap, "Kafka 3.9.2": kafka.bootstrap, f"Kafka {NEWEST_KAFKA}": newest}
        return {name: advertised(bootstrap) for name, bootstrap in tables.items()}


if __name__ == "__main__":
    main()
