"""What security costs: `python -m tests.bench.security [--only PART]`; writes
docs/reports/security.md."""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from deploy.local.standalone import PulsarStandalone
from tests.bench.figures import Figures
from tests.bench.security.rights import rights
from tests.support.report import REPORTS

REPORT = REPORTS / "security.md"
HEAP_MB = 1024
PARTS = {"rights": rights}
HOW_TO_READ = """\
What authorization and quotas cost. Pulsar, the gateways and the load run on one machine. CPU is the processor time of
the gateway alone; it depends less on other programs than times and rates do. Figures are medians of rounds in which the
sides take turns. Records have 100 bytes; 20 requests of one batch are in flight.

* **with**: 1,000 ACLs of others, one that allows, and quotas of bytes and request time that nobody reaches. **their
  code alone**: a Produce request through guard and meter, without network and log; the best of nine.
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.security", description=__doc__)
    parser.add_argument("--only", action="append", choices=PARTS, help="run this part; may be given several times")
    options = parser.parse_args()
    began = time.monotonic()
    figures = Figures("Security", "make security", HOW_TO_READ)
    work_dir = Path(tempfile.mkdtemp(prefix="kafka-gateway-security-"))
    pulsar = PulsarStandalone(work_dir / "pulsar", heap_mb=HEAP_MB)
    pulsar.start()
    try:
        pulsar.wait_ready()
        for name in options.only or PARTS:
            print(f"{name} …", flush=True)
            PARTS[name](work_dir, pulsar, figures)
    finally:
        pulsar.kill()
        shutil.rmtree(work_dir, ignore_errors=True)
    text = figures.markdown(time.monotonic() - began)
    print(text)
    if not options.only:
        REPORT.write_text(text)


if __name__ == "__main__":
    main()
