"""How fast a fleet replaces a gateway, and what a fleet costs: `python -m tests.bench.fleet [--only PART]`; writes
docs/reports/fleet.md."""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from deploy.local.standalone import PulsarStandalone
from tests.bench.figures import Figures
from tests.bench.fleet.costs import COSTS
from tests.bench.fleet.deaths import deaths
from tests.bench.fleet.takeover import takeover
from tests.support.report import REPORTS

REPORT = REPORTS / "fleet.md"
HEAP_MB = 1024
PARTS = {"deaths": deaths, "takeover": takeover, **COSTS}
HOW_TO_READ = """\
What happens when one of three gateways dies, and what a fleet costs. Pulsar, all gateways and the load run on one
machine. CPU is the processor time of the gateways alone; it depends less on other programs than times and rates do.
How to size a fleet with these figures: [guides/deploy.md](../guides/deploy.md#how-many-gateways).

* **network cable pulled**: the gateway runs in a network namespace whose link is taken down.
* **by a single address**: the request reaches a gateway that does not lead the partition, which forwards it.
* **partitions of the busiest, of the mean**: partitions of the busiest gateway, divided by the mean.
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fleet", description=__doc__)
    parser.add_argument("--only", action="append", choices=PARTS, help="run this part; may be given several times")
    options = parser.parse_args()
    began = time.monotonic()
    figures = Figures("Fleet", "make fleet", HOW_TO_READ)
    work_dir = Path(tempfile.mkdtemp(prefix="kafka-gateway-fleet-"))
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
