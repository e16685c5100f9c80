"""What the reports in docs/reports have in common: the folder, the head with machine and date, tables."""

from __future__ import annotations

import os
import platform
import subprocess
import sysconfig
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from tests.support.gateway_process import REPOSITORY

REPORTS = REPOSITORY / "docs" / "reports"


def machine() -> dict[str, Any]:
    return {"cores": os.cpu_count(), "system": platform.platform(), "python": interpreter(),
            "addition_ns": addition_ns(), "load_average": [round(each, 1) for each in os.getloadavg()]}  # fmt: skip


def addition_ns(additions: int = 2_000_000) -> float:
    """The processor time of one addition in a loop: the same kind of machine can be half as fast on another day."""
    total, began_s = 0, time.process_time()
    for each in range(additions):
        total += each
    return round((time.process_time() - began_s) / additions * 1e9, 1)


def interpreter() -> str:
    """Its version, and whether it was built with optimisations, which are worth a fifth of the CPU."""
    version, options = platform.python_version(), sysconfig.get_config_var("CONFIG_ARGS") or ""
    found = [option for option in ("--enable-optimizations", "--with-lto") if option in options]
    return f"{version} (configured {'with ' + ' '.join(found) if found else 'without --enable-optimizations'})"


def today() -> str:
    """Today's date in UTC, YYYY-MM-DD."""
    return datetime.now(UTC).date().isoformat()


def head(title: str, command: str, duration_s: float, text: str) -> str:
    """The title, the command that wrote the report, time and machine, and `text`, which explains the report."""
    facts = machine()
    return (
        f"# {title}\n\n"
        f"Written by `{command}`: {today()}, commit {commit()}, {duration_s / 60:.0f} minutes.\n"
        f"{facts['cores']} cores, {facts['system']}, Python {facts['python']}; "
        f"an addition in Python takes {facts['addition_ns']} ns; "
        f"load average at the end {facts['load_average'][0]}.\n\n{text.strip()}\n"
    )


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], texts: int | None = None) -> list[str]:
    """Lines of markdown. The first `texts` columns, by default all, hold text; the others hold numbers."""
    columns = len(headings)
    kinds = ["---"] * (columns if texts is None else texts)
    alignment = [*kinds, *["--:"] * (columns - len(kinds))]
    return [_line(headings), _line(alignment), *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def commit() -> str:
    """The short revision of the working tree; empty outside a repository."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False).stdout.strip()
