"""The gateway, Pulsar and Kafka side by side: `python -m tests.bench [--only PART] [--quick] [--against REV]`."""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from rich.console import Console

from tests.bench import report
from tests.bench.against import compare
from tests.bench.parts import PARTS
from tests.bench.plan import QUICK, Plan
from tests.bench.run import Run
from tests.bench.servers import running_servers
from tests.support.gateway_process import REPOSITORY
from tests.support.report import REPORTS

JSON_PATH = REPOSITORY / "build" / "bench.json"
LOGS_PATH = REPOSITORY / "build" / "bench-logs"
NEEDED_DISK_BYTES = 25 << 30
"""A bookie turns read-only when the disk is nearly full."""
REPORT = REPORTS / "bench.md"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", action="append", choices=PARTS, help="run this part; may be given several times")
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--against", metavar="REV", help="compare the CPU of this tree with that of a commit")
    options = parser.parse_args()
    if options.against:
        compare(options.against)
        return
    began = time.monotonic()
    run = _run(options.only or list(PARTS), QUICK if options.quick else Plan())
    duration_s = time.monotonic() - began
    report.show(run)
    report.write_json(run, JSON_PATH, duration_s)
    if not options.only and not options.quick:
        REPORT.write_text(report.markdown(run, duration_s))
    print(f"{duration_s:.0f} s; {JSON_PATH.relative_to(REPOSITORY)} written")


def _run(names: list[str], plan: Plan) -> Run:
    run = Run()
    console = Console(stderr=True)
    work_dir = Path(tempfile.mkdtemp(prefix="kafka-gateway-bench-"))
    if shutil.disk_usage(work_dir).free < NEEDED_DISK_BYTES:
        work_dir.rmdir()
        raise SystemExit(
            f"A run needs {NEEDED_DISK_BYTES >> 30} GB free in {work_dir.parent} (TMPDIR names another place)"
        )
    try:
        with running_servers(work_dir) as servers:
            for name in names:
                console.print(f"{name} …")
                PARTS[name](servers, run, plan)
    except RuntimeError:
        _keep_logs(work_dir)
        raise
    finally:
        shutil.rmtree(work_dir, ignore_errors=True)
    return run


def _keep_logs(work_dir: Path) -> None:
    """The logs of the servers explain a failed run."""
    LOGS_PATH.mkdir(parents=True, exist_ok=True)
    for log in work_dir.glob("*/*.log"):
        shutil.copy(log, LOGS_PATH)


if __name__ == "__main__":
    main()
