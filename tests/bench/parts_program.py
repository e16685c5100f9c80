"""The command line of a bench whose parts share one Pulsar, and the report of a whole run."""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from deploy.local.standalone import PulsarStandalone
from tests.bench.figures import Figures
from tests.support.report import REPORTS

HEAP_MB = 1024
Part = Callable[[Path, PulsarStandalone, Figures], None]
"""(working directory, Pulsar, figures to add to)."""


def run_parts(name: str, description: str | None, parts: Mapping[str, Part], how_to_read: str) -> None:
    """Run the parts that the command line names. A run of all parts writes docs/reports/NAME.md."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.bench.{name}", description=description)
    parser.add_argument("--only", action="append", choices=parts, help="run this part; may be given several times")
    options = parser.parse_args()
    began = time.monotonic()
    figures = Figures(name.capitalize(), f"make {name}", how_to_read)
    work_dir = Path(tempfile.mkdtemp(prefix=f"kafka-gateway-{name}-"))
    pulsar = PulsarStandalone(work_dir / "pulsar", heap_mb=HEAP_MB)
    pulsar.start()
    try:
        pulsar.wait_ready()
        for part in options.only or parts:
            print(f"{part} …", flush=True)
            parts[part](work_dir, pulsar, figures)
    finally:
        pulsar.kill()
        shutil.rmtree(work_dir, ignore_errors=True)
    text = figures.markdown(time.monotonic() - began)
    print(text)
    if not options.only:
        (REPORTS / f"{name}.md").write_text(text)
